"""Brings a store's tables to the version this code expects."""

import re

import sqlalchemy as sa

from foretell.core.errors import StoreError

HEAD = "0005"
VERSION_TABLE = "foretell_version"
_VERSION = re.compile("(?!0000)[0-9]{4}")
_VIRTUAL = re.compile(r"\s*CREATE\s+VIRTUAL", re.IGNORECASE)
_LOCK = 0x666F7265  # any number will do, as long as every Foretell takes the same


def ensure_schema(engine: sa.Engine, *, place: str) -> None:
    """Create or upgrade the tables if need be; of several processes at once, one does it and the others wait.

    Raises:
        StoreError: if a newer Foretell wrote them, or another program.
    """
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            _check_schema(connection, place=place)
        if _is_current(connection, place=place):
            return
    with engine.execution_options(write=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        if not _is_current(connection, place=place):
            _upgrade(connection)


def _check_schema(connection: sa.Connection, *, place: str) -> None:
    """Only plain tables: a file is a program, too, where it has views, triggers or columns that compute something.

    Raises:
        StoreError: if it has any of these, or is another program's.
    """
    found = connection.execute(sa.text("SELECT type, name, sql FROM sqlite_master")).all()
    tables = [str(name) for kind, name, _ in found if kind == "table" and not str(name).startswith("sqlite_")]
    odd = [name for kind, name, sql in found if kind not in ("table", "index") or _VIRTUAL.match(str(sql))]
    columns = sa.text("SELECT name FROM pragma_table_xinfo(:table) WHERE hidden <> 0")
    odd += [f"{table}.{name}" for table in tables for name in connection.scalars(columns, {"table": table})]
    if odd:
        raise StoreError(
            f"store {place}: it has views, triggers or computed columns ({', '.join(sorted(map(repr, odd))[:3])}), "
            "which Foretell never makes; name another file with --store."
        )
    if tables and VERSION_TABLE not in tables:
        raise StoreError(f"store {place}: it holds tables of another program; name another file with --store.")


def _is_current(connection: sa.Connection, *, place: str) -> bool:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return False
    version = connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}"))  # noqa: S608  # a constant
    if version is not None and not (isinstance(version, str) and _VERSION.fullmatch(version)):
        raise StoreError(
            f"store {place}: its version is {version!r}, which no Foretell wrote; "
            "restore a copy, or name another file with --store."
        )
    if version is not None and version > HEAD:
        raise StoreError(
            f"store {place}: a newer Foretell wrote it (its schema is {version}, this one knows {HEAD}); "
            f"pip install --upgrade foretell."
        )
    return bool(version == HEAD)


def _upgrade(connection: sa.Connection) -> None:
    # Imported here: opening a store that is up to date need not wait for Alembic.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "foretell.stores:migrations")
    command.upgrade(config, "head")
