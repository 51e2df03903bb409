"""200 runs on a real cluster, compared with a bare ``sbatch --array`` of the same commands; goal: 1.15 times.

Both are over when accounting knows the end of all 200. The cluster is started for this, on this machine.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from tests.slurm.cluster import Cluster

RUNS, SECONDS, REPEATS = 200, 5, 3
_APP = f"""\
name: sleeper
command: [sleep, "{{seconds}}"]
parameters: {{seconds: {{values: [{SECONDS}]}}}}
repetitions: {RUNS}
resources: {{memory: [50MB]}}
"""
# Notes when it is called, then is the real one.
_WITNESS = """#!/bin/sh
date +%s.%N >>"$CALLS"
exec {program} "$@"
"""


def run() -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as folder,
        _start_cluster(Path(folder)) as environment,
    ):
        bare_s, ours_s = [], []
        calls: list[float] = []
        for repeat in range(REPEATS):
            bare_s.append(_time_bare(environment))
            ours_s.append(_time_ours(Path(folder) / f"ours-{repeat}", environment))
            calls += _read_gaps(Path(folder) / f"ours-{repeat}" / "calls")
    return {
        "runs": RUNS,
        "seconds of each": SECONDS,
        "bare array s": statistics.median(bare_s),
        "foretell generate --wait s": statistics.median(ours_s),
        "ratio": statistics.median(ours / bare for ours, bare in zip(ours_s, bare_s, strict=True)),
        "largest ratio": max(ours / bare for ours, bare in zip(ours_s, bare_s, strict=True)),
        "goal ratio": 1.15,
        "calls of sacct a campaign": (len(calls) + REPEATS) / REPEATS,
        "shortest time between two s": min(calls, default=float("nan")),
    }


@contextmanager
def _start_cluster(folder: Path) -> Iterator[Mapping[str, str]]:
    cluster = Cluster(folder / "cluster")
    cluster.folder.mkdir()
    try:
        cluster.start()
        yield {**os.environ, **cluster.environment}
    finally:
        cluster.remove()


def _time_bare(environment: Mapping[str, str]) -> float:
    started = time.perf_counter()
    options = ["--parsable", f"--array=0-{RUNS - 1}", "--mem=50M", "--output=/dev/null", f"--wrap=sleep {SECONDS}"]
    job_id = _ask(["sbatch", *options], environment).strip()
    while _ask(["sacct", "-nXP", "-j", job_id, "-o", "State"], environment).split().count("COMPLETED") < RUNS:
        time.sleep(1.0)
    return time.perf_counter() - started


def _time_ours(folder: Path, environment: Mapping[str, str]) -> float:
    folder.mkdir()
    (folder / "foretell.yaml").write_text(_APP)
    witness = folder / "bin" / "sacct"
    witness.parent.mkdir()
    witness.write_text(_WITNESS.format(program=shutil.which("sacct")))
    witness.chmod(0o755)
    seen = {**environment, "CALLS": str(folder / "calls"), "PATH": f"{witness.parent}:{environment['PATH']}"}
    started = time.perf_counter()
    command = [sys.executable, "-m", "foretell", "generate", "--runner", "slurm", "--wait", "--json"]
    answer = subprocess.run(command, cwd=folder, env=seen, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if answer.returncode or f'"completed": {RUNS}' not in answer.stdout:
        sys.exit(f"not all runs completed:\n{answer.stdout}\n{answer.stderr}")
    return seconds


def _ask(command: list[str], environment: Mapping[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def _read_gaps(path: Path) -> list[float]:
    moments = [float(line) for line in path.read_text().split()]
    return [later - earlier for earlier, later in pairwise(moments)]
