"""The tables, the same on SQLite and PostgreSQL. ``migrations/`` creates and changes them; a test compares the two."""

from datetime import UTC, datetime

import sqlalchemy as sa


class UtcDateTime(sa.TypeDecorator[datetime]):
    """A moment; SQLite has no time zones, so what it keeps is UTC."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# Ids are found by prefix, a range in byte order, which is not the order of most PostgreSQL databases.
_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
# Only an INTEGER PRIMARY KEY counts by itself in SQLite.
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# JSON is kept as text: PostgreSQL's own types refuse NaN and NUL, which a parameter may hold.
_JSON = sa.Text()

metadata = sa.MetaData()

apps = sa.Table(
    "apps",
    metadata,
    sa.Column("name", sa.Text(), primary_key=True),
    sa.Column("description", _JSON, nullable=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("number", _SERIAL, primary_key=True),
    sa.Column("id", _ID, nullable=False, unique=True),
    sa.Column("app", sa.Text(), nullable=False),
    sa.Column("scale", sa.Text(), nullable=False),
    sa.Column("repetition", sa.Integer(), nullable=False),
    sa.Column("parameters", _JSON, nullable=False),
    sa.Column("allocation", _JSON, nullable=False),
    sa.Column("state", sa.Text(), nullable=False),
    sa.Column("elapsed_s", sa.Double()),
    sa.Column("cpu_s", sa.Double()),
    sa.Column("peak_memory_bytes", sa.BigInteger()),
    sa.Column("read_bytes", sa.BigInteger()),
    sa.Column("written_bytes", sa.BigInteger()),
    sa.Column("context_switches", sa.BigInteger()),
    sa.Column("gpu_utilisation", sa.Double()),
    sa.Column("gpu_memory_bytes", sa.BigInteger()),
    sa.Column("phases", _JSON, nullable=False),
    sa.Column("machine", _JSON, nullable=False),
    sa.Column("exit_code", sa.Integer()),
    sa.Column("log_tail", sa.Text(), nullable=False),
    sa.Column("reason", sa.Text(), nullable=False),
    sa.Column("started_at", UtcDateTime()),
    sa.Column("ended_at", UtcDateTime()),
    sa.Column("source", sa.Text(), nullable=False),
    sa.Column("attempt", sa.Integer(), nullable=False, server_default="1"),
    sa.Column("owner_token", sa.Text()),
    sa.Column("owner_hostname", sa.Text()),
    sa.Column("owner_boot_id", sa.Text()),
    sa.Column("owner_pid", sa.BigInteger()),
    sa.Column("owner_started_at", sa.Double()),
    sa.Column("heartbeat_at", UtcDateTime()),
    sa.Column("job_id", sa.Text()),
    sa.Column("allocated", _JSON),
    sa.Column("version", sa.Integer(), nullable=False, server_default="0"),
)
sa.Index("runs_by_app", runs.c.app, runs.c.number)
sa.Index("runs_by_state", runs.c.app, runs.c.state, runs.c.number)
_OWNED = runs.c.owner_token.is_not(None)
sa.Index("runs_by_owner", runs.c.owner_token, sqlite_where=_OWNED, postgresql_where=_OWNED)

batches = sa.Table(
    "batches",
    metadata,
    sa.Column("id", sa.Text(), primary_key=True),
    sa.Column("app", sa.Text(), nullable=False),
    sa.Column("job_id", sa.Text(), nullable=False),
    sa.Column("description", _JSON, nullable=False),
)
sa.Index("batches_by_app", batches.c.app)

models = sa.Table(
    "models",
    metadata,
    sa.Column("app", sa.Text(), primary_key=True),
    sa.Column("card", _JSON, nullable=False),
    sa.Column("extra", _JSON, nullable=False),
    sa.Column("created_at", UtcDateTime(), nullable=False),
    sa.Column("blob", sa.LargeBinary(), nullable=False),
    sa.Column("run_ids", _JSON, nullable=False),
)

# A history has millions of jobs: their texts are in kinds, which many share, and their key is their place.
job_clusters = sa.Table(
    "job_clusters",
    metadata,
    sa.Column("number", _SERIAL, primary_key=True),
    sa.Column("name", sa.Text(), nullable=False, unique=True),
)

job_kinds = sa.Table(
    "job_kinds",
    metadata,
    sa.Column("id", _SERIAL, primary_key=True, autoincrement=False),
    sa.Column("cluster", sa.Text(), nullable=False),
    sa.Column("user", sa.Text(), nullable=False),
    sa.Column("account", sa.Text(), nullable=False),
    sa.Column("partition", sa.Text(), nullable=False),
    sa.Column("name", sa.Text(), nullable=False),
    sa.Column("work_directory", sa.Text(), nullable=False),
    sa.Column("command", sa.Text(), nullable=False),
    sa.Column("app", sa.Text(), nullable=False),
    sa.Column("parameters", _JSON, nullable=False),
)
sa.Index("job_kinds_by_app", job_kinds.c.app)

jobs = sa.Table(
    "jobs",
    metadata,
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
sa.Index("jobs_by_kind", jobs.c.kind, jobs.c.submitted_at)

# How many jobs were received of an application that a model can learn from; models keep the number they were built at.
history_counts = sa.Table(
    "history_counts",
    metadata,
    sa.Column("app", sa.Text(), primary_key=True),
    sa.Column("jobs", sa.BigInteger(), nullable=False),
)

# What was imported already (files, periods), and the rules in use.
history_marks = sa.Table(
    "history_marks",
    metadata,
    sa.Column("name", sa.Text(), primary_key=True),
    sa.Column("value", sa.Text(), nullable=False),
)
