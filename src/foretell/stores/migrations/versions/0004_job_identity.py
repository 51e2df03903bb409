"""How many jobs were received of each application, and jobs that older versions stored twice.

They stored elements of arrays under Slurm's own numbers where a text gave them, and a job once more where a text did
not name its cluster. Duplicates within the store are removed here. The others are when the same accounting is imported
again, so the marks of what was imported are deleted.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_FITTED = "('completed', 'timed_out', 'out_of_memory')"
_JOINED = f"FROM jobs JOIN job_kinds ON jobs.kind = job_kinds.id WHERE jobs.state IN {_FITTED} AND jobs.elapsed_s > 0"
_NAMED = "SELECT number FROM job_clusters WHERE name <> ''"
_STORED_TWICE = f"""
DELETE FROM jobs WHERE cluster IN (SELECT number FROM job_clusters WHERE name = '') AND EXISTS (
    SELECT 1 FROM jobs AS other WHERE other.cluster IN ({_NAMED}) AND other.job = jobs.job AND other.task = jobs.task
    AND other.submitted_at = jobs.submitted_at AND jobs.submitted_at <> 0
)
"""  # noqa: S608  # constants


def upgrade() -> None:
    op.create_table(
        "history_counts",
        sa.Column("app", sa.Text(), primary_key=True),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
    )
    connection = op.get_bind()
    if connection.scalar(sa.text("SELECT job FROM jobs LIMIT 1")) is None:
        return
    connection.execute(sa.text(_STORED_TWICE))
    counts = f"INSERT INTO history_counts (app, jobs) SELECT job_kinds.app, count(*) {_JOINED} GROUP BY job_kinds.app"
    connection.execute(sa.text(counts))
    connection.execute(sa.text("DELETE FROM history_marks WHERE name LIKE 'file %' OR name LIKE 'sacct %'"))
    marks = "INSERT INTO history_marks (name, value) VALUES ('partial jobs', 'yes'), ('raw ids', 'yes')"
    connection.execute(sa.text(marks))
    _count_for_models(connection)


def _count_for_models(connection: sa.Connection) -> None:
    """Models are taken to know the jobs there are: only later ones make them old."""
    query = "SELECT models.app, models.extra, history_counts.jobs FROM models JOIN history_counts USING (app)"
    for app, extra, count in connection.execute(sa.text(query)).all():
        known = json.dumps({**json.loads(extra), "jobs": str(count)})
        connection.execute(sa.text("UPDATE models SET extra = :extra WHERE app = :app"), {"extra": known, "app": app})
