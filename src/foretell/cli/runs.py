"""The command ``foretell runs``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli._common import (
    AppArgument,
    JsonOption,
    StoreOption,
    find_app,
    find_store,
    note,
    parse_option,
    show,
    show_json,
)
from foretell.errors import Mistake, SpecError

if TYPE_CHECKING:
    from foretell.entities.run import State

app = typer.Typer(help="List, show, export, import and delete stored runs.", no_args_is_help=True)
StateOption = Annotated[list[str] | None, typer.Option("--state", help="Only runs in this state; repeatable.")]


@app.command("list", epilog="Example: foretell runs list myapp --state failed")
def list_runs(
    name: AppArgument = None,
    state: StateOption = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List stored runs, newest first."""
    from foretell import api
    from foretell.reports.records import build_run_record
    from foretell.reports.text_runs import render_runs

    app_name = find_app(name)
    page = api.list_runs(app_name, store=find_store(store, app_name), states=_parse_states(state), limit=limit)
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
    from foretell import api
    from foretell.reports.records import build_run_record
    from foretell.reports.text_runs import render_run

    with api.open_store(find_store(store)) as opened:
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
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write stored runs as a table."""
    from foretell import api
    from foretell.reports.records import build_run_record, build_runs_frame
    from foretell.reports.tables_out import save_frame

    app_name = find_app(name)
    page = api.list_runs(app_name, store=find_store(store, app_name), states=_parse_states(state), limit=None)
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
    from foretell import api
    from foretell.entities.units import parse_bytes, parse_duration
    from foretell.reports.text_checks import render_import

    columns = api.Columns(
        elapsed=elapsed,
        memory=memory,
        scale=scale,
        state=state,
        drop=tuple(drop or ()),
        elapsed_unit_s=parse_option("--elapsed-unit", parse_duration, elapsed_unit),
        memory_unit_bytes=parse_option("--memory-unit", parse_bytes, memory_unit),
    )
    result = api.import_runs(source, app=name, columns=columns, store=find_store(store))
    if as_json:
        show_json(result)
    else:
        show([render_import(result)])


@app.command("delete", epilog="Example: foretell runs delete myapp --state failed")
def delete_runs(
    name: AppArgument = None,
    state: StateOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget stored runs of an app, all or those in a state."""
    from foretell import api

    app_name = find_app(name)
    address = find_store(store, app_name)
    page = api.list_runs(app_name, store=address, states=_parse_states(state), limit=None)
    if not yes:
        typer.confirm(f"Forget {len(page.runs)} runs of {page.app}?", abort=True)
    with api.open_store(address) as opened:
        deleted = opened.delete_runs(run.id for run in page.runs)
    if as_json:
        show_json({"app": page.app, "deleted": deleted})
    else:
        typer.echo(f"Forgot {deleted} runs of {page.app}.")


def _parse_states(words: list[str] | None) -> "list[State] | None":
    from foretell.entities.run import State

    if not words:
        return None
    known = {state.value: state for state in State}
    expected = f"one of {', '.join(known)}"
    mistakes = [Mistake(place="--state", found=repr(word), expected=expected) for word in words if word not in known]
    if mistakes:
        raise SpecError("options", mistakes)
    return [known[word] for word in words]
