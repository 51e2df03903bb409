"""Runs in from tables, and out to them."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.apps.workspace import directory_of, resolve_app
from foretell.core.app import App, Parameter, ParameterType, Scale
from foretell.core.errors import NotFoundError
from foretell.core.run import ImportResult, Run, RunSpec, State, find_repetition
from foretell.stores import RunReader, RunStore
from foretell.stores.opening import StoreLike, reading_store, using_store

if TYPE_CHECKING:
    from foretell.apps.imported_runs import Columns
    from foretell.core.table_files import TableLike


def import_runs(source: "TableLike", *, app: str, columns: "Columns", store: StoreLike = None) -> ImportResult:
    """Store the runs of a table; the app need not exist before. Importing twice adds nothing.

    Raises:
        ImportDataError: if the table cannot be read, lacks a column, or has no usable row.
    """
    # Imported here: whoever lists runs need not wait for what reads tables.
    from foretell.apps.imported_runs import read_runs
    from foretell.core.table_files import get_table

    rows = get_table(source)
    table = read_runs(rows, app=app, columns=columns)
    with using_store(store, create=True) as opened:
        version = make_known(table.app, opened).version
        added = opened.add_runs(replace(run, spec=replace(run.spec, version=version)) for run in table.runs)
    return ImportResult(
        app=app,
        read=len(rows),
        added=added,
        already_there=len(table.runs) - added,
        parameters=table.app.parameter_names(),
        skipped=table.skipped,
    )


def make_known(app: App, store: RunStore) -> App:
    """The app as it is stored: one that was described keeps its description, one from imports learns of new columns."""
    try:
        known = store.get_app(app.name)
    except NotFoundError:
        store.save_app(app)
        return app
    if known.command or known.shell is not None:
        return known
    merged = {parameter.name: parameter for parameter in (*known.parameters, *app.parameters)}
    learned = replace(known, parameters=tuple(merged.values()), per=app.per or known.per)
    store.save_app(learned)
    return learned


def store_repeated(run: Run, types: Mapping[str, ParameterType], store: RunStore) -> Run:
    """The run as it is stored, of an app that nobody described: each time the same is done is a repetition."""
    app = run.spec.app
    make_known(App(name=app, parameters=tuple(Parameter(name=name, type=types[name]) for name in types)), store)
    taken = set(store.known_ids(app))
    run = replace(run, spec=find_repetition(run.spec, taken.__contains__))
    store.add_runs([run])
    return run


def find_runs(ids: Iterable[str], *, store: StoreLike | RunReader = None) -> list[Run]:
    """The runs of these ids, each written as far as it is unique; one named twice comes once.

    Raises:
        NotFoundError: if there is no such run, or several begin so.
    """
    with reading_store(store) as opened:
        return list({run.id: run for run in map(opened.get_run, ids)}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPage:
    """Some of an app's runs, newest first, and how many there are."""

    app: str
    runs: tuple[Run, ...]
    total: int


def list_runs(
    app: App | str | Path,
    *,
    store: StoreLike | RunReader = None,
    states: Collection[State] | None = None,
    limit: int | None = None,
    set_aside: bool = False,
) -> RunsPage:
    """Stored runs of an app, newest first; those ``set_aside`` when it was started over, or the others.

    Raises:
        NotFoundError: if there is no such app.
    """
    with reading_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        if set_aside:
            every = opened.runs(known.name, states=states, newest_first=True)
            runs = [run for run in every if run.spec.version != known.version]
            return RunsPage(app=known.name, runs=tuple(runs[:limit]), total=len(runs))
        counts = opened.count_runs(known.name, version=known.version)
        total = sum(count for state, count in counts.items() if states is None or state in states)
        runs = opened.runs(known.name, states=states, limit=limit, newest_first=True, version=known.version)
    return RunsPage(app=known.name, runs=tuple(runs), total=total)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppCheck:
    """The runs of a valid app file.

    ``excluded`` ones do not meet its ``where``. ``impossible_here`` counts runs that this machine cannot make, by the
    reason; it is empty for an app whose runs are made elsewhere. ``warning`` is about its program.
    """

    app: str
    scaled_down_runs: int
    full_scale_runs: int
    excluded_runs: int
    impossible_here: Mapping[str, int]
    warning: str | None


def check_app(app: App) -> AppCheck:
    """Count the app's runs without making or storing anything."""
    # Imported here: listing runs needs neither numpy nor what starts programs.
    from foretell.apps.command import find_program_problem
    from foretell.apps.sweep import count_runs, list_configurations
    from foretell.schedulers.local import LocalRunner

    sizes = {
        scale: Counter(allocation for _, allocation in list_configurations(app, scale))
        for scale in (Scale.SCALED_DOWN, Scale.FULL_SCALE)
    }
    small, full = (app.repetitions * counts.total() for counts in sizes.values())
    impossible: Counter[str] = Counter()
    if app.runner == "local":
        with LocalRunner() as runner:
            for allocation, count in sum(sizes.values(), Counter()).items():
                obstacle = runner.find_obstacle(RunSpec(app=app.name, parameters={}, allocation=allocation))
                if obstacle is not None:
                    impossible[obstacle] += app.repetitions * count
    return AppCheck(
        app=app.name,
        scaled_down_runs=small,
        full_scale_runs=full,
        excluded_runs=count_runs(app) - small - full,
        impossible_here=dict(impossible),
        warning=find_program_problem(app),
    )
