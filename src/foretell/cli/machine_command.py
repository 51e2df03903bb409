"""The command ``foretell machine``."""

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli._common import JsonOption
from foretell.cli._output import note, show, show_json, write_text

app = typer.Typer(help="Show this machine, and measure how fast it is.", no_args_is_help=True)


@app.command("bench", epilog="Example: foretell machine bench --json > node.json")
def bench_machine(
    repeats: Annotated[int, typer.Option(min=1, help="How often to measure; the median counts.")] = 5,
    output: Annotated[
        Path | None, typer.Option(help="A file for the figures as JSON, beside what is printed.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how long this machine takes for fixed work, to carry runs from one machine to another."""
    from foretell.measure import api
    from foretell.render.machine_facts import render_bench
    from foretell.render.records import render_json

    note(f"Measuring {repeats} times; leave this machine alone meanwhile.")
    bench = api.bench_machine(repeats=repeats)
    if output is not None:
        write_text(output, f"{render_json(bench)}\n")
        note(f"Wrote {output}.")
    if as_json:
        show_json(bench)
    else:
        show([render_bench(bench)])


@app.command("show", epilog="Example: foretell machine show")
def show_machine(as_json: JsonOption = False) -> None:
    """Show this machine as runs made here will remember it, with its bench if one was kept."""
    from foretell.measure import api
    from foretell.render.machine_facts import build_machine_record, render_machine

    machine, bench = api.describe_machine()
    if as_json:
        show_json(build_machine_record(machine, bench))
    else:
        show([render_machine(machine, bench)])
