"""The commands of ``foretell runs`` and ``foretell store``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.cli._click import Group, argument
from foretell.cli._options import PATH, app_argument, json_option, parse_option, store_option
from foretell.cli._output import note, say, show, show_json
from foretell.cli._places import find_app, find_store
from foretell.core.errors import Mistake, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretell.core.run import Run, State

_FEW = 20  # runs in a table

state_option = click.option("--state", multiple=True, help="Only runs in this state; repeatable.")
failed_option = click.option(
    "--failed", is_flag=True, help="Only runs that failed, reached a limit, or were cancelled."
)
set_aside_option = click.option("--set-aside", is_flag=True, help="Runs that 'generate --start-over' set aside.")

runs = Group("runs", help="List, show, export, import and delete stored runs.")


@runs.command("list", examples=["foretell runs list myapp --failed"])
@app_argument
@state_option
@failed_option
@set_aside_option
@click.option("--limit", type=click.IntRange(min=1), help=f"How many; default: {_FEW} in a table, all in JSON.")
@store_option
@json_option
def list_runs(
    app: str | None,
    state: tuple[str, ...],
    failed: bool,
    set_aside: bool,
    limit: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """List stored runs, newest first."""
    from foretell.apps import api
    from foretell.apps.render import build_run_record, render_runs

    app_name = find_app(app)
    page = api.list_runs(
        app_name,
        store=find_store(store, app_name),
        states=_parse_states(state, failed=failed),
        limit=limit if limit or as_json else _FEW,
        set_aside=set_aside,
    )
    if as_json:
        show_json({"total": page.total, "runs": [build_run_record(run) for run in page.runs]})
    else:
        show([render_runs(page.runs, total=page.total)])


@runs.command("show", examples=["foretell runs show 3f2a"])
@argument("run_id", help="The run's id, or its first characters.")
@store_option
@json_option
def show_run(
    run_id: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Show one run with all measurements and the end of its log."""
    from foretell.apps.render import build_run_record, render_run
    from foretell.stores.opening import reading_store

    with reading_store(find_store(store)) as opened:
        run = opened.get_run(run_id)
    if as_json:
        show_json(build_run_record(run))
    else:
        show([render_run(run)])


