"""The command ``foretell observe``."""

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli._common import JsonOption, StoreOption, find_kept_folder, find_store, parse_option, parse_optional
from foretell.cli._output import check_plot, make_folder, note, show, show_json

EXAMPLES = (
    "Examples: foretell observe -- torchrun --nproc-per-node 2 train.py | foretell observe --pid 4711 --duration 30s | "
    "foretell observe --job 1234 --duration 1m --plot job.png"
)
_SIGNALLED = 128  # exit codes, as shells have them


def observe(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="What to run and look at, after --.")
    ] = None,
    pid: Annotated[
        list[int] | None, typer.Option(min=1, help="Look at this process and its descendants; repeatable.")
    ] = None,
    job: Annotated[str | None, typer.Option(metavar="ID", help="Look at a running job of Slurm, on its node.")] = None,
    interval: Annotated[str, typer.Option(help="Between two samples; 10ms to 50ms show bursts best.")] = "20ms",
    duration: Annotated[str | None, typer.Option(help="Look for so long; default: until it ends.")] = None,
    least: Annotated[
        str | None, typer.Option(help="Take shorter bursts and idles for noise; default: by how long most are.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it over time, as .png or .svg.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look at a job while it runs: its bursts and idles of compute and network, over time."""
    from foretell.core.units import parse_duration
    from foretell.observations import api
    from foretell.observations.render import build_observation_record, render_observation

    check_plot(plot)
    if plot is not None:
        make_folder(plot.parent)  # now, and not when the job has run
    seen = api.observe(
        command or (),
        pids=pid or (),
        job=job,
        interval_s=parse_option("--interval", parse_duration, interval),
        duration_s=parse_optional("--duration", parse_duration, duration),
        least_s=parse_optional("--least", parse_duration, least) or 0.0,
        keep_stdout=not as_json,
        store=find_store(store),
        folder=find_kept_folder(),
    )
    if as_json:
        show_json(build_observation_record(seen))
    else:
        show([render_observation(seen)])
        note(f"Stored as run {seen.run_id}; all samples are in {seen.path}.")
    if plot is not None:
        from foretell.observations.plots import draw_observation
        from foretell.render.figures import save_figure

        save_figure(draw_observation(seen), plot)
        note(f"Wrote {plot}.")
    if seen.exit_code:
        raise typer.Exit(seen.exit_code if seen.exit_code > 0 else _SIGNALLED - seen.exit_code)
