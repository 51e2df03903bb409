"""Apps, runs and models."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _create_apps()
    _create_runs()
    _create_models()


def _create_apps() -> None:
    op.create_table(
        "apps",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("description", sa.Text(), nullable=False),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("id", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False, unique=True),
        sa.Column("app", sa.Text(), nullable=False),
        sa.Column("scale", sa.Text(), nullable=False),
        sa.Column("repetition", sa.Integer(), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("allocation", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("elapsed_s", sa.Double()),
        sa.Column("cpu_s", sa.Double()),
        sa.Column("peak_memory_bytes", sa.BigInteger()),
        sa.Column("read_bytes", sa.BigInteger()),
        sa.Column("written_bytes", sa.BigInteger()),
        sa.Column("context_switches", sa.BigInteger()),
        sa.Column("gpu_utilisation", sa.Double()),
        sa.Column("gpu_memory_bytes", sa.BigInteger()),
        sa.Column("phases", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("log_tail", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("owner_token", sa.Text()),
        sa.Column("owner_hostname", sa.Text()),
        sa.Column("owner_boot_id", sa.Text()),
        sa.Column("owner_pid", sa.BigInteger()),
        sa.Column("owner_started_at", sa.Double()),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True)),
    )
    op.create_index("runs_by_app", "runs", ["app", "number"])
    op.create_index("runs_by_state", "runs", ["app", "state", "number"])
    owned = sa.text("owner_token IS NOT NULL")
    op.create_index("runs_by_owner", "runs", ["owner_token"], sqlite_where=owned, postgresql_where=owned)


def _create_models() -> None:
    op.create_table(
        "models",
        sa.Column("app", sa.Text(), primary_key=True),
        sa.Column("card", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.Column("run_ids", sa.Text(), nullable=False),
    )
