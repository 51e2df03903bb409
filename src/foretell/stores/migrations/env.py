"""Run by Alembic: applies the migrations on the connection, and inside the transaction, that it was handed."""

from alembic import context

from foretell.stores._schema import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
