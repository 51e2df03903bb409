"""Runs in from tables, and out to them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from foretell.api.workspace import StoreLike, directory_of, resolve_app, using_store
from foretell.apps.tables import Columns, read_runs, read_table
from foretell.entities.app import App, Parameter, ParameterType
from foretell.entities.plan import ImportResult
from foretell.entities.run import Run, State
from foretell.errors import NotFoundError
from foretell.stores import RunStore


def import_runs(
    source: str | Path | pd.DataFrame, *, app: str, columns: Columns, store: StoreLike = None
) -> ImportResult:
    """Store the runs of a table; the app need not exist before. Importing twice adds nothing.

    Raises:
        ImportDataError: if the table cannot be read, lacks a column, or has no usable row.
    """
    frame = source if isinstance(source, pd.DataFrame) else read_table(Path(source))
    table = read_runs(frame, app=app, columns=columns)
    with using_store(store) as opened:
        make_known(table.app, opened)
        added = opened.add_runs(table.runs)
    return ImportResult(
        app=app,
        read=len(frame),
        added=added,
        already_there=len(table.runs) - added,
        parameters=table.app.parameter_names(),
        skipped=table.skipped,
    )


def make_known(app: App, store: RunStore) -> None:
    """An app that was described keeps its description; one known from imports learns of new columns."""
    try:
        known = store.get_app(app.name)
    except NotFoundError:
        store.save_app(app)
        return
    if not known.command and known.shell is None:
        merged = {parameter.name: parameter for parameter in (*known.parameters, *app.parameters)}
        store.save_app(App(name=app.name, parameters=tuple(merged.values()), per=app.per or known.per))


def store_repeated(run: Run, types: Mapping[str, ParameterType], store: RunStore) -> Run:
    """The run as it is stored, of an app that nobody described: each time the same is done is a repetition."""
    app = run.spec.app
    make_known(App(name=app, parameters=tuple(Parameter(name=name, type=types[name]) for name in types)), store)
    taken = set(store.known_ids(app))
    while run.id in taken:
        run = replace(run, spec=replace(run.spec, repetition=run.spec.repetition + 1))
    store.add_runs([run])
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPage:
    """Some of an app's runs, newest first, and how many there are."""

    app: str
    runs: tuple[Run, ...]
    total: int


def list_runs(
    app: App | str | Path,
    *,
    store: StoreLike = None,
    states: Collection[State] | None = None,
    limit: int | None = None,
) -> RunsPage:
    """Stored runs of an app, newest first.

    Raises:
        NotFoundError: if there is no such app.
    """
    with using_store(store, directory_of(app)) as opened:
        name = resolve_app(app, opened).name
        counts = opened.count_runs(name)
        total = sum(count for state, count in counts.items() if states is None or state in states)
        runs = opened.runs(name, states=states, limit=limit, newest_first=True)
    return RunsPage(app=name, runs=tuple(runs), total=total)
