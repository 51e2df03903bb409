"""From the address of a store to a database engine set up the way we need it."""

import re
import sqlite3
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import sqlalchemy as sa
import sqlalchemy.exc as sa_exc

from foretell.core.errors import MissingExtraError, StoreError

_FORMS = "a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
_DRIVERS = {
    "sqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_SCHEME = re.compile(r"\w[\w+.-]*:")
_QUERY = re.compile(r"[A-Za-z_]+=.*")
# What may be shown of an address; whatever else it says may be a secret.
_SHOWN = ("host", "port", "user", "dbname", "sslmode", "connect_timeout", "application_name")
_START = re.compile(r"\w[\w+.-]*:?/*(?=//)|(?=)")
_MISTYPED = re.compile(r":.*@|\bpass\w*\s*=", re.IGNORECASE)  # an address of PostgreSQL, no path
_PAIR = re.compile(r"(?P<name>\w+)(?P<equals>\s*=\s*)(?P<value>'[^']*'|[^\s&]*)")
_WAIT_S = 30
_LARGEST_VALUE = 256 * 1024**2  # bytes of one value, such as a model: a file of others could make it any size


def parse_address(address: str | Path) -> sa.URL:
    """The URL of a store, from a URL or the path of a SQLite file.

    Raises:
        StoreError: if it is neither.
    """
    if isinstance(address, Path) or not _SCHEME.match(address):
        if isinstance(address, str) and _MISTYPED.search(address):
            raise _build_address_error(address)
        return _build_file_url(Path(address))
    try:
        url = sa.make_url(_quote_password(address))
    except (sa_exc.ArgumentError, ValueError):
        raise _build_address_error(address) from None
    if url.drivername not in _DRIVERS:
        raise _build_address_error(address)
    if url.drivername != "sqlite":
        return url.set(drivername=_DRIVERS[url.drivername])
    if url.host or url.query or (url.database or "").startswith("file:"):
        raise _build_address_error(address)
    return (
        _build_file_url(Path(url.database)) if url.database not in (None, "", ":memory:") else sa.URL.create("sqlite")
    )


def render_place(url: sa.URL) -> str:
    """How we name a store to people: without passwords."""
    if url.drivername == "sqlite":
        return url.database or "in memory"
    return url.difference_update_query(name for name in url.query if name not in _SHOWN).render_as_string()


def mask_address(address: str) -> str:
    """An address, however mistyped, without what may be a password in it."""
    start = _START.match(address)
    before, rest = address[: start.end() if start else 0], address[start.end() if start else 0 :]
    user, colon, after = rest.partition(":")
    if colon and "@" in after:
        rest = f"{user}:***@{after.rpartition('@')[2]}"
    elif colon and not re.split("[/?]", after)[0].isdecimal():
        rest = f"{user}:***"
    return before + _PAIR.sub(
        lambda pair: pair[0] if pair["name"] in _SHOWN else f"{pair['name']}{pair['equals']}***", rest
    )


def list_secrets(url: sa.URL) -> list[str]:
    """What no message may repeat."""
    said = [url.password, *(value for name, value in url.query.items() if name not in _SHOWN)]
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
    options = {} if "connect_timeout" in url.query else {"connect_timeout": _WAIT_S}
    try:
        return sa.create_engine(url, connect_args=options, pool_pre_ping=True)
    except ImportError as exc:
        raise MissingExtraError("a store on PostgreSQL needs: pip install 'foretell[postgres]'") from exc
    except sa_exc.ArgumentError:
        raise _build_address_error(render_place(url)) from None


def _build_sqlite_engine(url: sa.URL) -> sa.Engine:
    connect_args = {"timeout": _WAIT_S, "check_same_thread": False}
    if url.database is None:
        # The database lives as long as its only connection, for which threads queue.
        engine = sa.create_engine(
            url, connect_args=connect_args, poolclass=sa.QueuePool, pool_size=1, max_overflow=0, pool_timeout=_WAIT_S
        )
    else:
        engine = sa.create_engine(url, connect_args=connect_args)
    sa.event.listen(engine, "connect", _set_up_connection)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _set_up_connection(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun by _begin
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)


def _begin(connection: sa.Connection) -> None:
    # A reader that turns writer fails at once when another writes; one that says so first waits for its turn.
    write = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _build_file_url(path: Path) -> sa.URL:
    if "\0" in str(path):
        raise _build_address_error(str(path))
    return sa.URL.create("sqlite", database=str(path.expanduser().absolute()))


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


def _build_address_error(address: str) -> StoreError:
    return StoreError(f"{mask_address(address)!r} is no address of a store; expected {_FORMS}. Name it with --store.")


USUAL = Path(".foretell") / "store.db"
_SQLITE = b"SQLite format 3\0"
_MOST_FILES = 1000


def check_there(path: Path) -> None:
    """Only commands that store something make a store: all others would look into an empty one.

    Raises:
        StoreError: if there is no such file.
    """
    if path.exists():
        return
    near = find_near(path)
    meant = f" Did you mean {str(near)!r}?" if near else ""
    raise StoreError(
        f"store {path}: there is no such file.{meant} Check --store or FORETELL_STORE; 'foretell generate', "
        f"'foretell runs import' and 'foretell history import' make a new store."
    )


def find_near(path: Path) -> Path | None:
    """The store with the most similar name in the same folder, or the usual one in that folder, here or above."""
    names = {each.name: each for each in _list_stores(path.parent)}
    similar = get_close_matches(path.name, names, n=1, cutoff=0.5)
    if similar:
        return names[similar[0]]
    folders = (path.parent, Path.cwd(), *Path.cwd().parents)
    return next((folder / USUAL for folder in folders if (folder / USUAL).is_file()), None)


def _list_stores(folder: Path) -> Iterator[Path]:
    try:
        files = sorted(folder.iterdir())[:_MOST_FILES]
    except OSError:
        return
    for file in files:
        if _is_sqlite(file):
            yield file


def _is_sqlite(file: Path) -> bool:
    try:
        if not file.is_file():
            return False
        with file.open("rb") as opened:
            return opened.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False
