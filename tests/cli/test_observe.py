"""Jobs looked at from the command line: what they consume, how they end, and what cannot be looked at."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

CYCLE = """
import sys, time
print("hello")
begin = time.monotonic()
for turn in range(16):
    while time.monotonic() < begin + 0.25 * turn + 0.1: pass
    time.sleep(max(0.0, begin + 0.25 * (turn + 1) - time.monotonic()))
sys.exit(int(sys.argv[1]))
"""  # by the clock, so that others on the machine do not change its period


def observe_cycle(foretell: Run, folder: Path, *options: str, code: str = "0") -> Any:
    command = [sys.executable, "-I", "-S", "-c", CYCLE, code]
    return foretell("observe", "--interval", "10ms", *options, "--", *command, folder=folder)


def observe_until_found(foretell: Run, folder: Path, *options: str) -> tuple[Any, Path]:
    """An observation with a cycle, and its folder; load of the machine may hide it, but not each time."""
    for attempt in range(4):
        there = folder / str(attempt)
        there.mkdir()
        outcome = observe_cycle(foretell, there, *options)
        (kept,) = (there / ".foretell/observations").glob("*.json")
        if json.loads(kept.read_text())["cycles"]["compute"]["cycle"] is not None:
            break
    return outcome, there


def test_a_cycle_is_shown_plotted_and_stored(foretell: Run, tmp_path: Path) -> None:
    outcome, tmp_path = observe_until_found(foretell, tmp_path, "--plot", "plots/cycle.svg")
    assert outcome.code == 0
    assert "Time line" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100
    assert (tmp_path / "plots/cycle.svg").read_text().startswith("<?xml")
    listed = foretell("runs", "list", "observe", "--json", folder=tmp_path).record
    (run,) = listed["runs"]
    assert run["cpu_s"] > 0.2
    assert run["phase_period"] > 0.2
    (kept,) = (tmp_path / ".foretell/observations").glob("*.json")
    record = json.loads(kept.read_text())
    assert set(record["recorded"]["series"]) == {"compute", "transmit", "receive"}


def test_json_has_the_cycle_and_nothing_else_on_stdout(foretell: Run, tmp_path: Path) -> None:
    record = observe_until_found(foretell, tmp_path, "--json")[0].record
    assert set(record["resources"]) == {"compute", "transmit", "receive"}
    cycle = record["resources"]["compute"]["cycle"]
    assert cycle is not None, record
    assert cycle["period_s"] > 0.2
    assert cycle["burst_s"] > 0.02
    assert record["exit_code"] == 0
    assert record["sampling_share"] < 0.5


def test_an_exit_code_is_passed_on(foretell: Run, tmp_path: Path) -> None:
    outcome = observe_cycle(foretell, tmp_path, code="3")
    assert outcome.code == 3
    assert "failed (exit code 3)" in outcome.out
    killed = foretell("observe", "--", "sh", "-c", "kill -9 $$", folder=tmp_path)
    assert killed.code == 137


def test_a_job_that_ends_at_once_is_no_trouble(foretell: Run, tmp_path: Path) -> None:
    outcome = foretell("observe", "--plot", "x.png", "--", "true", folder=tmp_path)
    assert outcome.code == 0
    assert "no cycle found" in outcome.out
    assert "sample" in outcome.out


def test_words_of_the_command_are_the_commands(foretell: Run, tmp_path: Path) -> None:
    outcome = foretell("observe", "sh", "-c", "exit 4", folder=tmp_path)
    assert outcome.code == 4


def test_a_process_is_sampled_for_a_while(foretell: Run, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        outcome = foretell("observe", "--pid", str(process.pid), "--duration", "0.2s", folder=tmp_path)
        process.kill()
    assert outcome.code == 0
    assert f"process {process.pid}" in outcome.out
    assert "no cycle found" in outcome.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "exactly one"),
        (("--pid", "1", "--job", "2"), "pid and job"),
        (("--pid", str(2**22 + 5)), "no process named"),
        (("--pid", str(2**40)), "no process named"),
        (("--pid", "1", "--pid", str(2**22 + 5)), f"no process named '{2**22 + 5}'"),
        (("--interval", "1ms", "--", "true"), "5ms to 1s"),
        (("--interval", "soon", "--", "true"), "found 'soon'; expected a duration; write for example"),
        (("--plot", "x.gif", "--", "true"), "must end in .png or .svg"),
        (("--plot", "/proc/no/x.png", "--", "touch", "ran"), "this folder cannot be made"),
        (("--store", "/proc/no/x.db", "--", "touch", "ran"), "cannot be made"),
        (("--", "no-such-program"), "was not found"),
        (("--", "/"), "cannot be run"),
    ],
)
def test_mistakes_are_reported(foretell: Run, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    outcome = foretell("observe", *words, folder=tmp_path)
    assert outcome.code == 1
    assert said in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "ran").exists()


def test_a_plot_that_is_a_folder_is_refused_before_the_job_runs(foretell: Run, tmp_path: Path) -> None:
    (tmp_path / "x.png").mkdir()
    outcome = foretell("observe", "--plot", "x.png", "--", "touch", "ran", folder=tmp_path)
    assert outcome.code == 1
    assert "is a folder" in outcome.err
    assert not (tmp_path / "ran").exists()


TYPED = """
import signal, sys, time
heard = 0
def hear(*_):
    global heard
    heard += 1
signal.signal(signal.SIGINT, hear)
print("ready", flush=True)
end = time.monotonic() + 60
while not heard and time.monotonic() < end: time.sleep(0.01)
time.sleep(0.5)
print(f"heard {heard}", flush=True)
"""


def test_keys_of_a_terminal_reach_the_command_once(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(tmp_path)
        words = [sys.executable, "-m", "foretell", "observe", "--", sys.executable, "-c", TYPED]
        os.execv(sys.executable, words)
    said, typed = b"", False
    with suppress(OSError):  # the terminal ends with its last process
        while some := os.read(terminal, 65536):
            said += some
            if b"ready" in said and not typed:
                typed = os.write(terminal, b"\x03") > 0
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said
    assert b"heard 1" in said


def test_it_ends_with_its_command_where_ends_of_children_are_ignored(tmp_path: Path) -> None:
    ignore = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    words = [sys.executable, "-m", "foretell", "observe", "--", "sh", "-c", "exit 4"]
    done = subprocess.run([sys.executable, "-c", ignore, *words], cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 4, done.stderr
