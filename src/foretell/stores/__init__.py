"""Where runs and models are kept."""

from pathlib import Path

from foretell.core.errors import StoreError
from foretell.stores._base import RunStore

__all__ = ["RunStore", "create_store", "find_file", "open_store"]


def create_store(path: str | Path, *, group: str | None = None) -> None:
    """Make an empty SQLite file for a store: for this user only, or for a Unix group whose members may write it.

    Raises:
        StoreError: if it is there already or cannot be made, or there is no such group.
    """
    from foretell.stores._permissions import create_group_file

    place = Path(path).expanduser().absolute()
    if group is not None:
        create_group_file(place, group=group)
    elif place.exists():
        raise StoreError(f"store {place}: it is there already; name another file.")
    open_store(place).close()


def open_store(address: str | Path, *, create: bool = True) -> RunStore:
    """The store at a URL, or in the SQLite file of that path. ``sqlite://`` lives in memory.

    A file that is not there is made, unless ``create`` is false.

    Raises:
        StoreError: if it cannot be opened, or is not there.
        MissingExtraError: if the driver for PostgreSQL is not installed.
    """
    # Imported here: whoever only mentions a store need not wait for SQLAlchemy.
    from foretell.stores.sql import SqlStore

    return SqlStore(address, create=create)


def find_file(address: str | Path) -> Path | None:
    """The file of a store that is one, whether it is there or not.

    Raises:
        StoreError: if it is no address of a store.
    """
    from foretell.stores._engine import parse_address

    url = parse_address(address)
    return Path(url.database) if url.drivername == "sqlite" and url.database is not None else None
