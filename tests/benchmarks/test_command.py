"""``python -m benchmarks runs`` as it is called."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from benchmarks.__main__ import main
from benchmarks.runs import report, suites
from benchmarks.runs.cases import Plan, Suite


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["benchmarks", "runs", *map(str, words)])
        main()
        return capsys.readouterr().out

    return call


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    runs = pd.DataFrame([(n, who) for n in range(1, 13) for who in ("ann", "bob")], columns=["size", "user"])
    runs = runs.assign(walltime_s=2.0 * runs["size"], bytes=runs["size"] * 10**6)
    train, test = tmp_path / "a.csv", tmp_path / "b.csv"
    runs[::2].to_csv(train, index=False)
    runs[4:12].to_csv(test, index=False)
    return train, test


def test_any_two_tables(run: Callable[..., str], tables: tuple[Path, Path]) -> None:
    train, test = tables
    words = ("--train", train, "--test", test, "--target", "walltime_s", "--memory-target", "bytes", "--group", "user")
    told = json.loads(run(*words, "--json"))
    assert (told["train_rows"], told["rows_in_both"], told["time"]["rows"]) == (8, 4, 8)
    assert told["time"]["mape"] < 10
    assert told["memory"]["coverage"] == 100
    assert set(told["groups"]["user"]) == {"ann", "bob"}
    assert told["groups"]["user"]["bob"]["time"]["rows"] == 4


def test_tables_are_shown_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    judged = dict.fromkeys(report._JUDGED.values(), 12.5)
    report.print_tables(
        {
            "train_rows": 5,
            "rows_in_both": 1,
            "build_s": 1.0,
            "time": judged,
            "groups": {"user": {"ann": {"time": judged}}},
        }
    )
    out = capsys.readouterr().out
    assert "learned from 5 runs in 1.0 s; 1 rows" in out
    assert "user = ann" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train", "a.csv", "--test", "b.csv"], "--target missing"),
        (["--train", "a.csv", "--test", "b.csv", "--target", "speed"], "no column speed; it has size, user"),
        (["--train", "nowhere.csv", "--test", "b.csv", "--target", "walltime_s"], "there is no such file"),
        (["harp", "--train", "a.csv", "--test", "b.csv", "--target", "walltime_s"], "not both"),
        (["hrap"], "no set named 'hrap'; known sets: harp, c3o"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    words: list[str], message: str, run: Callable[..., str], tables: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tables[0].parent)
    with pytest.raises(SystemExit, match=message):
        run(*words)


def test_missing_measurements_are_told_in_a_sentence(
    run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETELL_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=r"error: no measurements in .*harp: set FORETELL_DATA to the folder"):
        run()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, data: Path) -> list[tuple[str, Plan]]:
    """Sets that take no time; what was run is noted."""
    asked: list[tuple[str, Plan]] = []

    def run_suite(suite: Suite, plan: Plan, *, jobs: int) -> dict[str, Any]:
        asked.append((suite.name, plan))
        intervals = {"rows": 10, "coverage": 90.0, "mean_width": 20.0, "median_width": 10.0}
        build = {"count": 1, "median_s": 0.5, "most_s": 0.5, "median_runs": 9}
        told = {"set": suite.name, "about": suite.about, "cases": 1, "repeats": {"one": 1}, "failed": ["one: no"]}
        return {**told, "figures": [], "intervals": intervals, "build": build}

    monkeypatch.setattr(suites, "run_suite", run_suite)
    monkeypatch.setenv("FORETELL_DATA", str(data))
    return asked


def test_all_sets_unless_some_are_named(run: Callable[..., str], quick: list[tuple[str, Plan]]) -> None:
    out = run("--repeats", 3)
    assert [name for name, _ in quick] == ["harp", "c3o", "scaleout", "lotaru", "stampede2", "sizey", "mlperf", "sia"]
    assert {plan.repeats for _, plan in quick} == {3}
    assert "not answered: one: no" in out
    quick.clear()
    told = json.loads(run("sia", "--json"))
    assert [name for name, _ in quick] == ["sia"]
    assert told["all"]["coverage_of_rows"] == 90.0


def test_results_are_kept_and_read_back(run: Callable[..., str], quick: list[tuple[str, Plan]], tmp_path: Path) -> None:
    run("harp", "--output", tmp_path / "kept")
    told = json.loads(run("c3o", "--output", tmp_path / "kept", "--json"))
    assert list(told["sets"]) == ["harp", "c3o"]
    assert [name for name, _ in quick] == ["harp", "c3o"]


def test_a_small_set_from_files_to_figures(
    run: Callable[..., str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETELL_DATA", str(data))
    told = json.loads(run("mlperf", "--json", "--jobs", 1))
    assert told["sets"]["mlperf"]["intervals"]["rows"] == 2
    assert told["sets"]["mlperf"]["failed"] == []
    assert told["sets"]["mlperf"]["figures"][0]["known"] == pytest.approx(50.0)
