"""Logs stay within their limit: their first and last lines are kept."""

import os
from pathlib import Path

import pytest
from tests.contracts.runners import build_spec, poll_all, python_launch, wait_for

from foretell.core.app import Combine, Phase
from foretell.core.run import State
from foretell.schedulers.local import LocalRunner
from foretell.schedulers.run_files import cut_logs, free_middles, read_kept_phases

LIMIT = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten megabytes of numbered lines."""
    path = tmp_path / "stdout.log"
    path.write_text("".join(f"step {number:08d} took 0.5 s\n" for number in range(400_000)))
    return path


def test_first_and_last_lines_are_kept(log: Path) -> None:
    assert cut_logs(log.parent, limit_bytes=LIMIT) == ("stdout.log",)
    lines = log.read_text().splitlines()
    assert log.stat().st_size <= LIMIT + 100
    assert (lines[0], lines[-1]) == ("step 00000000 took 0.5 s", "step 00399999 took 0.5 s")
    assert sum("left out here" in line for line in lines) == 1
    assert all(line.endswith("took 0.5 s") or "left out here" in line for line in lines)


def test_cutting_again_changes_nothing_but_is_reported(log: Path) -> None:
    cut_logs(log.parent, limit_bytes=LIMIT)
    once = log.read_bytes()
    assert cut_logs(log.parent, limit_bytes=LIMIT) == ("stdout.log",)
    assert log.read_bytes() == once


def test_small_and_unlimited_logs_are_not_cut(log: Path) -> None:
    whole = log.read_bytes()
    assert cut_logs(log.parent, limit_bytes=20 << 20) == ()
    assert cut_logs(log.parent, limit_bytes=None) == ()
    assert log.read_bytes() == whole


def test_disk_space_is_freed_while_the_log_is_written(log: Path) -> None:
    with log.open("a") as file:
        free_middles(log.parent, limit_bytes=LIMIT)
        file.write("one more\n")
    assert log.stat().st_blocks * 512 <= 2 * LIMIT
    assert log.read_bytes().endswith(b"one more\n")
    cut_logs(log.parent, limit_bytes=LIMIT)
    assert b"\0" not in log.read_bytes()
    assert log.read_text().startswith("step 00000000")


def test_a_link_in_place_of_a_log_is_not_changed(log: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/stdout.log").symlink_to(log)
    os.link(log, tmp_path / "run/stderr.log")
    whole = log.read_bytes()
    free_middles(tmp_path / "run", limit_bytes=LIMIT)
    assert cut_logs(tmp_path / "run", limit_bytes=LIMIT) == ()
    assert log.read_bytes() == whole


def test_phases_of_all_lines_are_not_read_from_a_cut_log(log: Path) -> None:
    pattern = r"step (\d+)"
    phases = [Phase(name=how.value, pattern=pattern, combine=how) for how in Combine]
    values, complaints = read_kept_phases(phases, directory=log.parent, limit_bytes=LIMIT)
    assert values == {"first": 0.0, "last": 399_999.0}
    assert len(complaints) == 4
    assert all("raise 'log_limit'" in complaint for complaint in complaints)


def test_a_run_that_prints_without_end_neither_stops_nor_fills_the_disk(tmp_path: Path) -> None:
    code = "import time\nfor n in range(40): print(f'{n:07d}' * 30000, flush=True); time.sleep(0.02)"
    log = tmp_path / "stdout.log"
    largest = 0
    with LocalRunner() as runner:
        runner.start(build_spec({}), python_launch(tmp_path, code, log_limit_bytes=LIMIT))
        wait_for(log.exists)
        runs = []
        while runner.running:
            runs += runner.poll(0.05)
            largest = max(largest, log.stat().st_blocks * 512)
    assert [run.state for run in runs] == [State.COMPLETED]
    assert largest < 4 * LIMIT
    assert log.stat().st_size <= LIMIT + 100


def test_logs_of_a_failed_run_are_cut(tmp_path: Path) -> None:
    code = "import sys\nfor n in range(40): sys.stderr.write('x' * 99_999 + '\\n')\nsys.exit('the end')"
    with LocalRunner() as runner:
        runner.start(build_spec({}), python_launch(tmp_path, code, log_limit_bytes=LIMIT))
        (run,) = poll_all(runner)
    assert run.state is State.FAILED
    assert run.log_tail.endswith("the end")
    assert (tmp_path / "stderr.log").stat().st_size <= LIMIT + 100
