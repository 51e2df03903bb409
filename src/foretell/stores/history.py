"""The jobs of a cluster's accounting, in the same database as the runs."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from foretell.entities.history import Assignment, HistoryApp, JobKind, JobRow, JobRows
from foretell.entities.run import State
from foretell.errors import StoreError
from foretell.stores import RunStore
from foretell.stores._rows import _spell_out
from foretell.stores._tables import history_marks, job_clusters, job_kinds, jobs
from foretell.stores.sql import SqlStore

_TEXTS = tuple(JobKind.__dataclass_fields__)
_KEY = [jobs.c.cluster, jobs.c.job, jobs.c.task, jobs.c.submitted_at]
_COMPARED = ("kind", "state", "ended_at", "elapsed_s", "limit_s", "cpu_s", "peak_memory_bytes")
_COLUMNS = ("cluster", *JobRow._fields)
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

    def add(self, batches: Iterable[JobRows], assignments: Mapping[int, Assignment], marks: Mapping[str, str]) -> int:
        """Keep jobs with their kinds, and how far was read, all or nothing; how many were new or known differently."""
        kinds: dict[int, JobKind] = {}
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for batch in batches:
            kinds |= batch.kinds
            rows.setdefault(batch.cluster, []).extend(batch.rows)
        with self._store.writing() as connection:
            self._add_kinds(connection, kinds, assignments)
            changed = sum(self._add_jobs(connection, cluster, of_it) for cluster, of_it in rows.items())
            for name, value in marks.items():
                self._set_mark(connection, name, value)
        return changed

    def _add_kinds(
        self, connection: sa.Connection, kinds: Mapping[int, JobKind], assignments: Mapping[int, Assignment]
    ) -> None:
        rows = [
            (number, *_list_texts(kind), *_build_assignment(assignments[number]).values())
            for number, kind in kinds.items()
        ]
        statement = self._store.insert(job_kinds).on_conflict_do_nothing(index_elements=["id"])
        _execute_many(connection, statement, _KIND_COLUMNS, rows)

    def _add_jobs(self, connection: sa.Connection, cluster: str, rows: Sequence[tuple[Any, ...]]) -> int:
        number = self._find_cluster(connection, cluster)
        statement = self._store.insert(jobs)
        new = statement.excluded
        differs = sa.or_(*(jobs.c[name].is_distinct_from(new[name]) for name in _COMPARED))
        replaced = {name: new[name] for name in _COLUMNS if jobs.c[name] not in _KEY}
        statement = statement.on_conflict_do_update(index_elements=_KEY, set_=replaced, where=differs)
        return _execute_many(connection, statement, _COLUMNS, [(number, *row) for row in rows])

    def _find_cluster(self, connection: sa.Connection, name: str) -> int:
        text = _spell_out(name)
        connection.execute(
            self._store.insert(job_clusters).values(name=text).on_conflict_do_nothing(index_elements=["name"])
        )
        number = connection.scalar(sa.select(job_clusters.c.number).where(job_clusters.c.name == text))
        assert number is not None
        return int(number)

    def find_mark(self, name: str) -> str | None:
        with self._store.reading() as connection:
            return connection.scalar(sa.select(history_marks.c.value).where(history_marks.c.name == name))

    def set_mark(self, name: str, value: str) -> None:
        with self._store.writing() as connection:
            self._set_mark(connection, name, value)

    def _set_mark(self, connection: sa.Connection, name: str, value: str) -> None:
        row = {"name": name, "value": value}
        statement = self._store.insert(history_marks).values(row)
        connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=row))

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
        """Group kinds anew."""
        rows = [{"number": number, **_build_assignment(one)} for number, one in assignments.items()]
        if rows:
            statement = sa.update(job_kinds).where(job_kinds.c.id == sa.bindparam("number"))
            with self._store.writing() as connection:
                connection.execute(
                    statement.values(app=sa.bindparam("app"), parameters=sa.bindparam("parameters")), rows
                )

    def apps(self) -> list[HistoryApp]:
        """Every application, the one with most jobs first."""
        completed = sa.func.sum(sa.case((jobs.c.state == State.COMPLETED.value, 1), else_=0))
        query = (
            sa.select(
                job_kinds.c.app,
                sa.func.count(),
                completed,
                sa.func.count(sa.distinct(job_kinds.c.id)),
                sa.func.count(sa.distinct(job_kinds.c.user)),
                sa.func.sum(jobs.c.elapsed_s * jobs.c.cores) / 3600.0,
                sa.func.sum(jobs.c.elapsed_s * jobs.c.gpus) / 3600.0,
                sa.func.max(jobs.c.submitted_at),
            )
            .join_from(jobs, job_kinds, jobs.c.kind == job_kinds.c.id)
            .group_by(job_kinds.c.app)
            .order_by(sa.func.count().desc(), job_kinds.c.app)
        )
        with self._store.reading() as connection:
            rows = connection.execute(query).all()
        names = tuple(HistoryApp.__dataclass_fields__)
        return [HistoryApp(**{**dict(zip(names, row, strict=True)), **_floats(row)}) for row in rows]

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
                pages.append([_build_column(values) for values in zip(*page, strict=True)])
        return {
            name: np.concatenate([page[place] for page in pages]) if pages else np.array([], dtype=float)
            for place, name in enumerate(columns)
        }


def find_history(store: RunStore) -> JobHistory | None:
    """The history of a store that keeps one."""
    return JobHistory(store) if isinstance(store, SqlStore) else None


def _build_column(values: Sequence[Any]) -> NDArray[Any]:
    if any(isinstance(value, str) for value in values[:1]):
        return np.array(values, dtype=object)
    return np.array(values, dtype=float)


def _list_texts(kind: JobKind) -> list[str]:
    return [_spell_out(getattr(kind, name)) for name in _TEXTS]


def _build_assignment(one: Assignment) -> dict[str, str]:
    return {"app": _spell_out(one.app), "parameters": json.dumps(dict(one.parameters))}


def _floats(row: Sequence[Any]) -> dict[str, float]:
    return {"core_hours": float(row[5]), "gpu_hours": float(row[6]), "completed": int(row[2])}


def _execute_many(
    connection: sa.Connection, statement: Any, names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> int:
    """By the driver itself where it takes tuples: SQLAlchemy takes longer to hand rows on than SQLite to keep them."""
    compiled = statement.compile(dialect=connection.dialect, column_keys=names)
    if not rows:
        return 0
    if not compiled.positional:
        return int(connection.execute(statement, [dict(zip(names, row, strict=True)) for row in rows]).rowcount)
    assert tuple(compiled.positiontup) == tuple(names)
    return int(connection.exec_driver_sql(str(compiled), list(rows)).rowcount)
