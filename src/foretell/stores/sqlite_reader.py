"""Reads a store in a SQLite file with Python's own library: commands that only read start several times as fast."""

import logging
import sqlite3
import threading
from pathlib import Path
from typing import Any, Self

from foretell.stores._errors import translated_sqlite
from foretell.stores._permissions import check_file, is_private, resolve_file
from foretell.stores._reads import Rows, SqlReader
from foretell.stores._schema import READ_VERSION, check_tables, is_current, prepare_connection

_log = logging.getLogger(__name__)

WAIT_S = 30


class SqliteReader(SqlReader):
    """The store in a SQLite file whose tables are up to date; see :meth:`open`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Self | None:
        """The store in a file; none if its tables must be made or migrated first.

        Raises:
            StoreError: if the file cannot be opened, is not a store, or others can change it at will.
        """
        place = resolve_file(path)
        check_file(place)
        with translated_sqlite(str(place)):
            reader = cls(place, sqlite3.connect(place, timeout=WAIT_S, check_same_thread=False))
        try:
            with translated_sqlite(str(place)):
                prepare_connection(reader._connection)
            current = reader._is_current()
        except BaseException:
            reader.close()
            raise
        if not current:
            reader.close()
            return None
        _log.info("reading store %s", place)
        return reader

    def _is_current(self) -> bool:
        if not check_tables(self.fetch, place=str(self._path)):
            return False
        versions = self.fetch(READ_VERSION)
        return is_current(versions[0][0] if versions else None, place=str(self._path))

    def fetch(self, query: str, **values: Any) -> Rows:
        with translated_sqlite(str(self._path)), self._lock:
            return self._connection.execute(query, values).fetchall()

    @property
    def private(self) -> bool:
        return is_private(self._path)

    def __repr__(self) -> str:
        return f"SqliteReader({str(self._path)!r})"

    def close(self) -> None:
        self._connection.close()
