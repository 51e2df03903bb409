"""The jobs of a cluster's accounting, in the same database as the runs."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from foretell.core.errors import StoreError
from foretell.core.past_jobs import Assignment, HistoryApp, JobKind, JobRow, JobRows
from foretell.core.run import State
from foretell.stores import RunStore
from foretell.stores._job_writer import RAW_IDS, Added, JobWriter, Kinds, execute_many
from foretell.stores._rows import _spell_out, read_text
from foretell.stores._tables import history_marks, job_kinds, jobs
from foretell.stores.sql import SqlStore

_TEXTS = tuple(JobKind.__dataclass_fields__)
_KIND_COLUMNS = ("id", *_TEXTS, "app", "parameters")
_PAGE = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are meant; ``app`` and the texts exactly, moments by the cluster's clock."""

    user: str | None = None
    account: str | None = None
    app: str | None = None
    cluster: str | None = None
    since: int | None = None
    until: int | None = None

    def build(self) -> list[sa.ColumnElement[bool]]:
        texts = {"user": self.user, "account": self.account, "app": self.app, "cluster": self.cluster}
        found = [job_kinds.c[name] == text for name, text in texts.items() if text is not None]
        found += [] if self.since is None else [jobs.c.submitted_at >= self.since]
        return found + ([] if self.until is None else [jobs.c.submitted_at < self.until])


