"""Where things are kept: stores, run directories, apps by name or by file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from foretell.apps.spec import load_app
from foretell.entities.app import App
from foretell.errors import NotFoundError
from foretell.stores import RunStore, open_store

__all__ = ["StoreLike", "default_store", "directory_of", "load_app", "resolve_app", "using_store"]

StoreLike: TypeAlias = RunStore | str | Path | None

APP_FILE = "foretell.yaml"
FOLDER = ".foretell"


def default_store(directory: Path) -> Path:
    """The SQLite file beside an app file."""
    return directory / FOLDER / "store.db"


@contextmanager
def using_store(store: StoreLike, directory: str | Path = ".") -> Iterator[RunStore]:
    """An open store: the one given, or the one at an address, closed again afterwards."""
    if isinstance(store, RunStore):
        yield store
        return
    with open_store(store if store is not None else default_store(Path(directory))) as opened:
        yield opened


def directory_of(app: App | str | Path) -> Path:
    """The folder an app lives in: its store is there unless said otherwise."""
    if isinstance(app, App):
        return Path(app.directory)
    return Path(app).parent if looks_like_a_file(app) else Path()


def resolve_app(app: App | str | Path, store: RunStore) -> App:
    """An app as it is, from a file, or by its name in the store.

    Raises:
        NotFoundError: if it is neither a file nor a name the store knows.
        SpecError: if the file has mistakes.
    """
    if isinstance(app, App):
        return app
    if looks_like_a_file(app):
        return load_app(Path(app))
    try:
        return store.get_app(str(app))
    except NotFoundError as exc:
        hint = "'foretell runs import' or 'foretell generate' makes an app known."
        raise NotFoundError("app", str(app), known=exc.known, hint=hint) from None


def looks_like_a_file(app: str | Path) -> bool:
    return isinstance(app, Path) or app.endswith((".yaml", ".yml")) or "/" in app


def run_directory(app: App, run_id: str) -> Path:
    """Where a run of the app keeps its logs."""
    return Path(app.directory).absolute() / FOLDER / "runs" / app.name / run_id


def batch_directory(app: App) -> Path:
    """Where the scripts of what was handed to a scheduler are kept."""
    return Path(app.directory).absolute() / FOLDER / "batches" / app.name
