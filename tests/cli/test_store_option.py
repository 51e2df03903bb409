"""Only commands that store something make a store; all others say which one may have been meant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

READING = [
    ["predict", "tiny", "--set", "n=3"],
    ["recommend", "tiny", "--set", "n=3"],
    ["explain", "tiny", "--set", "n=3"],
    ["build", "tiny"],
    ["verify", "tiny", "--set", "n=3"],
    ["report", "tiny", "--output", "report.html"],
    ["status", "tiny"],
    ["cancel", "tiny"],
    ["runs", "list", "tiny"],
    ["runs", "show", "abc"],
    ["runs", "export", "tiny"],
    ["runs", "delete", "tiny", "--yes"],
    ["history", "apps"],
    ["history", "group"],
    ["history", "report"],
]


@pytest.mark.parametrize("words", READING, ids=lambda words: " ".join(words[:2]))
def test_a_mistyped_store_is_named_with_the_one_that_was_meant_and_not_made(
    tmp_path: Path, foretell: Callable[..., Any], words: Any
) -> None:
    (tmp_path / "runs.csv").write_text("n,took\n1,1\n2,2\n")
    made = foretell(
        "runs", "import", "runs.csv", "--app", "tiny", "--elapsed", "took", "--store", "mine.db", folder=tmp_path
    )
    assert made.code == 0, made.err
    outcome = foretell(*words, "--store", "mien.db", folder=tmp_path)
    assert outcome.code == 1
    assert "mien.db: there is no such file" in outcome.err
    assert f"Did you mean '{tmp_path / 'mine.db'}'?" in outcome.err
    assert not (tmp_path / "mien.db").exists()


def test_the_usual_store_is_the_one_that_may_have_been_meant(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    (tmp_path / "runs.csv").write_text("n,took\n1,1\n2,2\n")
    foretell("runs", "import", "runs.csv", "--app", "tiny", "--elapsed", "took", folder=tmp_path)
    outcome = foretell("runs", "list", "tiny", environment={"FORETELL_STORE": "elsewhere/x.db"}, folder=tmp_path)
    assert f"Did you mean '{tmp_path / '.foretell' / 'store.db'}'?" in outcome.err
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("words", "code"), [(["history", "apps"], 0), (["runs", "list", "tiny"], 1), (["predict", "tiny"], 1)]
)
def test_without_any_store_there_is_nothing_yet_and_nothing_is_made(
    tmp_path: Path, foretell: Callable[..., Any], words: list[str], code: int
) -> None:
    outcome = foretell(*words, folder=tmp_path)
    assert (outcome.code, "there is no such file" in outcome.err) == (code, False)
    assert not (tmp_path / ".foretell").exists()


@pytest.mark.parametrize("address", ["new.db", "sqlite:///new.db"])
def test_a_plan_for_a_store_that_is_still_to_be_made_makes_none(
    tmp_path: Path, foretell: Callable[..., Any], address: str
) -> None:
    (tmp_path / "foretell.yaml").write_text("name: tiny\nshell: 'true'\nparameters:\n  n: {sd: [1], fs: [2]}\n")
    outcome = foretell("generate", "--dry-run", "--store", address, folder=tmp_path)
    assert outcome.code == 0, outcome.err
    assert not (tmp_path / "new.db").exists()