class JobHistory:
    """Jobs and their kinds. Adding what is there already changes nothing.

    Raises (everywhere):
        StoreError: if the store cannot be read or written, or is one that keeps no jobs.
    """

    def __init__(self, store: RunStore) -> None:
        if not isinstance(store, SqlStore):
            raise StoreError(f"{store!r} keeps no history of jobs; use a SQLite file or PostgreSQL")
        self._store = store
        self._kinds = Kinds()

    def add(self, batches: Iterable[JobRows], assignments: Mapping[int, Assignment], marks: Mapping[str, str]) -> Added:
        """Keep jobs with their kinds, and how far was read, all or nothing.

        A job is stored once, however many files contain it: it is identified by its id, its attempt's submission or
        start, and its cluster if that is known. Ambiguous ones are left out and counted, and nothing is marked as read.
        """
        gathered = _gather(batches)
        with self._store.writing() as connection:
            writer = self._open_writer(connection)
            for batch in gathered:
                self._add_kinds(connection, batch.kinds, assignments)
            added = [writer.add(batch) for batch in gathered]
            total = Added(sum(one.changed for one in added), sum(one.undecided for one in added))
            for name, value in marks.items() if not total.undecided else ():
                writer.set_mark(name, value)
        return total

    def _open_writer(self, connection: sa.Connection) -> JobWriter:
        return JobWriter(connection, self._store.insert, self._kinds)

    def _add_kinds(
        self, connection: sa.Connection, kinds: Mapping[int, JobKind], assignments: Mapping[int, Assignment]
    ) -> None:
        rows = [
            (number, *_list_texts(kind), *_build_assignment(assignments[number]).values())
            for number, kind in kinds.items()
        ]
        statement = self._store.insert(job_kinds).on_conflict_do_nothing(index_elements=["id"])
        execute_many(connection, statement, _KIND_COLUMNS, rows)

    def has_raw_ids(self) -> bool:
        """Whether an older version stored elements of arrays under Slurm's own numbers."""
        return self.find_mark(RAW_IDS) is not None

    def find_mark(self, name: str) -> str | None:
        with self._store.reading() as connection:
            return connection.scalar(sa.select(history_marks.c.value).where(history_marks.c.name == name))

    def set_mark(self, name: str, value: str) -> None:
        with self._store.writing() as connection:
            self._open_writer(connection).set_mark(name, value)

    def kinds(self) -> Iterator[list[tuple[int, JobKind, str]]]:
        """Every kind with its id and app, in pages."""
        columns = [job_kinds.c[name] for name in ("id", *_TEXTS, "app")]
        last = -1
        while True:
            query = sa.select(*columns).where(job_kinds.c.id > last).order_by(job_kinds.c.id).limit(_PAGE)
            with self._store.reading() as connection:
                rows = connection.execute(query).all()
            if not rows:
                return
            last = rows[-1][0]
            yield [(row[0], JobKind(**dict(zip(_TEXTS, row[1:-1], strict=True))), row[-1]) for row in rows]

    def assign(self, assignments: Mapping[int, Assignment]) -> None:
        """Group kinds anew. Jobs that move count as received by the application they leave and by the one they join."""
        rows = [{"number": number, **_build_assignment(one)} for number, one in assignments.items()]
        if rows:
            names = {number: _spell_out(one.app) for number, one in assignments.items()}
            statement = sa.update(job_kinds).where(job_kinds.c.id == sa.bindparam("number"))
            with self._store.writing() as connection:
                writer = self._open_writer(connection)
                writer.count_moved(names)
                connection.execute(
                    statement.values(app=sa.bindparam("app"), parameters=sa.bindparam("parameters")), rows
                )
            self._kinds.clear()

    def apps(self) -> list[HistoryApp]:
        """Every application, the one with most jobs first."""
        elapsed: sa.ColumnElement[float] = sa.cast(jobs.c.elapsed_s, sa.Double())  # whole numbers could overflow
        completed = sa.func.sum(sa.case((jobs.c.state == State.COMPLETED.value, 1), else_=0))
        query = (
            sa.select(
                job_kinds.c.app,
                sa.func.count(),
                completed,
                sa.func.count(sa.distinct(job_kinds.c.id)),
                sa.func.count(sa.distinct(job_kinds.c.user)),
                sa.func.sum(elapsed * jobs.c.cores) / 3600.0,
                sa.func.sum(elapsed * jobs.c.gpus) / 3600.0,
                sa.func.max(jobs.c.submitted_at),
            )
            .join_from(jobs, job_kinds, jobs.c.kind == job_kinds.c.id)
            .group_by(job_kinds.c.app)
            .order_by(sa.func.count().desc(), job_kinds.c.app)
        )
        with self._store.reading() as connection:
            return [_build_app(row) for row in connection.execute(query)]

    def has_app(self, app: str) -> bool:
        with self._store.reading() as connection:
            return connection.scalar(sa.select(job_kinds.c.id).where(job_kinds.c.app == app).limit(1)) is not None

    def newest(self, app: str, *, states: Collection[State], most: int) -> list[dict[str, Any]]:
        """The jobs of an application submitted last, as rows with their partition and parameters."""
        query = (
            sa.select(*(jobs.c[name] for name in JobRow._fields), job_kinds.c.partition, job_kinds.c.parameters)
            .join_from(jobs, job_kinds, jobs.c.kind == job_kinds.c.id)
            .where(job_kinds.c.app == app, jobs.c.state.in_([state.value for state in states]), jobs.c.elapsed_s > 0)
            .order_by(jobs.c.submitted_at.desc(), jobs.c.job.desc(), jobs.c.task.desc())
            .limit(most)
        )
        with self._store.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [{**row, "parameters": json.loads(row["parameters"])} for row in rows]

    def count(self, app: str, *, states: Collection[State]) -> int:
        """How many jobs of an application there are in these states."""
        query = (
            sa.select(sa.func.count())
            .join_from(jobs, job_kinds, jobs.c.kind == job_kinds.c.id)
            .where(job_kinds.c.app == app, jobs.c.state.in_([state.value for state in states]), jobs.c.elapsed_s > 0)
        )
        with self._store.reading() as connection:
            return connection.scalar(query) or 0

    def read(self, chosen: JobFilter, columns: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Columns of jobs and of their kinds; ``nan`` where a number is not known."""
        found = [jobs.c[name] if name in jobs.c else job_kinds.c[name] for name in columns]
        query = sa.select(*found).join_from(jobs, job_kinds, jobs.c.kind == job_kinds.c.id).where(*chosen.build())
        pages: list[list[NDArray[Any]]] = []
        with self._store.reading() as connection:
            result = connection.execution_options(yield_per=_PAGE).execute(query)
            for page in result.partitions(_PAGE):
                pages.append([_build_column(*pair) for pair in zip(zip(*page, strict=True), found, strict=True)])
        return {
            name: np.concatenate([page[place] for page in pages]) if pages else np.array([], dtype=float)
            for place, name in enumerate(columns)
        }


def find_history(store: RunStore) -> JobHistory | None:
    """The history of a store that keeps one."""
    return JobHistory(store) if isinstance(store, SqlStore) else None


def _build_column(values: Sequence[Any], column: sa.ColumnElement[Any]) -> NDArray[Any]:
    if not isinstance(column.type, sa.Text):
        return np.array(values, dtype=float)
    return np.array([*map(read_text, values)], dtype=object)


def _list_texts(kind: JobKind) -> list[str]:
    return [_spell_out(getattr(kind, name)) for name in _TEXTS]


def _build_assignment(one: Assignment) -> dict[str, str]:
    return {"app": _spell_out(one.app), "parameters": json.dumps(dict(one.parameters))}


def _build_app(row: Sequence[Any]) -> HistoryApp:
    app, jobs_of_it, completed, commands, users, core_hours, gpu_hours, last = row
    datetime.fromtimestamp(last, tz=UTC)  # or it is no moment
    return HistoryApp(
        app=read_text(app),
        jobs=jobs_of_it,
        completed=int(completed),
        kinds=commands,
        users=users,
        core_hours=float(core_hours),
        gpu_hours=float(gpu_hours),
        last_submitted_at=last,
    )


def _gather(batches: Iterable[JobRows]) -> list[JobRows]:
    """One batch for each cluster and for each set of fields that its text lacks."""
    found: dict[tuple[str, frozenset[str]], list[JobRows]] = {}
    for batch in batches:
        found.setdefault((_spell_out(batch.cluster), batch.missing), []).append(batch)
    return [
        JobRows(
            cluster=cluster,
            rows=[row for part in parts for row in part.rows],
            kinds={number: kind for part in parts for number, kind in part.kinds.items()},
            missing=missing,
            raw_ids={key: raw for part in parts for key, raw in part.raw_ids.items()},
        )
        for (cluster, missing), parts in found.items()
    ]
