"""What runs were as a scheduler's jobs, and the batches they were submitted in."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("runs", sa.Column("job_id", sa.Text()))
    op.add_column("runs", sa.Column("allocated", sa.Text()))
    op.create_table(
        "batches",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("app", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
    )
    op.create_index("batches_by_app", "batches", ["app"])
