"""From the address of a store to a database engine set up the way we need it."""

import re
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import sqlalchemy as sa
import sqlalchemy.exc as sa_exc

from foretell.core.errors import MissingExtraError
from foretell.stores._addresses import SHOWN, build_address_error, find_path
from foretell.stores._schema import prepare_connection
from foretell.stores.sqlite_reader import WAIT_S

_DRIVERS = {
    "sqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_QUERY = re.compile(r"[A-Za-z_]+=.*")


def parse_address(address: str | Path) -> sa.URL:
    """The URL of a store, from a URL or the path of a SQLite file.

    Raises:
        StoreError: if it is neither.
    """
    path = find_path(address)
    if path is not None:
        return sa.URL.create("sqlite", database=str(path))
    assert isinstance(address, str)
    try:
        url = sa.make_url(_quote_password(address))
    except (sa_exc.ArgumentError, ValueError):
        raise build_address_error(address) from None
    if url.drivername not in _DRIVERS:
        raise build_address_error(address)
    if url.drivername != "sqlite":
        return url.set(drivername=_DRIVERS[url.drivername])
    if url.host or url.query or url.database not in (None, "", ":memory:"):
        raise build_address_error(address)
    return sa.URL.create("sqlite")


def render_place(url: sa.URL) -> str:
    """How we name a store to people: without passwords."""
    if url.drivername == "sqlite":
        return url.database or "in memory"
    return url.difference_update_query(name for name in url.query if name not in SHOWN).render_as_string()


def list_secrets(url: sa.URL) -> list[str]:
    """What no message may repeat."""
    said = [url.password, *(value for name, value in url.query.items() if name not in SHOWN)]
    words = [word for value in said if value for word in ([value] if isinstance(value, str) else value)]
    return [*words, *map(quote, words)]


def build_engine(url: sa.URL) -> sa.Engine:
    """An engine whose ``execution_options(write=True)`` says beforehand that a transaction will write.

    Raises:
        StoreError: if the address says what the driver cannot read.
        MissingExtraError: if the driver for PostgreSQL is not installed.
    """
    if url.drivername == "sqlite":
        return _build_sqlite_engine(url)
    options = {} if "connect_timeout" in url.query else {"connect_timeout": WAIT_S}
    try:
        return sa.create_engine(url, connect_args=options, pool_pre_ping=True)
    except ImportError as exc:
        raise MissingExtraError("a store on PostgreSQL needs: pip install 'foretell[postgres]'") from exc
    except sa_exc.ArgumentError:
        raise build_address_error(render_place(url)) from None


def _build_sqlite_engine(url: sa.URL) -> sa.Engine:
    connect_args = {"timeout": WAIT_S, "check_same_thread": False}
    if url.database is None:
        # The database lives as long as its only connection, for which threads queue.
        engine = sa.create_engine(
            url, connect_args=connect_args, poolclass=sa.QueuePool, pool_size=1, max_overflow=0, pool_timeout=WAIT_S
        )
    else:
        engine = sa.create_engine(url, connect_args=connect_args)
    sa.event.listen(engine, "connect", _set_up_connection)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _set_up_connection(connection: sqlite3.Connection, _record: Any) -> None:
    prepare_connection(connection)


def _begin(connection: sa.Connection) -> None:
    # A reader that turns writer fails at once when another writes; one that says so first waits for its turn.
    write = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _quote_password(address: str) -> str:
    """The address with its password spelled so that an ``@`` or ``/`` in it does not end it: the last ``@`` does."""
    scheme, separator, rest = address.partition("://")
    before, question, query = rest.rpartition("?")
    if "@" not in before or not _QUERY.fullmatch(query):
        before, question, query = rest, "", ""
    user_and_password, at, place = before.rpartition("@")
    user, colon, password = user_and_password.partition(":")
    if not colon or "/" in user:
        return address
    return f"{scheme}{separator}{user}:{quote(unquote(password), safe='')}{at}{place}{question}{query}"
