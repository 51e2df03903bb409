"""Where Foretell keeps its files of the apps in a folder."""

import os
from pathlib import Path

from foretell.core.errors import OutputError
from foretell.core.private_files import make_own_folder, write_whole

APP_FILE = "foretell.yaml"
FOLDER = ".foretell"
STORE_FILE = "store.db"
WORK_DIR = "FORETELL_WORK_DIR"


def work_folder(directory: Path) -> Path:
    """Where Foretell keeps its files of the apps in a folder: below it, or where the environment says."""
    said = os.environ.get(WORK_DIR)
    return Path(said).expanduser().absolute() if said else directory.absolute() / FOLDER


def make_kept_folder(folder: Path, kind: str) -> Path:
    """The folder of one kind of files below a work folder; it is this user's own.

    Raises:
        OutputError: if it cannot be made, is a symbolic link, or belongs to somebody else.
    """
    path = folder / kind
    try:
        make_own_folder(path.absolute(), top=folder.absolute())
    except OutputError:
        raise
    except OSError as exc:
        raise OutputError(
            f"{path}: this folder cannot be made ({exc.strerror}); "
            f"start from a folder you can write to, or name one in the variable {WORK_DIR}"
        ) from exc
    return path


def keep_file(path: Path, data: bytes) -> None:
    """Write a file in a folder of :func:`make_kept_folder`.

    Raises:
        OutputError: if it cannot be written.
    """
    try:
        write_whole(path, data)
    except OSError as exc:
        raise OutputError(f"{path}: cannot be written ({exc.strerror}); make room, or make it writable") from exc


def default_store(directory: Path) -> Path:
    """The SQLite file next to an app file, or where the environment says."""
    return work_folder(directory) / STORE_FILE


def looks_like_a_file(app: str | Path) -> bool:
    return isinstance(app, Path) or app.endswith((".yaml", ".yml")) or "/" in app
