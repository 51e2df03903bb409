"""Brings a store's tables to the version this code expects."""

import logging
from typing import Any

import sqlalchemy as sa

from foretell.stores._schema import HEAD, READ_VERSION, VERSION_TABLE, check_tables, is_current

_log = logging.getLogger(__name__)

_LOCK = 0x666F7265  # any number will do, as long as every Foretell takes the same


def ensure_schema(engine: sa.Engine, *, place: str) -> None:
    """Create or upgrade the tables if need be; of several processes at once, one does it and the others wait.

    Raises:
        StoreError: if a newer Foretell wrote them, or another program.
    """
    with engine.connect() as connection:
        if _is_current(connection, place=place):
            return
    with engine.execution_options(write=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        if not _is_current(connection, place=place):
            _log.info("store %s: bringing its tables to version %s", place, HEAD)
            _upgrade(connection)


def _is_current(connection: sa.Connection, *, place: str) -> bool:
    def fetch(query: str, **values: Any) -> Any:
        return connection.execute(sa.text(query), values).all()

    if connection.dialect.name == "sqlite":
        has_version = check_tables(fetch, place=place)
    else:
        has_version = sa.inspect(connection).has_table(VERSION_TABLE)
    return has_version and is_current(connection.scalar(sa.text(READ_VERSION)), place=place)


def _upgrade(connection: sa.Connection) -> None:
    # Imported here: opening a store that is up to date need not wait for Alembic.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "foretell.stores:migrations")
    command.upgrade(config, "head")
