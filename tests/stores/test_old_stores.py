"""Stores of earlier versions open, and their models are rebuilt on request."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config

from foretell.core.errors import StoreError
from foretell.core.run import State
from foretell.runtimes.api import predict
from foretell.stores import open_reader, open_store
from foretell.stores._engine import build_engine, parse_address
from foretell.stores.sqlite_reader import SqliteReader

RUNS = 12


@pytest.fixture
def old_store(tmp_path: Path) -> Path:
    """Twelve runs of an app (2 + 3 n seconds), a model in a format that is no longer written, and three past jobs."""
    packed = Path(__file__).with_name("data") / "store_a751fe9.db.gz"
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    path.chmod(0o600)
    return path


def test_runs_of_an_old_store_are_listed(old_store: Path, foretell: Callable[..., Any]) -> None:
    words = ["--json", "--store", str(old_store)]
    page = foretell("runs", "list", "solver", *words, folder=old_store.parent).record
    assert (page["total"], {run["n"] for run in page["runs"]}) == (RUNS, set(range(1, RUNS + 1)))
    (jobs,) = foretell("history", "apps", *words, folder=old_store.parent).record
    assert jobs["jobs"] == 3


def test_a_model_of_an_old_store_is_rebuilt_on_request(old_store: Path, foretell: Callable[..., Any]) -> None:
    words = ["predict", "solver", "--set", "n=20", "--set", "kind=a", "--json", "--store", str(old_store)]
    refused = foretell(*words, folder=old_store.parent)
    assert refused.code == 1
    assert "foretell build solver" in refused.err
    with pytest.raises(StoreError, match="foretell build solver"):
        predict("solver", {"n": 20, "kind": "a"}, store=old_store)
    assert foretell("build", "solver", "--store", str(old_store), folder=old_store.parent).code == 0
    (prediction,) = foretell(*words, folder=old_store.parent).record
    assert prediction["elapsed_s"]["value"] == pytest.approx(62, rel=0.05)


@pytest.mark.parametrize("version", ["0001", "0003", "0004"])
def test_tables_of_an_earlier_version_are_migrated_when_they_are_read(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    engine = build_engine(parse_address(path))
    with engine.execution_options(write=True).begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", "foretell.stores:migrations")
        command.upgrade(config, version)
    engine.dispose()
    path.chmod(0o600)
    with open_reader(path) as migrating:
        assert migrating.count_runs("solver") == {}
    with open_store(path) as store, open_reader(path) as reader:
        assert isinstance(reader, SqliteReader)
        assert reader.known_ids("solver") == store.known_ids("solver") == dict[str, State]()
