"""The work folder can be elsewhere than next to the app file."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from foretell.apps.workspace import batch_directory, run_directory
from foretell.core.app import App
from foretell.core.private_files import default_store

APP = "name: w\ncommand: [echo, '{n}']\nparameters: {n: {values: [1, 2, 3, 4, 5]}}\n"


@pytest.fixture
def folder(public_folder: Path) -> Path:
    """An app in a read-only folder."""
    folder = public_folder / "app"
    folder.mkdir(mode=0o755)
    (folder / "foretell.yaml").write_text(APP)
    return folder


@pytest.mark.parametrize("words", [[], ["--store", "sqlite://"], ["--dry-run", "--store", "sqlite://"]])
def test_a_read_only_app_folder_is_an_error_with_a_remedy(
    foretell: Callable[..., Any], folder: Path, unprivileged: Callable[[], AbstractContextManager[None]], words: Any
) -> None:
    # An unprivileged user may not be able to read modules that are still to be imported.
    warm = folder.parent / "warm"
    warm.mkdir()
    (warm / "foretell.yaml").write_text(APP)
    assert foretell("generate", folder=warm).code == 0
    folder.chmod(0o555)
    with unprivileged():
        outcome = foretell("generate", *words, folder=folder)
    assert outcome.code == 1
    (message,) = outcome.err.splitlines()
    assert str(folder) in message
    assert "set FORETELL_WORK_DIR to a folder" in message


def test_the_variable_moves_all_files(foretell: Callable[..., Any], folder: Path) -> None:
    work = folder.parent / "work"
    for words in (["generate"], ["build"], ["runs", "list"], ["predict", "--set", "n=3"], ["status"]):
        outcome = foretell(*words, folder=folder, environment={"FORETELL_WORK_DIR": str(work)})
        assert outcome.code == 0, outcome.err
    assert (work / "store.db").is_file()
    assert len(list((work / "runs/w").glob("*/stdout.log"))) == 5
    assert (work / "plots").is_dir()
    assert not (folder / ".foretell").exists()


def test_the_variable_moves_batches_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(name="w", directory=str(tmp_path / "app"))
    assert batch_directory(app) == tmp_path / "app/.foretell/batches/w"
    monkeypatch.setenv("FORETELL_WORK_DIR", str(tmp_path / "work"))
    assert batch_directory(app) == tmp_path / "work/batches/w"
    assert run_directory(app, "r") == tmp_path / "work/runs/w/r"
    assert default_store(tmp_path) == tmp_path / "work/store.db"
