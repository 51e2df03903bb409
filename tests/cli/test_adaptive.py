"""``foretell generate --adaptive`` as its users see it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Foretell = Callable[..., Any]

APP = """
name: quick
command: ["true", "{n}"]
parameters: {n: {sd: [1, 2], fs: [5, 6]}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "foretell.yaml").write_text(APP)
    return tmp_path


def test_a_dry_run_says_what_comes_first(folder: Path, foretell: Foretell) -> None:
    plan = foretell("generate", "--adaptive", "--dry-run", "--json", folder=folder).record
    assert plan["runs"] + plan["undecided"] == 4
    assert plan["specs"][0]["parameters"] == {"n": 1}
    assert "to make" in foretell("generate", "--adaptive", "--dry-run", folder=folder).out


def test_it_says_why_it_ended(folder: Path, foretell: Foretell) -> None:
    outcome = foretell("generate", "--adaptive", "--jobs", "1", folder=folder)
    assert (outcome.code, "Ended: " in outcome.out) == (0, True)
    result = foretell("generate", "--adaptive", "--json", folder=folder).record
    assert (result["completed"], result["ending"]) == (0, "nothing_left")
    assert "nothing needs to run" in foretell("generate", "--until", "5%", "--dry-run", folder=folder).out


def test_a_width_that_is_none_is_refused(folder: Path, foretell: Foretell) -> None:
    outcome = foretell("generate", "--until", "wide", folder=folder)
    assert outcome.code == 1
    assert "--until" in outcome.err
    assert "wide" in outcome.err
