from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.stores import SharedStoreContract, StoreContract

from foretell.stores import RunStore, open_store


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[RunStore]:
        with open_store("sqlite://") as store:
            yield store


class TestSqlite(SharedStoreContract):
    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return str(tmp_path / "a folder%20?" / "runs.db")


@pytest.mark.postgres
class TestPostgres(SharedStoreContract):
    @pytest.fixture
    def address(self, postgres_url: str) -> str:
        return postgres_url
