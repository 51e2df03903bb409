"""Jobs of a cluster's accounting, the kinds they are of, and what was read of it."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "job_clusters",
        sa.Column("number", _SERIAL, primary_key=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True),
    )
    _create_kinds()
    _create_jobs()
    op.create_table(
        "history_marks",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )


def _create_kinds() -> None:
    texts = ("cluster", "user", "account", "partition", "name", "work_directory", "command", "app", "parameters")
    op.create_table(
        "job_kinds",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in texts),
    )
    op.create_index("job_kinds_by_app", "job_kinds", ["app"])


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("cluster", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("job", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("task", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("submitted_at", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("elapsed_s", sa.BigInteger(), nullable=False),
        sa.Column("limit_s", sa.BigInteger()),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger()),
        sa.Column("cpu_s", sa.Double()),
        sa.Column("peak_memory_bytes", sa.BigInteger()),
        sa.Column("read_bytes", sa.BigInteger()),
        sa.Column("written_bytes", sa.BigInteger()),
        sqlite_with_rowid=False,
    )
    op.create_index("jobs_by_kind", "jobs", ["kind", "submitted_at"])
