"""Where runs and models are kept."""

from pathlib import Path

from foretell.core.errors import StoreError
from foretell.stores._base import RunReader, RunStore

__all__ = ["RunReader", "RunStore", "create_store", "find_file", "open_reader", "open_store"]


def create_store(path: str | Path, *, group: str | None = None) -> None:
    """Make an empty SQLite file for a store: for this user only, or for a Unix group whose members may write it.

    Raises:
        StoreError: if it exists already or cannot be made, or there is no such group.
    """
    from foretell.stores._permissions import create_group_file

    place = Path(path).expanduser().absolute()
    if group is not None:
        create_group_file(place, group=group)
    elif place.exists():
        raise StoreError(f"store {place}: it exists already; name another file.")
    open_store(place).close()


def open_store(address: str | Path, *, create: bool = True) -> RunStore:
    """The store at a URL, or in the SQLite file of that path. ``sqlite://`` lives in memory.

    A file that does not exist is made, unless ``create`` is false.

    Raises:
        StoreError: if it cannot be opened, or does not exist.
        MissingExtraError: if the driver for PostgreSQL is not installed.
    """
    # Imported here: whoever only mentions a store need not wait for SQLAlchemy.
    from foretell.stores.sql import SqlStore

    return SqlStore(address, create=create)


def open_reader(address: str | Path) -> RunReader:
    """The store at an address, which must exist, to read from it: a SQLite file needs no SQLAlchemy for that.

    Raises:
        StoreError: if it cannot be opened, or does not exist.
        MissingExtraError: if the driver for PostgreSQL is not installed.
    """
    from foretell.stores._addresses import check_there
    from foretell.stores.sqlite_reader import SqliteReader

    path = find_file(address)
    if path is None:
        return open_store(address, create=False)
    check_there(path)
    return SqliteReader.open(path) or open_store(path, create=False)


def find_file(address: str | Path) -> Path | None:
    """The file of a store that is one, whether it exists or not.

    Raises:
        StoreError: if it is not the address of a store.
    """
    from foretell.stores._addresses import find_path

    return find_path(address)
