"""What sbatch answers, and what is made of its refusals."""

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


def hand_over(script: Path) -> str:
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
def test_a_quota_of_jobs_may_pass(fake_slurm: FakeSlurm, script: Path, said: str) -> None:
    fake_slurm.set_fault("refuse", said)
    with pytest.raises(QuotaError, match="no more jobs may be submitted until some have ended") as caught:
        hand_over(script)
    assert caught.value.transient


@pytest.mark.parametrize("word", ["AssocMaxWallDurationPerJobLimit", "QOSMaxCpuPerJobLimit", "AssocGrpCPUMinutesLimit"])
def test_any_other_limit_does_not(fake_slurm: FakeSlurm, script: Path, word: str) -> None:
    fake_slurm.set_fault("refuse", f"sbatch: error: {word}\n{POLICY}")
    with pytest.raises(SchedulerError, match="ask for less") as caught:
        hand_over(script)
    assert not isinstance(caught.value, QuotaError)
    assert not caught.value.transient


@pytest.mark.parametrize(
    ("said", "remedy", "transient"),
    [
        (f"{FAILED} Invalid account or account/partition combination specified", "--account", False),
        (f"{FAILED} Requested node configuration is not available", "ask for less", False),
        (f"{FAILED} Unable to contact slurm controller (connect failure)", "", True),
        (f"{FAILED} Socket timed out on send/recv operation", "", True),
    ],
)
def test_refusals_and_silence(fake_slurm: FakeSlurm, script: Path, said: str, remedy: str, transient: bool) -> None:
    fake_slurm.set_fault("refuse", said)
    with pytest.raises(SchedulerError) as caught:
        hand_over(script)
    assert said.removeprefix("sbatch: error: ") in str(caught.value)
    assert remedy in str(caught.value)
    assert caught.value.transient == transient


def test_jobs_have_the_user_s_environment_not_ours(
    fake_slurm: FakeSlurm, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    hand_over(script)
    fake_slurm.wait_until_idle()
    told = (script.parent / "log").read_text().splitlines()
    assert "LC_ALL=C" in told
    assert not [line for line in told if line.startswith(("SLURM_TIME_FORMAT=", "SLURM_BITSTR_LEN="))]


def test_only_the_batch_s_own_submitters_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
