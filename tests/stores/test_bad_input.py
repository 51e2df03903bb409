import sqlite3
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.stores import build_app, build_owner, build_run, build_spec

from foretell.core.errors import MissingExtraError, StoreError
from foretell.stores import RunReader, open_reader, open_store
from foretell.stores._engine import parse_address


@pytest.mark.parametrize(
    "address",
    [
        "mysql://root@localhost/runs",
        "postgresql+psycopg2://localhost/runs",
        "postgresql:/localhost/runs",
        "postgresql://localhost:port/runs",
        "sqlite:/runs.db",
        "sqlite://runs.db",
        "sqlite:///runs.db?mode=ro",
        "sqlite:///file:runs.db",
        "http://example.org",
        "nonsense:",
    ],
)
def test_wrong_url_is_refused_with_what_was_expected(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        StoreError, match=r"is not the address of a store; expected a path, sqlite:///PATH or postgresql://"
    ):
        open_store(address)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address",
    [
        "mysql://me:s3cret@host/runs",
        "mysql://me:a/s3cret:b@c@host/runs",
        "mysql://me@host/runs?password=s3cret&x=y",
        "postgresql:/me:s3cret@host",
        "postgresql://me:s3cret@host:port/runs",
    ],
)
def test_wrong_url_does_not_show_the_password(address: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(address)
    assert "s3cret" not in str(caught.value)
    assert "***" in str(caught.value)


@settings(deadline=None)
@given(st.text() | st.from_regex(r"(sqlite|postgres(ql)?(\+psycopg)?):/{0,4}\S*", fullmatch=True))
def test_any_text_is_an_address_or_refused(text: Any) -> None:
    with suppress(StoreError):
        assert parse_address(text).drivername in ("sqlite", "postgresql+psycopg")


@pytest.mark.parametrize(
    ("given_address", "file"),
    [("runs.db", "runs.db"), ("sqlite:///deep/er/runs.db", "deep/er/runs.db"), (Path("a:b ?.db"), "a:b ?.db")],
)
def test_path_becomes_a_sqlite_file(
    given_address: Any, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(given_address) as store:
        store.save_app(build_app())
    assert (tmp_path / file).read_bytes().startswith(b"SQLite format 3")


def test_home_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    open_store("~/runs.db").close()
    assert (tmp_path / "runs.db").exists()


@pytest.mark.parametrize("reopen", [open_store, open_reader])
def test_folder_as_store(tmp_path: Path, reopen: Callable[[Path], RunReader]) -> None:
    with pytest.raises(StoreError, match=r"cannot be opened .* file in a folder you may write to"):
        reopen(tmp_path)


def test_file_as_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"folder '.*file' cannot be made .*--store"):
        open_store(tmp_path / "file" / "runs.db")


@pytest.mark.parametrize("reopen", [open_store, open_reader])
@pytest.mark.parametrize("name", ["a\0b.db", "a\0b/runs.db", "x" * 300, "x" * 300 + "/runs.db"])
def test_path_that_no_file_can_have(name: Any, tmp_path: Path, reopen: Callable[[Path], RunReader]) -> None:
    with pytest.raises(StoreError, match="--store"):
        reopen(tmp_path / name)


@pytest.mark.parametrize("reopen", [open_store, open_reader])
def test_text_file_as_store_is_left_alone(tmp_path: Path, reopen: Callable[[Path], RunReader]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk\n" * 100)
    with pytest.raises(StoreError, match=r"no SQLite database .*name another file with --store"):
        reopen(path)
    assert path.read_text() == "remember the milk\n" * 100


@pytest.mark.parametrize("reopen", [open_store, open_reader])
def test_damaged_file(tmp_path: Path, reopen: Callable[[Path], RunReader]) -> None:
    path = tmp_path / "runs.db"
    with open_store(path) as store:
        store.add_runs(build_run(number) for number in range(1000))
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreError, match=r"damaged .*restore a copy"), reopen(path) as reader:
        reader.runs("demo")


@pytest.mark.parametrize("reopen", [open_store, open_reader])
def test_truncated_file(tmp_path: Path, reopen: Callable[[Path], RunReader]) -> None:
    path = tmp_path / "runs.db"
    with open_store(path) as store:
        store.add_runs(build_run(number) for number in range(1000))
    path.write_bytes(path.read_bytes()[:10_000])
    with pytest.raises(StoreError, match=r"damaged .*restore a copy"), reopen(path) as reader:
        reader.runs("demo")


def test_unwritable_folder(public_folder: Path, unprivileged: Callable[[], AbstractContextManager[None]]) -> None:
    public_folder.chmod(0o555)
    with unprivileged():
        with pytest.raises(StoreError, match=r"cannot be opened .* folder you may write to"):
            open_store(public_folder / "runs.db")
        with pytest.raises(StoreError, match=r"cannot be made \(Permission denied\)"):
            open_store(public_folder / "new" / "runs.db")


def test_read_only_store_can_be_read(
    public_folder: Path, unprivileged: Callable[[], AbstractContextManager[None]]
) -> None:
    path = public_folder / "runs.db"
    with open_store(path) as store:
        store.add_runs([build_run()])
    path.chmod(0o444)
    public_folder.chmod(0o555)
    with unprivileged(), open_reader(path) as reader:
        assert reader.runs("demo") == [build_run()]
    with unprivileged(), open_store(path) as store:
        assert store.runs("demo") == [build_run()]
        with pytest.raises(StoreError, match=r"read-only .*change the permissions"):
            store.save_app(build_app())


def test_full_disk_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    open_store(path).close()

    def limit(connection: object, _record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA max_page_count = 40")

    sa.event.listen(sa.Engine, "connect", limit)
    try:
        with open_store(path) as store:
            assert store.add_runs([build_run(number) for number in range(10)]) == 10
            with pytest.raises(StoreError, match=r"disk is full .*free some space"):
                store.add_runs(build_run(number) for number in range(2000))
            assert store.runs("demo") == [build_run(number) for number in range(10)]
            assert store.delete_runs([build_run(0).id]) == 1
    finally:
        sa.event.remove(sa.Engine, "connect", limit)


def test_locked_store_is_transient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.stores._engine.WAIT_S", 0.05)
    path = tmp_path / "runs.db"
    with open_store(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked") as caught:
            store.claim(build_spec(), build_owner())
        other.close()
        assert caught.value.transient
        assert store.claim(build_spec(), build_owner())


@pytest.mark.parametrize("name", ["psycopg", "psycopg.pq"])
def test_missing_driver_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.split(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'foretell\[postgres\]'"):
        open_store("postgresql://localhost/runs")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://me:s3cret@127.0.0.1:1/runs", "no server answers there .*check host and port"),
        ("postgres://me:s3cret@nowhere.invalid/runs", "host cannot be found .*check its name"),
        ("postgresql://me:s3cret@/runs?host=/nowhere", "no server answers there"),
        ("postgresql://me@127.0.0.1:1/runs?password=s3cret", "no server answers there"),
        ("postgresql://me:s3cret@/runs?colour=red", "the database refused: .*colour"),
    ],
)
def test_unreachable_server(address: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        open_store(address)
    assert "s3cret" not in str(caught.value)


@pytest.mark.postgres
def test_refusals_of_the_server(postgres_server: str) -> None:
    import psycopg

    with psycopg.connect(host=postgres_server, user="test", dbname="postgres", autocommit=True) as connection:
        connection.execute("CREATE ROLE careful LOGIN PASSWORD 'right'")
    cases = {
        f"postgresql://careful:wr0ng@/postgres?host={postgres_server}": "refused user and password .*check both",
        f"postgresql://careful@/postgres?host={postgres_server}": "refused user and password",
        f"postgresql://nobody@/postgres?host={postgres_server}": "does not know the user",
        f"postgresql://test@/nothing?host={postgres_server}": "no such database .*createdb",
        f"postgresql://careful:right@/postgres?host={postgres_server}&options=-csearch_path%3Dpg_catalog": "may not do",
    }
    for address, message in cases.items():
        with pytest.raises(StoreError, match=message) as caught:
            open_store(address)
        assert "wr0ng" not in str(caught.value)


@pytest.mark.postgres
def test_store_that_may_only_be_read(postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        store.add_runs([build_run()])
    with open_store(postgres_url.replace("options=", "options=-cdefault_transaction_read_only%3Don ")) as store:
        assert store.runs("demo") == [build_run()]
        with pytest.raises(StoreError, match="read-only"):
            store.save_app(build_app())


@pytest.mark.parametrize("app", ["\0", "'; DROP TABLE runs; --"])
def test_asking_for_an_odd_app_finds_nothing(app: str) -> None:
    with open_store("sqlite://") as store:
        store.add_runs([build_run()])
        assert store.runs(app) == store.claims(app) == []
        assert store.find_model(app) is None
        assert store.count_runs("demo")


def test_asking_for_an_app_that_is_no_text() -> None:
    with open_store("sqlite://") as store, pytest.raises(StoreError, match="a value in it or for it cannot be used"):
        store.runs("\udcff")
