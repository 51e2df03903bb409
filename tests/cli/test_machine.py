import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretell.core.run import BENCH_FIGURES
from foretell.measure import machine_benchmark as bench_module
from foretell.measure.machine_benchmark import Work, measure_bench

TINY = Work(rounds=1, array_bytes=1 << 12, sweeps=1, file_bytes=1 << 20)
APP = """
name: tiny
command: ["true", "{n}"]
parameters:
  n: {fs: [1]}
"""


@pytest.fixture
def run(tmp_path: Path, foretell: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command line on a machine where every bench is quick and quiet."""
    quiet = replace(measure_bench(TINY, repeats=1), warnings=())
    monkeypatch.setattr(bench_module, "measure_bench", lambda work, repeats: replace(quiet, repeats=repeats))
    environment = {"FORETELL_CACHE": str(tmp_path / "cache")}
    return lambda *words: foretell(*words, folder=tmp_path, environment=environment)


def test_a_bench_is_shown_kept_and_written(run: Callable[..., Any], tmp_path: Path) -> None:
    assert "foretell machine bench" in run("machine", "show").out
    measured = run("machine", "bench", "--repeats", "7", "--output", "there/node.json", "--json")
    assert measured.record == json.loads((tmp_path / "there/node.json").read_text())
    assert measured.record["repeats"] == 7
    assert run("machine", "show", "--json").record["bench"] == measured.record
    assert all(name in run("machine", "show").out for name in BENCH_FIGURES)


def test_a_bench_for_people_says_that_it_is_kept(run: Callable[..., Any]) -> None:
    measured = run("machine", "bench")
    assert measured.code == 0
    assert "Kept" in measured.out


def test_runs_made_afterwards_carry_it(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "foretell.yaml").write_text(APP)
    figures = run("machine", "bench", "--json").record
    assert run("generate").code == 0
    (made,) = run("runs", "list", "--json").record["runs"]
    assert made["machine_bench_s"] == figures["bench_s"]
    assert made["machine_bench_version"] == figures["bench_version"]


@pytest.mark.parametrize("words", [["--repeats", "0"], ["--repeats", "many"]])
def test_repeats_that_are_none_are_refused(run: Callable[..., Any], words: list[str]) -> None:
    assert run("machine", "bench", *words).code == 2
