"""Commands import what they use, and say what is missing where an extra is not installed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foretell.cli import _output

_LIST = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
_HEAVY = {"alembic", "matplotlib", "pandas", "pyarrow", "sqlalchemy", "torch", "yaml"}


def _list_modules(*words: str, folder: Path) -> set[str]:
    code = f"{_LIST} sys.argv = {['foretell', *words]!r}; from foretell.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    return set(done.stderr.splitlines()[-1].split())


def test_listing_runs_needs_neither_numpy_nor_a_database_library(built: Path, tmp_path: Path) -> None:
    loaded = _list_modules("runs", "list", "tiny", "--store", str(built / ".foretell/store.db"), folder=tmp_path)
    assert loaded & {"foretell.stores.sqlite_reader", "sqlite3"}
    assert not loaded & {*_HEAVY, "numpy", "sklearn", "scipy"}


def test_a_missing_extra_for_plots_is_named_before_anything_runs(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_output, "find_spec", lambda _: None)
    for words in (["explain", "--plot", "x.png"], ["build", "--plots", "x"], ["report"]):
        refused = run(*words)
        assert (refused.code, "pip install 'foretell[plots]'" in refused.err) == (1, True)


def test_a_model_is_built_without_plots_where_nothing_can_draw(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_output, "find_spec", lambda _: None)
    built = run("build")
    assert built.code == 0
    assert "Plots need: pip install 'foretell[plots]'" in built.err
    assert run("build", "--json").record["plots"] == []
