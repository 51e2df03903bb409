"""Where runs and models are kept."""

from pathlib import Path

from foretell.stores._base import RunStore

__all__ = ["RunStore", "open_store"]


def open_store(address: str | Path) -> RunStore:
    """The store at a URL, or in the SQLite file of that path; made if it is not there. ``sqlite://`` lives in memory.

    Raises:
        StoreError: if it cannot be opened.
        MissingExtraError: if the driver for PostgreSQL is not installed.
    """
    # Imported here: whoever only mentions a store need not wait for SQLAlchemy.
    from foretell.stores.sql import SqlStore

    return SqlStore(address)
