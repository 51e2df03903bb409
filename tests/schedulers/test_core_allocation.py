"""No two runs of a user share a core, also if different processes start them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contracts.runners import wait_for

from foretell.schedulers.core_allocation import CoreLocks, CpuPool, find_lock_folder


@pytest.fixture
def pools(tmp_path: Path) -> list[CpuPool]:
    """Pools of two processes that may use the same four cores."""
    return [CpuPool(range(100, 104), locks=CoreLocks(tmp_path)) for _ in range(2)]


def test_cores_of_one_process_are_not_given_to_another(pools: list[CpuPool]) -> None:
    ours, theirs = pools
    assert ours.acquire(3) == (100, 101, 102)
    assert not theirs.has_capacity(2)
    assert theirs.waits_for_others
    assert theirs.acquire(1) == (103,)
    assert (ours.cores_used_elsewhere, theirs.cores_used_elsewhere) == (1, 3)
    ours.release((100, 101, 102))
    assert theirs.has_capacity(3)


def test_free_cores_stay_reserved_until_dropped(pools: list[CpuPool]) -> None:
    ours, theirs = pools
    assert ours.has_capacity(4)
    assert not theirs.has_capacity(1)
    ours.drop_reserved()
    assert theirs.acquire(4) == (100, 101, 102, 103)


def test_a_failed_attempt_locks_nothing(pools: list[CpuPool]) -> None:
    ours, theirs = pools
    ours.acquire(2)
    assert not theirs.has_capacity(3)
    assert ours.has_capacity(2)


def test_a_killed_process_releases_its_cores(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from foretell.schedulers.core_allocation import CoreLocks; "
        "locks = CoreLocks(Path(sys.argv[1])); print(locks.take(100), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().strip() == "True"
        locks = CoreLocks(tmp_path)
        assert not locks.take(100)
        os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: locks.take(100))


def test_a_lock_folder_writable_by_others_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = tmp_path / "runtime"
    (runtime / "foretell").mkdir(parents=True)
    (runtime / "foretell").chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert find_lock_folder() != runtime / "foretell"
    (runtime / "foretell").chmod(0o700)
    assert find_lock_folder() == runtime / "foretell"


def test_a_linked_lock_folder_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "foretell").symlink_to(tmp_path / "theirs")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert find_lock_folder() != tmp_path / "foretell"
