"""Brings a store's tables to the version this code expects."""

import sqlalchemy as sa

from foretell.errors import StoreError

HEAD = "0005"
VERSION_TABLE = "foretell_version"
_LOCK = 0x666F7265  # any number will do, as long as every Foretell takes the same


def ensure_schema(engine: sa.Engine, *, place: str) -> None:
    """Create or upgrade the tables if need be; of several processes at once, one does it and the others wait.

    Raises:
        StoreError: if a newer Foretell wrote them.
    """
    with engine.connect() as connection:
        if _is_current(connection, place=place):
            return
    with engine.execution_options(write=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        if not _is_current(connection, place=place):
            _upgrade(connection)


def _is_current(connection: sa.Connection, *, place: str) -> bool:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return False
    version = connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}"))  # noqa: S608  # a constant
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
