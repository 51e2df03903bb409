"""Whether the tables in a SQLite file are ours, and of which version."""

import re
import sqlite3
from collections.abc import Callable
from typing import Any

from foretell.core.errors import StoreError

HEAD = "0005"
VERSION_TABLE = "foretell_version"
READ_VERSION = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608  # a constant
_VERSION = "(?!0000)[0-9]{4}"
_VIRTUAL = r"\s*CREATE\s+VIRTUAL"
_LARGEST_VALUE = 256 * 1024**2  # bytes of one value, such as a model: somebody else's file could make it any size


def prepare_connection(connection: sqlite3.Connection) -> None:
    """Before anything is read: no code of the schema runs, and no value may take all memory."""
    connection.isolation_level = None  # transactions are begun explicitly
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)


def check_tables(fetch: Callable[..., Any], *, place: str) -> bool:
    """Whether a SQLite file has our tables; false if it is empty.

    Only plain tables are accepted: views, triggers and computed columns make a file a program.

    Raises:
        StoreError: if it has any of these, or is another program's.
    """
    found = fetch("SELECT type, name, sql FROM sqlite_master")
    tables = [str(name) for kind, name, _ in found if kind == "table" and not str(name).startswith("sqlite_")]
    odd = [
        name
        for kind, name, sql in found
        if kind not in ("table", "index") or re.match(_VIRTUAL, str(sql), re.IGNORECASE)
    ]
    columns = "SELECT name FROM pragma_table_xinfo(:table) WHERE hidden <> 0"
    odd += [f"{table}.{name}" for table in tables for (name,) in fetch(columns, table=table)]
    if odd:
        raise StoreError(
            f"store {place}: it has views, triggers or computed columns ({', '.join(sorted(map(repr, odd))[:3])}), "
            "which Foretell never makes; name another file with --store."
        )
    if tables and VERSION_TABLE not in tables:
        raise StoreError(f"store {place}: it holds tables of another program; name another file with --store.")
    return bool(tables)


def is_current(version: object, *, place: str) -> bool:
    """Whether tables of this version need no migration.

    Raises:
        StoreError: if a newer Foretell wrote them, or none did.
    """
    if version is None:
        return False
    if not (isinstance(version, str) and re.fullmatch(_VERSION, version)):
        raise StoreError(
            f"store {place}: its version is {version!r}, which no Foretell wrote; "
            "restore a copy, or name another file with --store."
        )
    if version > HEAD:
        raise StoreError(
            f"store {place}: a newer Foretell wrote it (its schema is {version}, this one knows {HEAD}); "
            f"pip install --upgrade foretell."
        )
    return version == HEAD
