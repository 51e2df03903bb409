"""Advice, its job on a real Slurm cluster, and the next advice: predicted and accounted times of one small training.

The cluster is started for this, on this machine; the site file describes two partitions of nodes without GPUs.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.slurm.cluster import Cluster

from foretell.core.prediction import Estimate
from foretell.core.render.phrases import render_interval
from foretell.core.serialization import from_record
from foretell.core.units import render_duration
from foretell.measure.machine import find_cpu_model

EPOCHS = 60  # about a minute
_PATIENCE_S = 1800.0
SCRIPT = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
epochs = parser.parse_args().epochs
torch.manual_seed(0)
data = TensorDataset(torch.randn(8192, 512), torch.randint(0, 10, (8192,)))
loader = DataLoader(data, batch_size=128, shuffle=True)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(epochs):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: {loss.item():.3f}", flush=True)
"""
_SITE = """\
[sites.two]
title = "Two partitions of one core"
scheduler = "slurm"
"""
_NODE = """\
[sites.two.nodes.{name}]
cores = 1
memory = "4GB"
cpu_model = "{cpu}"
billing = "core-hours"
price_per_core_h = {price}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEnd:
    """The times of a job: predicted from code, after a run here, and after the job; requested; accounted."""

    partition: str
    job: str
    state: str
    steps: int
    before: Estimate
    after_run: Estimate
    after_job: Estimate
    walltime_s: float
    accounted_s: float
    run_step_s: float  # measured here
    code_step_s: float
    runs: int  # that the last answer used

    @property
    def estimates(self) -> dict[str, Estimate]:
        """By what they knew."""
        return {"code": self.before, "a scaled-down run": self.after_run, "run and job": self.after_job}


def judge_end_to_end(*, epochs: int = EPOCHS) -> list[EndToEnd]:
    """One row, measured on a cluster that is started for it."""
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as folder,
        _start_cluster(Path(folder)) as environment,
    ):
        work = Path(folder) / "work"
        work.mkdir()
        return [measure_end_to_end(work, environment, epochs=epochs)]


def measure_end_to_end(folder: Path, environment: Mapping[str, str], *, epochs: int = EPOCHS) -> EndToEnd:
    """Advise, make a run, advise, submit the job, and advise again."""
    write_training(folder)
    first = advise(folder, environment, "--then-run", epochs=epochs)
    job_id = _call(["sbatch", "--parsable", "job.sbatch"], folder, environment).strip()
    state, elapsed_s = _wait(job_id, folder, environment)
    last = advise(folder, environment, epochs=epochs)
    picked = first["picked"]
    return EndToEnd(
        partition=picked["prediction"]["allocation"]["partition"],
        job=job_id,
        state=state,
        steps=picked["steps"],
        before=_read_time(first["before"]["picked"]),
        after_run=_read_time(picked),
        after_job=_read_time(last["picked"]),
        walltime_s=picked["prediction"]["request"]["walltime_s"],
        accounted_s=elapsed_s,
        run_step_s=first["runs"]["used"][-1]["step_s"],
        code_step_s=first["before"]["picked"]["step"]["value"],
        runs=len(last["runs"]["used"]),
    )


def write_training(folder: Path) -> None:
    """The script, and a site file of two partitions whose nodes have the CPU of this machine."""
    (folder / "train.py").write_text(SCRIPT)
    cpu = find_cpu_model()
    nodes = (_NODE.format(name=name, cpu=cpu, price=price) for name, price in (("owens", 0.003), ("pitzer", 0.004)))
    (folder / "two.toml").write_text(_SITE + "".join(nodes))


def advise(folder: Path, environment: Mapping[str, str], *options: str, epochs: int) -> dict[str, Any]:
    """The answer to one call of the command."""
    where = ["--site", "two", "--site-file", "two.toml", "--output", "job.sbatch", "--json", *_name_cpu()]
    command = [sys.executable, "-m", "foretell", "advise", *where, *options]
    script = ["--", sys.executable, "train.py", "--epochs", str(epochs)]
    found: dict[str, Any] = json.loads(_call([*command, *script], folder, environment))
    return found


def _name_cpu() -> list[str]:
    """The model of a core that is included; it is taken by itself for CPUs of its family."""
    return [] if "EPYC" in find_cpu_model() else ["--cpu", "EPYC core"]


def _read_time(offer: Mapping[str, Any]) -> Estimate:
    return from_record(Estimate, offer["prediction"]["elapsed_s"])


@contextmanager
def _start_cluster(folder: Path) -> Iterator[Mapping[str, str]]:
    cluster = Cluster(folder / "cluster")
    cluster.folder.mkdir()
    try:
        cluster.start()
        yield cluster.environment
    finally:
        cluster.remove()


def _wait(job_id: str, folder: Path, environment: Mapping[str, str]) -> tuple[str, float]:
    """The state and the accounted time of a job that has ended."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        answer = _call(["sacct", "-nXP", "-j", job_id, "-o", "State,ElapsedRaw,End"], folder, environment).strip()
        state, _, rest = answer.partition("|")
        elapsed, _, end = rest.partition("|")
        if end not in ("", "Unknown") and state not in ("PENDING", "RUNNING"):
            return state, float(elapsed)
        time.sleep(1.0)
    raise TimeoutError(f"job {job_id} does not end")


def _call(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FORETELL_", "SLURM_"))}
    own = {"OMP_NUM_THREADS": "1", **environment}  # as the job, so that the run here is one of the same kind
    done = subprocess.run(command, cwd=folder, env=kept | own, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def print_end_to_end() -> None:
    """Measure it, and print a table."""
    for row in judge_end_to_end():
        print(
            f"job {row.job} on {row.partition}: {row.state}, {row.steps} steps; accounted "
            f"{render_duration(row.accounted_s)}, requested {render_duration(row.walltime_s)}; a step "
            f"{1000 * row.code_step_s:.1f} ms by the code, {1000 * row.run_step_s:.1f} ms measured"
        )
        for name, each in row.estimates.items():
            error = 100 * (each.value / row.accounted_s - 1)
            inside = "contains it" if each.low <= row.accounted_s <= each.high else "does not contain it"
            print(
                f"  after {name}: {render_duration(each.value)} ({render_interval(each, render_duration)}), "
                f"{error:+.0f} %, the interval {inside}"
            )


if __name__ == "__main__":
    print_end_to_end()
