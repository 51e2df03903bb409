"""A store as functions take it: an open one, an address, or the default of a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from foretell.core.private_files import FOLDER, STORE_FILE, default_store
from foretell.stores import RunReader, RunStore, find_file, open_reader, open_store

StoreLike: TypeAlias = RunStore | str | Path | None
_IN_MEMORY = "sqlite://"


@contextmanager
def using_store(
    store: StoreLike, directory: str | Path = ".", *, create: bool = False, or_empty: bool = False
) -> Iterator[RunStore]:
    """An open store: the one given, or the one at an address, closed again afterwards.

    Only who stores something may ``create`` its file. For all others the usual file is as good as empty if it is not
    there, and so is any with ``or_empty``.

    Raises:
        StoreError: if it cannot be opened, or another file was named that is not there.
    """
    if isinstance(store, RunStore):
        yield store
        return
    address = _find_address(store, directory, or_empty=or_empty, create=create)
    with open_store(address, create=create) as opened:
        yield opened


@contextmanager
def reading_store(
    store: StoreLike | RunReader, directory: str | Path = ".", *, or_empty: bool = False
) -> Iterator[RunReader]:
    """As :func:`using_store`, for who only reads: a SQLite file is opened several times as fast.

    Raises:
        StoreError: if it cannot be opened, or another file was named that is not there.
    """
    if isinstance(store, RunReader):
        yield store
        return
    with open_reader(_find_address(store, directory, or_empty=or_empty)) as opened:
        yield opened


def _find_address(
    store: str | Path | None, directory: str | Path, *, or_empty: bool, create: bool = False
) -> str | Path:
    address = store if store is not None else default_store(Path(directory))
    return _IN_MEMORY if not create and _is_missing(address, or_empty=or_empty) else address


def _is_missing(address: str | Path, *, or_empty: bool) -> bool:
    path = find_file(address)
    if path is None or path.exists():
        return False
    return or_empty or path.parts[-2:] == (FOLDER, STORE_FILE)
