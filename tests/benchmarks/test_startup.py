"""``python -m benchmarks startup`` without its store, which takes long to make."""

from pathlib import Path

import pytest
from benchmarks.startup import command
from benchmarks.startup.import_times import parse_import_times, sum_by_package

IMPORT_TIMES = """\
import time: self [us] | cumulative | imported package
import time:       100 |        100 |   numpy._core
import time:      2000 |       2100 | numpy
import time:       300 |        300 | json
Learned 5 runs.
"""


def test_import_times_are_read_and_added_up() -> None:
    times = parse_import_times(IMPORT_TIMES)
    assert [(one.name, one.own_s, one.total_s) for one in times] == [
        ("numpy", pytest.approx(0.002), pytest.approx(0.0021)),
        ("json", pytest.approx(0.0003), pytest.approx(0.0003)),
        ("numpy._core", pytest.approx(0.0001), pytest.approx(0.0001)),
    ]
    assert sum_by_package(times) == {"numpy": pytest.approx(0.0021), "json": pytest.approx(0.0003)}


def _write_program(folder: Path, name: str, text: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(text)


def test_commands_are_measured_in_processes_of_their_own(tmp_path: Path) -> None:
    _write_program(tmp_path, "short", "print('x')")
    _write_program(tmp_path, "large", "import time; data = bytearray(80_000_000); time.sleep(0.2)")
    ballast = bytearray(150_000_000)  # of this process, which a command must not be charged with
    figures = command.measure_commands(tmp_path, repeats=3, commands={"short": ("short",), "large": ("large",)})
    assert len(ballast) > figures["large"]["peak_memory_bytes"] > 80_000_000 > 2 * figures["short"]["peak_memory_bytes"]
    assert figures["large"]["shortest_s"] >= 0.2
    assert figures["large"]["shortest_s"] <= figures["large"]["median_s"] <= figures["large"]["longest_s"]
    assert figures["short"]["cpu_s"] > 0


def test_a_command_that_fails_says_so(tmp_path: Path) -> None:
    _write_program(tmp_path, "wrong", "raise SystemExit('no such app')")
    with pytest.raises(SystemExit, match="no such app"):
        command.measure_commands(tmp_path, repeats=1, commands={"wrong": ("wrong",)})


def test_goals_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    medians = {"foretell --help": 0.1, "optuna --help": 0.4, "predict": 0.31, "recommend": 0.2, "runs list": 0.3}
    figures = {
        name: {"median_s": s, "shortest_s": s, "longest_s": s, "cpu_s": s, "peak_memory_bytes": 90e6}
        for name, s in medians.items()
    }
    goals = command.list_goals(figures)
    assert [goal.name for goal in goals if not goal.met] == ["predict in multiples of foretell --help"]
    command.print_figures(figures, goals, repeats=9)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("│")[1].strip() for line in lines if "misses" in line] == [goals[1].name]
    assert max(map(len, lines)) <= 100


def test_optuna_is_asked_for_where_it_is_missing() -> None:
    with pytest.raises(SystemExit, match=r"no-such-program is not installed; run: .*\[bench\]"):
        command._find_installed_entry("no-such-program")


def test_imports_are_shown_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _write_program(tmp_path, "foretell", "import json")
    command._show_imports("foretell --help", tmp_path, as_json=False)
    out = capsys.readouterr().out
    assert "json.decoder" in out
    assert "By package" in out
