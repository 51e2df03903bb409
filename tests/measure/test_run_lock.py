"""The lock in a run's folder shows whether a process makes the run."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contracts.runners import wait_for

from foretell.measure.machine import build_owner, kill_abandoned
from foretell.measure.run_lock import LOCK, is_run_locked, take_run_lock


def test_one_process_has_it_at_a_time(tmp_path: Path) -> None:
    assert is_run_locked(tmp_path) is None  # no process was there
    lock = take_run_lock(tmp_path)
    assert lock is not None
    assert lock.is_new
    assert is_run_locked(tmp_path) is True
    assert take_run_lock(tmp_path) is None
    lock.free()
    assert is_run_locked(tmp_path) is False
    again = take_run_lock(tmp_path)
    assert again is not None
    assert not again.is_new
    again.free()


def test_the_kernel_frees_it(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from foretell.measure.run_lock import take_run_lock
lock = take_run_lock(Path({str(tmp_path)!r}))
import subprocess; subprocess.Popen(["sleep", "600"])
print("taken", flush=True); input()
"""
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stdout
        process.stdout.readline()
        assert is_run_locked(tmp_path) is True
        process.kill()
        process.wait()
        assert is_run_locked(tmp_path) is False  # its children do not hold it
        os.killpg(process.pid, 9)


def test_checking_it_does_not_block_others(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            is_run_locked(tmp_path)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            lock = take_run_lock(tmp_path)
            assert lock is not None
            lock.free()
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_a_link_in_its_place_is_removed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("years of work")
    (tmp_path / LOCK).symlink_to(target)
    assert is_run_locked(tmp_path) is None
    lock = take_run_lock(tmp_path)
    assert lock is not None
    lock.free()
    assert not (tmp_path / LOCK).is_symlink()
    assert target.read_text() == "years of work"


class TestWithoutLocks:
    """As on some parallel file systems."""

    @pytest.fixture(autouse=True)
    def _refuse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_descriptor: int, _kind: int) -> None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        monkeypatch.setattr(fcntl, "flock", refuse)

    def test_runs_are_made_without_locks(self, tmp_path: Path) -> None:
        lock = take_run_lock(tmp_path)
        assert lock is not None
        assert is_run_locked(tmp_path) is None
        lock.free()


@pytest.mark.parametrize("state", ["held", "free", "none"])
@pytest.mark.parametrize("without_lock", [True, False])
def test_only_abandoned_runs_are_killed(tmp_path: Path, state: str, without_lock: bool) -> None:
    owner = replace(build_owner(), token=f"test-{os.getpid()}")
    marks = {"FORETELL_RUN_ID": "r", "FORETELL_OWNER": owner.token, "FORETELL_RUN_DIR": str(tmp_path)}
    lock = take_run_lock(tmp_path) if state != "none" else None
    if lock is not None and state == "free":
        lock.free()
    with subprocess.Popen(["sleep", "600"], env={**os.environ, **marks}, start_new_session=True) as process:
        wait_for(lambda: bool(Path(f"/proc/{process.pid}/environ").read_bytes()))  # empty for a moment
        is_spared = state == "held" or (state == "none" and not without_lock)
        assert kill_abandoned("r", owner, without_lock=without_lock) == (0 if is_spared else 1)
        assert (process.poll() is None) or not is_spared
        process.kill()
    if lock is not None and state == "held":
        lock.free()
