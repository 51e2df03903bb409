"""The sample of a job becomes part of its run, and replaces accounting where there is none."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.slurm.fixtures import Slurm

from foretell.core.app import Submission
from foretell.core.batch import Job
from foretell.core.run import Allocation, Launch, Machine, Run, RunSpec, State, Usage
from foretell.measure.job_recorder import Sample, write_sample
from foretell.schedulers.slurm.cluster import NodeGroup
from foretell.schedulers.slurm.finished_runs import Task, build_run
from foretell.schedulers.slurm.runner import SlurmRunner

MEGABYTE = 2**20
SEEN = Sample(
    usage=Usage(elapsed_s=9.0, cpu_s=5.0, peak_memory_bytes=700, context_switches=3, gpu_utilisation=0.5),
    machine=Machine(hostname="seen", cpu_mhz=2000.0, memory_bytes=64, gpu_model="A GPU", extra={"bench_s": 0.5}),
)
ACCOUNTED = Job(
    id="7_0",
    word="COMPLETED",
    state=State.COMPLETED,
    allocated=Allocation(),
    usage=Usage(elapsed_s=11.0, cpu_s=4.0, peak_memory_bytes=900),
)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    write_sample(tmp_path, SEEN)
    return Task(spec=RunSpec(app="app", parameters={}), launch=Launch(argv=("true",), run_directory=str(tmp_path)))


def test_elapsed_is_from_accounting_and_the_rest_from_the_sampler(task: Task) -> None:
    usage = build_run(task, ACCOUNTED, log=Path("absent")).usage
    assert usage == replace(SEEN.usage, elapsed_s=11.0, peak_memory_bytes=900)


def test_without_accounting_usage_is_from_the_sampler(task: Task) -> None:
    """Also for a job that was killed before its script could record its end."""
    killed = replace(ACCOUNTED, usage=None, state=State.TIMED_OUT)
    assert build_run(task, killed, log=Path("absent")).usage == SEEN.usage


def test_the_node_is_described_by_the_sampler(task: Task) -> None:
    node = NodeGroup(count=1, up=1, cores=8, memory_bytes=60, gpus=2, gpu_model="gpu")
    machine = build_run(task, ACCOUNTED, log=Path("absent"), node=node).machine
    assert (machine.cores, machine.gpus) == (8, 2)
    assert (machine.cpu_mhz, machine.memory_bytes, machine.gpu_model) == (2000.0, 64, "A GPU")
    assert machine.extra == {"bench_s": 0.5}


def test_sampled_jobs(slurm: Slurm, tmp_path: Path) -> None:
    code = "import time; x = b'1' * (300 << 20); time.sleep(0.3); print('here')"
    launch = Launch(argv=(sys.executable, "-c", code), run_directory=str(tmp_path / "run"), time_limit_s=60)
    runner = SlurmRunner(Submission(sample=True), directory=tmp_path / "batches", min_interval_s=0.5)
    with runner:
        runner.start(RunSpec(app="app", parameters={}), launch)
        runs: list[Run] = []
        while not runs:
            runs = runner.poll(timeout_s=60)
    assert (runs[0].state, runs[0].exit_code) == (State.COMPLETED, 0)
    assert runs[0].usage.peak_memory_bytes >= 300 * MEGABYTE
    assert runs[0].usage.context_switches is not None
    assert "physical_cores" in runs[0].machine.extra
    assert (tmp_path / "run/stdout.log").read_text() == "here\n"
