"""Samples Slurm jobs; small programs replace ``scontrol`` and ``srun``."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foretell.core.errors import SchedulerError
from foretell.schedulers.slurm.observe_job import find_job_processes, parse_pids, watch_job

HEAD = "PID      JOBID    STEPID   LOCALID GLOBALID"
# Runs the command after its options, on a named node.
SRUN = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nSLURMD_NODENAME=n1 exec "$@"\n'
NOT_HERE = "echo 'slurm_load: Job not running here' >&2; exit 1"

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)

    def install(name: str, text: str) -> None:
        (tmp_path / name).write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    return install


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "100"])
    yield process.pid
    process.kill()
    process.wait()


def list_pids(*pids: int) -> str:
    return "\n".join([HEAD, *(f"{pid}     7       0        0       0" for pid in pids)])


def test_the_extern_step_is_not_a_process_of_the_job() -> None:
    answer = f"{HEAD}\n11 7 extern 0 0\n12 7 batch 0 0\n-1 7 0 - -\n13 7 0 1 1\n"
    assert parse_pids(answer) == {12, 13}


def test_processes_on_this_node_are_sampled(install: Install, sleeper: int) -> None:
    install("scontrol", f"echo '{list_pids(sleeper)}'")
    assert find_job_processes("7") == [sleeper]
    assert watch_job("7", longest_s=0.1).recorded.processes == 1


def test_other_nodes_are_sampled_through_a_step(install: Install, sleeper: int) -> None:
    install("scontrol", f'if [ "$3" != n1 ]; then {NOT_HERE}; fi; echo "{list_pids(sleeper)}"')
    install("srun", SRUN)
    watched = watch_job("7", interval_s=0.01, longest_s=0.1)
    assert watched.recorded.interval_s == 0.01
    assert watched.recorded.processes == 1
    assert watched.usage.elapsed_s >= 0.1


def test_an_unknown_job_is_reported_by_srun(install: Install) -> None:
    install("scontrol", NOT_HERE)
    install("srun", "echo 'srun: error: Unable to confirm allocation for job 9: Invalid job id specified' >&2; exit 1")
    with pytest.raises(SchedulerError, match="Invalid job id"):
        watch_job("9")


def test_a_job_without_processes_is_an_error(install: Install) -> None:
    install("scontrol", f"echo '{HEAD}'")
    install("srun", SRUN)
    with pytest.raises(SchedulerError, match="job 7 has no process on this node"):
        watch_job("7")


def test_unexpected_output_of_a_node_is_quoted(install: Install) -> None:
    install("scontrol", NOT_HERE)
    install("srun", "echo welcome")
    with pytest.raises(SchedulerError, match="which printed: welcome; is Foretell installed there"):
        watch_job("7")


def test_without_slurm_is_an_error(install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match="log in to a machine of a Slurm cluster"):
        watch_job("7")
