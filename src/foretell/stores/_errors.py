"""What a database says, in our words, with what to do about it."""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from foretell.core.errors import StoreError

_AGAIN = "try again in a moment"
_UNUSABLE = (ValueError, OverflowError, TypeError)  # TypeError: SQLite keeps any type


class _Case(NamedTuple):
    problem: str
    remedy: str
    transient: bool = False


# https://sqlite.org/rescode.html; extended codes (SQLITE_READONLY_DIRECTORY) fall under their first two words.
_SQLITE = {
    "SQLITE_BUSY": _Case("another process keeps it locked", _AGAIN, transient=True),
    "SQLITE_LOCKED": _Case("another process keeps it locked", _AGAIN, transient=True),
    "SQLITE_FULL": _Case("its disk is full", "free some space, or move it to another disk"),
    "SQLITE_IOERR": _Case(
        "its disk cannot be read or written", "check your disk quota and that the drive is still there"
    ),
    "SQLITE_READONLY": _Case(
        "it or its folder is read-only", "change the permissions, or name another store with --store"
    ),
    "SQLITE_PERM": _Case("you may not use it", "change its permissions, or name another store with --store"),
    "SQLITE_CANTOPEN": _Case(
        "it cannot be opened", "check that it is a file in a folder you may write to, or name another with --store"
    ),
    "SQLITE_NOTADB": _Case("it is no SQLite database", "name another file with --store"),
    "SQLITE_CORRUPT": _Case("it is damaged", "restore a copy, or save what can be saved: sqlite3 FILE .recover"),
}

# By SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html), or by what libpq says when there is
# no connection and so no SQLSTATE. The first that fits counts.
_POSTGRES = {
    "password": _Case("the server refused user and password", "check both in the URL, or keep them in ~/.pgpass"),
    "28000": _Case("the server refused the user", "check the user in the URL"),
    "role .* does not exist": _Case("the server does not know the user", "check the user in the URL"),
    "database .* does not exist": _Case("the server has no such database", "create it: createdb NAME"),
    "resolve|translate host": _Case("the host cannot be found", "check its name in the URL"),
    "Connection refused|No such file|is the server running": _Case(
        "no server answers there", "check host and port in the URL, and that the server runs", transient=True
    ),
    "timeout": _Case("the server does not answer", "check host and port in the URL", transient=True),
    "57P03|53300|57P01|server closed|starting up|shutting down|recovery mode|Connection reset|EOF detected|Broken pipe|"
    "connection is (closed|lost)": _Case("the server is not ready for us", _AGAIN, transient=True),
    "40001|40P01|55P03": _Case("others are writing the same runs", _AGAIN, transient=True),
    "53100": _Case("its disk is full", "free some space"),
    "25006": _Case("it is read-only", "name another store with --store"),
    "42501": _Case("you may not do this there", "ask its owner for the right to create and write tables"),
    "42P07": _Case("it holds tables of another program", "create a database for Foretell: createdb NAME"),
}


@contextmanager
def translated(place: str, *, secrets: Iterable[str] = ()) -> Iterator[None]:
    """Turns what SQLAlchemy and its drivers raise into StoreError, without the secrets; ``place`` names the store."""
    import sqlalchemy.exc as sa_exc  # by now it is loaded; readers of SQLite files do without it

    try:
        yield
    except sa_exc.DBAPIError as exc:
        raise _build_error(place, exc.orig, secrets) from exc
    except sa_exc.TimeoutError as exc:
        raise StoreError(f"store {place}: too many of our threads are using it; {_AGAIN}", transient=True) from exc
    except (sa_exc.SQLAlchemyError, *_UNUSABLE) as exc:
        raise _build_value_error(place, exc, secrets) from exc


@contextmanager
def translated_sqlite(place: str) -> Iterator[None]:
    """The same for what Python's own library for SQLite raises."""
    try:
        yield
    except sqlite3.Error as exc:
        raise _build_error(place, exc, ()) from exc
    except _UNUSABLE as exc:
        raise _build_value_error(place, exc, ()) from exc


def _build_value_error(place: str, error: BaseException, secrets: Iterable[str]) -> StoreError:
    return StoreError(f"store {place}: a value in it or for it cannot be used: {_mask(error, secrets)}")


def _mask(error: BaseException | None, secrets: Iterable[str]) -> str:
    text = str(error)
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _build_error(place: str, error: BaseException | None, secrets: Iterable[str]) -> StoreError:
    text = " ".join(_mask(error, secrets).split())
    case = _find_sqlite_case(error, text) or _find_postgres_case(error, text)
    if case is None:
        return StoreError(f"store {place}: the database refused: {text}. Check the address given with --store.")
    return StoreError(f"store {place}: {case.problem} ({text}); {case.remedy}.", transient=case.transient)


def _find_sqlite_case(error: BaseException | None, text: str) -> _Case | None:
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_ERROR" and "already exists" in text:
        return _Case("it holds tables of another program", "name another file with --store")
    return _SQLITE.get("_".join(name.split("_")[:2]))


def _find_postgres_case(error: BaseException | None, text: str) -> _Case | None:
    said = f"{getattr(error, 'sqlstate', None) or ''} {text}"
    return next((case for pattern, case in _POSTGRES.items() if re.search(pattern, said)), None)
