"""A store in a relational database: SQLite (one file, the default) or PostgreSQL, by the same code."""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from foretell.core.app import App
from foretell.core.batch import Batch
from foretell.core.errors import StoreError
from foretell.core.model_card import ModelRecord
from foretell.core.run import Owner, Run, RunSpec, State
from foretell.stores import _rows, _tables
from foretell.stores._addresses import check_there
from foretell.stores._base import RunStore
from foretell.stores._engine import build_engine, list_secrets, parse_address, render_place
from foretell.stores._errors import translated
from foretell.stores._migrate import ensure_schema
from foretell.stores._permissions import check_file, create_file, is_private, resolve_file
from foretell.stores._reads import Rows, SqlReader
from foretell.stores._tables import apps, batches, models, runs

_log = logging.getLogger(__name__)

_BATCH = 5000


class SqlStore(SqlReader, RunStore):
    """A store at a URL, or in the SQLite file of that path; ``sqlite://`` lives in memory.

    SQLite keeps its rollback journal, because write-ahead logging does not work on NFS, where home folders are.
    """

    def __init__(self, address: str | Path, *, create: bool = True) -> None:
        url = parse_address(address)
        self._path = Path(url.database) if url.drivername == "sqlite" and url.database else None
        if self._path is not None:
            if not create:
                check_there(self._path)
            self._path = resolve_file(self._path)
            url = url.set(database=str(self._path))
            create_file(self._path)
            check_file(self._path)
        self._place = render_place(url)
        self._secrets = list_secrets(url)
        self._engine = build_engine(url)
        self.insert = sqlite.insert if url.drivername == "sqlite" else postgresql.insert
        try:
            with translated(self._place, secrets=self._secrets):
                ensure_schema(self._engine, place=self._place)
            _log.info("opened store %s", self._place)
        except BaseException:
            self.close()
            raise

    @property
    def private(self) -> bool:
        return self._engine.dialect.name == "sqlite" and (self._path is None or is_private(self._path))

    def __repr__(self) -> str:
        return f"SqlStore({self._place!r})"

    def save_app(self, app: App) -> None:
        self._save(apps, _rows.build_app_row(app))

    def claim(self, spec: RunSpec, owner: Owner, *, retry: Collection[State] = ()) -> bool:
        row = _rows.build_claim_row(spec, owner, now=datetime.now(UTC))
        with self.writing() as connection:
            return connection.execute(self._build_claim(row, retry), row).rowcount == 1

    def open_batch(self, batch: Batch, specs: Sequence[RunSpec], *, retry: Collection[State] = ()) -> Batch:
        now = datetime.now(UTC)
        rows = [_rows.build_claim_row(spec, batch.owner, now=now) for spec in specs]
        if not rows:
            return replace(batch, run_ids=())
        with self.writing() as connection:
            connection.execute(self._build_claim(rows[0], retry), rows)
            taken = set(connection.scalars(sa.select(runs.c.id).where(runs.c.owner_token == batch.id)))
            kept = replace(batch, run_ids=tuple(spec.id for spec in specs if spec.id in taken))
            if kept.run_ids:
                connection.execute(sa.insert(batches).values(_rows.build_batch_row(kept)))
        return kept

    def keep_job_id(self, batch_id: str, job_id: str) -> None:
        with self.writing() as connection:
            connection.execute(sa.update(batches).where(batches.c.id == batch_id).values(job_id=job_id))

    def heartbeat(self, owner: Owner) -> None:
        with self.writing() as connection:
            connection.execute(
                sa.update(runs).where(runs.c.owner_token == owner.token).values(heartbeat_at=datetime.now(UTC))
            )

    def release(self, run_id: str, owner: Owner) -> bool:
        with self.writing() as connection:
            return connection.execute(sa.delete(runs).where(_is_claim(run_id, owner))).rowcount == 1

    def finish(self, run: Run, owner: Owner) -> bool:
        _check_final(run)
        row = _rows.build_finish_row(run)
        with self.writing() as connection:
            return connection.execute(sa.update(runs).where(_is_claim(run.id, owner)).values(row)).rowcount == 1

    def finish_all(self, runs: Collection[Run], owner: Owner) -> set[str]:
        rows = {run.id: _rows.build_finish_row(_check_final(run)) for run in runs}
        with self.writing() as connection:
            return {
                run_id
                for run_id, row in rows.items()
                if connection.execute(sa.update(_tables.runs).where(_is_claim(run_id, owner)).values(row)).rowcount == 1
            }

    def release_all(self, owner: Owner) -> int:
        with self.writing() as connection:
            return connection.execute(sa.delete(runs).where(runs.c.owner_token == owner.token)).rowcount

    def add_runs(self, runs: Iterable[Run]) -> int:
        remaining = iter(runs)
        added = 0
        while batch := [_rows.build_run_row(_check_final(run)) for run in islice(remaining, _BATCH)]:
            added += self._add(batch)
        return added

    def delete_runs(self, ids: Iterable[str]) -> int:
        rows = [{"run_id": run_id} for run_id in ids]
        if not rows:
            return 0
        with self.writing() as connection:
            return connection.execute(sa.delete(runs).where(runs.c.id == sa.bindparam("run_id")), rows).rowcount

    def save_model(self, record: ModelRecord) -> None:
        self._save(models, _rows.build_model_row(record))

    def close(self) -> None:
        self._engine.dispose()

    def _build_claim(self, row: _rows.Row, retry: Collection[State]) -> sa.Insert:
        statement = self.insert(runs).inline()
        taken_over = {name: statement.excluded[name] for name in row} | {"attempt": runs.c.attempt + 1}
        # not in_(), which cannot be asked for many rows at once
        anew = sa.or_(sa.false(), *(runs.c.state == state.value for state in retry if state.final))
        return statement.on_conflict_do_update(index_elements=[runs.c.id], set_=taken_over, where=anew)

    def fetch(self, query: str, **values: Any) -> Rows:
        with self.reading() as connection:
            return connection.execute(sa.text(query), values).all()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection for what else is kept in this database."""
        with translated(self._place, secrets=self._secrets), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction, for what else is kept in this database; other writers wait for its end."""
        engine = self._engine.execution_options(write=True, preserve_rowcount=True)
        with translated(self._place, secrets=self._secrets), engine.begin() as connection:
            yield connection

    def _save(self, table: sa.Table, row: _rows.Row) -> None:
        statement = self.insert(table).values(row)
        (key,) = table.primary_key
        with self.writing() as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=row))

    def _add(self, rows: list[_rows.Row]) -> int:
        statement = self.insert(runs).inline().on_conflict_do_nothing(index_elements=[runs.c.id])
        with self.writing() as connection:
            return connection.execute(statement, rows).rowcount


def _is_claim(run_id: str, owner: Owner) -> sa.ColumnElement[bool]:
    return (runs.c.id == run_id) & (runs.c.owner_token == owner.token)


def _check_final(run: Run) -> Run:
    if not run.state.final:
        raise StoreError(f"run {run.id} is still {run.state}; only a finished run can be stored.")
    return run
