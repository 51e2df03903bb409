"""Which version of its app's program a run was made by."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("runs", sa.Column("version", sa.Integer(), nullable=False, server_default="0"))
