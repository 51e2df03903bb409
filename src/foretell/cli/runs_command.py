"""The command ``foretell runs``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli._common import AppArgument, JsonOption, StoreOption, find_app, find_store, parse_option
from foretell.cli._output import note, say, show, show_json
from foretell.core.errors import Mistake, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretell.core.run import Run, State

app = typer.Typer(help="List, show, export, import and delete stored runs.", no_args_is_help=True)
StateOption = Annotated[list[str] | None, typer.Option("--state", help="Only runs in this state; repeatable.")]
FailedOption = Annotated[
    bool, typer.Option("--failed", help="Only runs that did not complete: failed, stopped at a limit, cancelled.")
]
SetAsideOption = Annotated[bool, typer.Option("--set-aside", help="The runs that 'generate --start-over' set aside.")]


@app.command("list", epilog="Example: foretell runs list myapp --failed")
def list_runs(
    name: AppArgument = None,
    state: StateOption = None,
    failed: FailedOption = False,
    set_aside: SetAsideOption = False,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List stored runs, newest first."""
    from foretell.apps import api
    from foretell.apps.render import build_run_record, render_runs

    app_name = find_app(name)
    page = api.list_runs(
        app_name,
        store=find_store(store, app_name),
        states=_parse_states(state, failed=failed),
        limit=limit,
        set_aside=set_aside,
    )
    if as_json:
        show_json({"total": page.total, "runs": [build_run_record(run) for run in page.runs]})
    else:
        show([render_runs(page.runs, total=page.total)])


@app.command("show", epilog="Example: foretell runs show 3f2a")
def show_run(
    run_id: Annotated[str, typer.Argument(help="A run's id, or how it begins.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one run with all that was measured, and the end of its log."""
    from foretell.apps.render import build_run_record, render_run
    from foretell.apps.workspace import using_store

    with using_store(find_store(store)) as opened:
        run = opened.get_run(run_id)
    if as_json:
        show_json(build_run_record(run))
    else:
        show([render_run(run)])


@app.command("export", epilog="Example: foretell runs export myapp --output runs.csv")
def export_runs(
    name: AppArgument = None,
    output: Annotated[Path | None, typer.Option(help="A .csv or .parquet file; default: CSV here.")] = None,
    state: StateOption = None,
    set_aside: SetAsideOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write stored runs as a table."""
    from foretell.apps import api
    from foretell.apps.render import build_run_record, build_runs_frame
    from foretell.render.tables import save_frame

    app_name = find_app(name)
    page = api.list_runs(
        app_name, store=find_store(store, app_name), states=_parse_states(state), limit=None, set_aside=set_aside
    )
    if as_json:
        show_json([build_run_record(run) for run in page.runs])
        return
    frame = build_runs_frame(page.runs)
    if output is None:
        typer.echo(frame.to_csv(index=False), nl=False)
        return
    save_frame(frame, output)
    note(f"Wrote {len(frame)} runs to {output}.")


@app.command(
    "import",
    epilog="Example: foretell runs import past.csv --app dnn --elapsed walltime_s --scale run_type --drop job_id",
)
def import_runs(
    source: Annotated[Path, typer.Argument(help="A CSV, TSV or Parquet file, a run a row.")],
    name: Annotated[str, typer.Option("--app", help="The app the runs are of; it need not exist.")],
    elapsed: Annotated[str, typer.Option(help="The column of the time a run took.")],
    memory: Annotated[str | None, typer.Option(help="The column of its peak memory.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="The column that says SD or FS; default: all are full scale.")
    ] = None,
    state: Annotated[str | None, typer.Option(help="The column of its state; default: all completed.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; repeatable.")] = None,
    elapsed_unit: Annotated[str, typer.Option(help="What 1 means in the time column: 1s, 1ms, 1m, 1h.")] = "1s",
    memory_unit: Annotated[str, typer.Option(help="What 1 means in the memory column: 1B, 1KB, 1MB, 1GB.")] = "1B",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store runs from a table. Columns cores, gpus and nodes are resources; every other one is a parameter."""
    from foretell.apps import api as api_exchange
    from foretell.apps import table_files as apps_tables
    from foretell.apps.render import render_import
    from foretell.core.units import parse_bytes, parse_duration

    columns = apps_tables.Columns(
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


@app.command("delete", epilog="Examples: foretell runs delete 3f2a 91c0 | foretell runs delete --app myapp --failed")
def delete_runs(
    run_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Ids of runs, or how they begin.", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option("--app", help="All runs of this app instead.")] = None,
    state: StateOption = None,
    failed: FailedOption = False,
    set_aside: SetAsideOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget stored runs: those named, or those of an app, all or some of them. Runs under way stay."""
    from foretell.apps import api
    from foretell.apps.workspace import using_store

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
            typer.confirm(f"Forget {_count(going)}?", abort=True)
        deleted = opened.delete_runs(run.id for run in going)
    kept = len(runs) - len(going)
    if as_json:
        show_json({"deleted": deleted, "ids": [run.id for run in going], "under_way": kept})
        return
    say(f"Forgot {_count(going)}.")
    if kept:
        note(f"{kept} still under way: they stay. 'foretell cancel' cancels those that Slurm has.")


def _count(runs: "Sequence[Run]") -> str:
    apps = ", ".join(sorted({run.spec.app for run in runs}))
    return f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}{f' of {apps}' if apps else ''}"


def _parse_states(words: list[str] | None, *, failed: bool = False) -> "list[State] | None":
    from foretell.core.run import RETRIABLE, State

    known = {state.value: state for state in State}
    expected = f"one of {', '.join(known)}"
    mistakes = [
        Mistake(place="--state", found=repr(word), expected=expected) for word in words or () if word not in known
    ]
    if mistakes:
        raise SpecError("options", mistakes)
    return [*(known[word] for word in words or ()), *(RETRIABLE if failed else ())] or None
