"""The address of a store: the path of a SQLite file, or a URL."""

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from foretell.core.errors import StoreError

USUAL = Path(".foretell") / "store.db"
_FORMS = "a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
_SQLITE_URL = r"sqlite://(?:/(?P<database>[^?]*))?"
_SCHEME = r"\w[\w+.-]*:"
# What may be shown of an address; whatever else it says may be a secret.
SHOWN = ("host", "port", "user", "dbname", "sslmode", "connect_timeout", "application_name")
_START = r"\w[\w+.-]*:?/*(?=//)|(?=)"
_MISTYPED = r":.*@|\bpass\w*\s*="  # an address of PostgreSQL, no path
_PAIR = r"(?P<name>\w+)(?P<equals>\s*=\s*)(?P<value>'[^']*'|[^\s&]*)"
_SQLITE = b"SQLite format 3\0"
_MOST_FILES = 1000


def is_url(address: str | Path) -> bool:
    return isinstance(address, str) and re.match(_SCHEME, address) is not None


def find_path(address: str | Path) -> Path | None:
    """The path of the SQLite file at an address; none for a database in memory, and for every other URL.

    Raises:
        StoreError: if it is neither a path nor a URL.
    """
    if isinstance(address, str) and is_url(address):
        found = re.fullmatch(_SQLITE_URL, address)
        database = (found["database"] or "") if found else ""
        is_file = database not in ("", ":memory:") and not database.startswith("file:")
        return _make_whole(Path(database)) if is_file else None
    if isinstance(address, str) and re.search(_MISTYPED, address, re.IGNORECASE):
        raise build_address_error(address)
    return _make_whole(Path(address))


def _make_whole(path: Path) -> Path:
    if "\0" in str(path):
        raise build_address_error(str(path))
    return path.expanduser().absolute()


def mask_address(address: str) -> str:
    """An address, however mistyped, without what may be a password in it."""
    start = re.match(_START, address)
    before, rest = address[: start.end() if start else 0], address[start.end() if start else 0 :]
    user, colon, after = rest.partition(":")
    if colon and "@" in after:
        rest = f"{user}:***@{after.rpartition('@')[2]}"
    elif colon and not re.split("[/?]", after)[0].isdecimal():
        rest = f"{user}:***"
    return before + re.sub(
        _PAIR, lambda pair: pair[0] if pair["name"] in SHOWN else f"{pair['name']}{pair['equals']}***", rest
    )


def build_address_error(address: str) -> StoreError:
    return StoreError(f"{mask_address(address)!r} is not the address of a store; expected {_FORMS}. Use --store.")


def check_there(path: Path) -> None:
    """Only commands that store something make a store: all others would look into an empty one.

    Raises:
        StoreError: if there is no such file.
    """
    if os.path.exists(path):  # noqa: PTH110  # Path.exists() raises where a name is too long
        return
    near = find_near(path)
    meant = f" Did you mean {str(near)!r}?" if near else ""
    raise StoreError(
        f"store {path}: there is no such file.{meant} Check --store or FORETELL_STORE; 'foretell generate', "
        f"'foretell runs import' and 'foretell history import' make a new store."
    )


def find_near(path: Path) -> Path | None:
    """The store with the most similar name in the same folder, or the usual one in that folder, here or above."""
    names = {each.name: each for each in _list_stores(path.parent)}
    similar = get_close_matches(path.name, names, n=1, cutoff=0.5)
    if similar:
        return names[similar[0]]
    folders = (path.parent, Path.cwd(), *Path.cwd().parents)
    usual = (folder / USUAL for folder in folders)
    return next((path for path in usual if os.path.isfile(path)), None)  # noqa: PTH113  # see check_there


def _list_stores(folder: Path) -> Iterator[Path]:
    try:
        files = sorted(folder.iterdir())[:_MOST_FILES]
    except OSError:
        return
    for file in files:
        if _is_sqlite(file):
            yield file


def _is_sqlite(file: Path) -> bool:
    try:
        if not file.is_file():
            return False
        with file.open("rb") as opened:
            return opened.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False
