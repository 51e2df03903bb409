"""A job of a real cluster looked at while it runs."""

import sys
import time
from pathlib import Path

import pytest
from tests.slurm.cluster import Cluster

import foretell
from foretell.core.errors import SchedulerError
from foretell.core.observation import Resource

pytestmark = pytest.mark.slurm

# Busy for half of the time, by the clock, so that the pattern stays on a busy machine.
WORK = """
import time
while True:
    while time.monotonic() % 0.4 < 0.2: pass
    time.sleep(0.4 - time.monotonic() % 0.4)
"""


@pytest.fixture
def job(slurm_environment: Cluster, tmp_path: Path) -> str:
    script = tmp_path / "job.sh"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{WORK}"\n')
    answer = slurm_environment.run("sbatch", "--parsable", f"--output={tmp_path}/log", "--time=5", str(script))
    return answer.strip()


def test_a_running_job_is_looked_at(slurm_environment: Cluster, job: str, tmp_path: Path) -> None:
    _await(slurm_environment, job, "RUNNING")
    seen = foretell.observe(job=job, duration_s=4.0, store=tmp_path / "store.db", folder=tmp_path)
    assert seen.subject == f"job {job}"
    compute = seen.recorded.series[Resource.COMPUTE].values
    assert 0.1 < compute.mean() < 0.9
    assert Path(seen.path).exists()


def test_a_job_that_has_ended_is_refused(slurm_environment: Cluster, job: str, tmp_path: Path) -> None:
    _await(slurm_environment, job, "RUNNING")
    slurm_environment.run("scancel", job)
    _await(slurm_environment, job, "CANCELLED")
    with pytest.raises(SchedulerError, match=job):
        foretell.observe(job=job, duration_s=1.0, store=tmp_path / "store.db", folder=tmp_path)


def _await(cluster: Cluster, job: str, state: str) -> None:
    until = time.monotonic() + 60
    while f"JobState={state}" not in cluster.run("scontrol", "show", "job", job):
        assert time.monotonic() < until
        time.sleep(0.1)