@runs.command("export", examples=["foretell runs export myapp --output runs.csv"])
@app_argument
@click.option("--output", type=PATH, help="A .csv or .parquet file; default: CSV to stdout.")
@state_option
@set_aside_option
@store_option
@json_option
def export_runs(
    app: str | None,
    output: Path | None,
    state: tuple[str, ...],
    set_aside: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Export stored runs as a table."""
    from foretell.apps import api
    from foretell.apps.render import build_run_record, build_runs_table
    from foretell.core.table_files import render_csv, save_table

    app_name = find_app(app)
    page = api.list_runs(
        app_name, store=find_store(store, app_name), states=_parse_states(state), limit=None, set_aside=set_aside
    )
    if as_json:
        show_json([build_run_record(run) for run in page.runs])
        return
    table = build_runs_table(page.runs)
    if output is None:
        click.echo(render_csv(table), nl=False)
        return
    save_table(table, output)
    note(f"Wrote {len(table)} runs to {output}.")


@runs.command(
    "import",
    examples=["foretell runs import past.csv --app dnn --elapsed walltime_s --scale run_type --drop job_id"],
)
@argument("source", type=PATH, help="A CSV, TSV or Parquet file with one run per row.")
@click.option("--app", "name", required=True, help="The app of the runs; it is created if necessary.")
@click.option("--elapsed", required=True, help="The column with the elapsed time.")
@click.option("--memory", help="The column with the peak memory.")
@click.option("--scale", help="The column with SD or FS; default: all are full scale.")
@click.option("--state", help="The column with the state; default: all completed.")
@click.option("--drop", multiple=True, help="A column to ignore; repeatable.")
@click.option("--elapsed-unit", default="1s", help="Unit of the time column: 1s, 1ms, 1m or 1h.")
@click.option("--memory-unit", default="1B", help="Unit of the memory column: 1B, 1KB, 1MB or 1GB.")
@store_option
@json_option
def import_runs(
    source: Path,
    name: str,
    elapsed: str,
    memory: str | None,
    scale: str | None,
    state: str | None,
    drop: tuple[str, ...],
    elapsed_unit: str,
    memory_unit: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Import runs from a table. Columns cores, gpus and nodes are resources; all others are parameters."""
    from foretell.apps import api as api_exchange
    from foretell.apps.imported_runs import Columns
    from foretell.apps.render import render_import
    from foretell.core.units import parse_bytes, parse_duration

    columns = Columns(
        elapsed=elapsed,
        memory=memory,
        scale=scale,
        state=state,
        drop=tuple(drop or ()),
        elapsed_unit_s=parse_option("--elapsed-unit", parse_duration, elapsed_unit),
        memory_unit_bytes=parse_option("--memory-unit", parse_bytes, memory_unit),
    )
    result = api_exchange.import_runs(source, app=name, columns=columns, store=find_store(store))
    if as_json:
        show_json(result)
    else:
        show([render_import(result)])


@runs.command("delete", examples=["foretell runs delete 3f2a 91c0", "foretell runs delete --app myapp --failed"])
@argument("run_ids", nargs=-1, metavar="[RUN]...", help="Ids of runs, or their first characters.")
@click.option("--app", "name", help="Runs of this app, instead of ids.")
@state_option
@failed_option
@set_aside_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_option
@json_option
def delete_runs(
    run_ids: tuple[str, ...],
    name: str | None,
    state: tuple[str, ...],
    failed: bool,
    set_aside: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Delete stored runs, by id or of an app. Running ones are kept."""
    from foretell.apps import api
    from foretell.stores.opening import using_store

    kinds = bool(name or state or failed or set_aside)
    if bool(run_ids) == kinds:
        found = "with ids of runs" if run_ids else "nothing to delete"
        expected = "ids of runs, or else --app, --state, --failed or --set-aside"
        raise SpecError("options", [Mistake(place="runs delete", found=found, expected=expected)])
    app_name = find_app(name) if kinds else None
    address = find_store(store, app_name)
    with using_store(address) as opened:
        if app_name is None:
            runs = tuple(api.find_runs(run_ids or (), store=opened))
        else:
            states = _parse_states(state, failed=failed)
            runs = api.list_runs(app_name, store=opened, states=states, set_aside=set_aside).runs
        going = [run for run in runs if run.state.final]
        if going and not yes:
            click.confirm(f"Delete {_count(going)}?", abort=True)
        deleted = opened.delete_runs(run.id for run in going)
    kept = len(runs) - len(going)
    if as_json:
        show_json({"deleted": deleted, "ids": [run.id for run in going], "under_way": kept})
        return
    say(f"Deleted {_count(going)}.")
    if kept:
        note(f"{kept} still running, which are kept. 'foretell cancel' cancels those that Slurm has.")


def _count(runs: "Sequence[Run]") -> str:
    apps = ", ".join(sorted({run.spec.app for run in runs}))
    return f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}{f' of {apps}' if apps else ''}"


def _parse_states(words: tuple[str, ...], *, failed: bool = False) -> "list[State] | None":
    from foretell.core.run import RETRIABLE, State

    known = {state.value: state for state in State}
    expected = f"one of {', '.join(known)}"
    mistakes = [Mistake(place="--state", found=repr(word), expected=expected) for word in words if word not in known]
    if mistakes:
        raise SpecError("options", mistakes)
    return [*(known[word] for word in words), *(RETRIABLE if failed else ())] or None


store = Group("store", help="Create a store for yourself or for a group.")


@store.command(examples=["foretell store create runs.db", "foretell store create /project/lab/store.db --group lab"])
@argument("path", type=PATH, metavar="PATH", help="The SQLite file to create.")
@click.option("--group", help="A Unix group whose members may read and write it; default: only you.")
@json_option
def create(
    path: Path,
    group: str | None,
    as_json: bool,
) -> None:
    """Create an empty SQLite store that only you, or also a group, can read and write."""
    from foretell import stores as api

    api.create_store(path, group=group)
    if as_json:
        show_json({"store": str(path.absolute()), "group": group})
        return
    whom = f"group {group}" if group else "you only"
    note(f"Created {path} for {whom}; use it with: --store {path}, or export FORETELL_STORE={path.absolute()}")
