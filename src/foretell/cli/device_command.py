"""The command ``foretell device``."""

from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli._common import JsonOption, UnusedStoreOption, find_kept_folder, note_unused_store, parse_option
from foretell.cli._output import note, open_console, show, show_json

if TYPE_CHECKING:
    from foretell.steps.step_results import LearnedDevice

app = typer.Typer(help="Show the devices whose training steps can be told, and learn your own.", no_args_is_help=True)


@app.command("list", epilog="Example: foretell device list")
def list_devices(store: UnusedStoreOption = None, as_json: JsonOption = False) -> None:
    """List known devices with their figures, and where their times come from."""
    from foretell.steps import api
    from foretell.steps.render import render_devices

    note_unused_store(store)
    devices = api.list_devices(folder=find_kept_folder())
    if as_json:
        show_json(devices)
    else:
        show([render_devices(devices)])


@app.command("learn", epilog="Example: foretell device learn --budget 5m")
def learn_device(
    budget: Annotated[str, typer.Option(help="How long to measure in all; again with more goes on.")] = "5m",
    name: Annotated[
        str | None, typer.Option(help="What to call it; default: its own name, cpu for this machine.")
    ] = None,
    store: UnusedStoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure small networks on the device at hand, and learn to tell how long others take on it."""
    from foretell.core.units import parse_duration
    from foretell.steps.render import render_learned
    from foretell.steps.step_records import build_learned_record

    budget_s = parse_option("--budget", parse_duration, budget)
    note_unused_store(store)
    note(f"Measuring for {budget} in all; leave this machine alone meanwhile. Ctrl-C keeps what was measured.")
    try:
        learned = _learn(budget_s, name)
    except KeyboardInterrupt:
        note("Stopped. What was measured is kept; the same command goes on.")
        raise typer.Exit(130) from None
    if as_json:
        show_json(build_learned_record(learned))
    else:
        show([render_learned(learned)])


def _learn(budget_s: float, name: str | None) -> "LearnedDevice":
    from foretell.steps import api
    from foretell.steps.render import describe_learning

    with open_console(stderr=True).status("Measuring…") as status:
        return api.learn_device(
            name=name,
            budget_s=budget_s,
            folder=find_kept_folder(),
            on_progress=lambda known: status.update(describe_learning(len(known.profiles), known.seconds, budget_s)),
        )
