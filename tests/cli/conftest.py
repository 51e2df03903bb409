import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

# One configuration fails (n=5) and one exceeds its limit (n=40).
APP = """
name: tiny
shell: |
  test "$PARAM_n" = 5 && { echo "no five today" >&2; exit 3; }
  test "$PARAM_n" = 40 && sleep 60
  sleep "$(printf '0.%03d' $((PARAM_n * 4)))"
parameters:
  n: {sd: [1, 2, 3, 4, 5, 6], fs: [20, 24, 28, 32, 40], target: {from: 10, to: 60}}
time_limit: 2s
"""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, foretell: Run) -> Path:
    """A folder with an app that was generated and built; look, but do not write."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "foretell.yaml").write_text(APP)
    for words in (["generate", "--json"], ["build", "--json"]):
        outcome = foretell(*words, folder=folder)
        assert outcome.code == 0, outcome.err
        (folder / f"{words[0]}.json").write_text(outcome.out)
    return folder


@pytest.fixture
def workspace(built: Path, tmp_path: Path) -> Path:
    """The same, to write in."""
    return shutil.copytree(built, tmp_path / "workspace")


@pytest.fixture
def run(workspace: Path, foretell: Run) -> Run:
    return partial(foretell, folder=workspace)
