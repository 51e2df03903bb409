"""Submits scripts and explains refusals of sbatch."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.fake_slurm.cluster import FakeSlurm

from foretell.core.errors import SchedulerError
from foretell.schedulers.slurm.submit import MARK, QuotaError, stop_submitters, submit

FAILED = "sbatch: error: Batch job submission failed:"
POLICY = f"{FAILED} Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/sh\nenv\n")
    return path


def submit_script(script: Path) -> str:
    return submit(script, batch_id="b", output=f"{script.parent}/log")


@pytest.mark.parametrize(
    "said",
    [
        f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}",
        f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}",
        f"sbatch: error: AssocGrpSubmitJobsLimit\n{POLICY}",
        POLICY,
    ],
)
def test_a_submit_limit_is_transient(fake_slurm: FakeSlurm, script: Path, said: str) -> None:
    fake_slurm.set_fault("refuse", said)
    with pytest.raises(QuotaError, match="the limit of submitted jobs is reached until some have ended") as caught:
        submit_script(script)
    assert caught.value.transient


@pytest.mark.parametrize("word", ["AssocMaxWallDurationPerJobLimit", "QOSMaxCpuPerJobLimit", "AssocGrpCPUMinutesLimit"])
def test_other_limits_are_not_transient(fake_slurm: FakeSlurm, script: Path, word: str) -> None:
    fake_slurm.set_fault("refuse", f"sbatch: error: {word}\n{POLICY}")
    with pytest.raises(SchedulerError, match="request less") as caught:
        submit_script(script)
    assert not isinstance(caught.value, QuotaError)
    assert not caught.value.transient


@pytest.mark.parametrize(
    ("said", "remedy", "transient"),
    [
        (f"{FAILED} Invalid account or account/partition combination specified", "--account", False),
        (f"{FAILED} Requested node configuration is not available", "request less", False),
        (f"{FAILED} Unable to contact slurm controller (connect failure)", "", True),
        (f"{FAILED} Socket timed out on send/recv operation", "", True),
    ],
)
def test_refusals_and_timeouts(fake_slurm: FakeSlurm, script: Path, said: str, remedy: str, transient: bool) -> None:
    fake_slurm.set_fault("refuse", said)
    with pytest.raises(SchedulerError) as caught:
        submit_script(script)
    assert said.removeprefix("sbatch: error: ") in str(caught.value)
    assert remedy in str(caught.value)
    assert caught.value.transient == transient


def test_jobs_have_the_users_environment(fake_slurm: FakeSlurm, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    submit_script(script)
    fake_slurm.wait_until_idle()
    printed = (script.parent / "log").read_text().splitlines()
    assert "LC_ALL=C" in printed
    assert not [line for line in printed if line.startswith(("SLURM_TIME_FORMAT=", "SLURM_BITSTR_LEN="))]


def test_only_submitters_of_the_batch_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\nsleep 600 & wait\n")
    program.chmod(0o755)
    processes = {}
    for batch_id in ("one", "two"):
        monkeypatch.setenv(MARK, batch_id)
        processes[batch_id] = subprocess.Popen([program], start_new_session=True)
    try:
        assert stop_submitters("one") == 1
        assert processes["one"].poll() is not None
        until = time.monotonic() + 10
        while list_session(processes["one"].pid):  # killed, but the machine may be busy
            assert time.monotonic() < until
            time.sleep(0.01)
        assert list_session(processes["two"].pid)
    finally:
        for process in processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def list_session(pid: int) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found
