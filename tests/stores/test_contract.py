from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.stores import SharedStoreContract, StoreContract

from foretell.stores import RunStore, open_reader, open_store
from foretell.stores._reads import Rows
from foretell.stores.sql import SqlStore
from foretell.stores.sqlite_reader import SqliteReader


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[RunStore]:
        with open_store("sqlite://") as store:
            yield store


class TestSqlite(SharedStoreContract):
    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return str(tmp_path / "a folder%20?" / "runs.db")


class _ReadByReader(SqlStore):
    """Writes as usual; everything that is read comes through what :func:`open_reader` opens."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = path

    def fetch(self, query: str, **values: Any) -> Rows:
        with open_reader(self._file) as reader:
            assert isinstance(reader, SqliteReader)
            return reader.fetch(query, **values)


class TestSqliteReader(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[RunStore]:
        with _ReadByReader(tmp_path / "runs.db") as store:
            yield store


@pytest.mark.postgres
class TestPostgres(SharedStoreContract):
    @pytest.fixture
    def address(self, postgres_url: str) -> str:
        return postgres_url
