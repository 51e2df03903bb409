"""Cores are shared by no two runs of this user, whichever process starts them."""

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
    """Of two processes, with four cores each may use."""
    return [CpuPool(range(100, 104), locks=CoreLocks(tmp_path)) for _ in range(2)]


def test_what_one_has_lent_another_cannot(pools: list[CpuPool]) -> None:
    ours, theirs = pools
    assert ours.lend(3) == (100, 101, 102)
    assert not theirs.has_room(2)
    assert theirs.waits_for_others
    assert theirs.lend(1) == (103,)
    assert (ours.cores_elsewhere, theirs.cores_elsewhere) == (1, 3)
    ours.give_back((100, 101, 102))
    assert theirs.has_room(3)


def test_what_was_found_free_is_kept_until_it_is_dropped(pools: list[CpuPool]) -> None:
    ours, theirs = pools
    assert ours.has_room(4)
    assert not theirs.has_room(1)
    ours.drop_reserved()
    assert theirs.lend(4) == (100, 101, 102, 103)


def test_a_try_in_vain_takes_nothing(pools: list[CpuPool]) -> None:
    ours, theirs = pools
    ours.lend(2)
    assert not theirs.has_room(3)
    assert ours.has_room(2)


def test_a_killed_process_has_no_cores(tmp_path: Path) -> None:
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


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = tmp_path / "runtime"
    (runtime / "foretell").mkdir(parents=True)
    (runtime / "foretell").chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert find_lock_folder() != runtime / "foretell"
    (runtime / "foretell").chmod(0o700)
    assert find_lock_folder() == runtime / "foretell"


def test_nor_is_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "foretell").symlink_to(tmp_path / "theirs")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert find_lock_folder() != tmp_path / "foretell"
