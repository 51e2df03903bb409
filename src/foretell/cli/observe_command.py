"""The command ``foretell observe``."""

from pathlib import Path

import click

from foretell.cli._click import argument, command
from foretell.cli._options import PATH, json_option, parse_option, parse_optional, store_option
from foretell.cli._output import check_plot, make_folder, note, show, show_json, write_plot
from foretell.cli._places import find_kept_folder, find_store

_SIGNALLED = 128  # exit codes, as shells have them


@command(
    examples=[
        "foretell observe -- torchrun --nproc-per-node 2 train.py",
        "foretell observe --pid 4711 --duration 30s",
        "foretell observe --job 1234 --duration 1m --plot job.png",
    ],
    context_settings={"allow_interspersed_args": False},
)
@argument("command", nargs=-1, metavar="[COMMAND]...", help="What to run and look at, after --.")
@click.option(
    "--pid", multiple=True, type=click.IntRange(min=1), help="Look at this process and its descendants; repeatable."
)
@click.option("--job", metavar="ID", help="Look at a running job of Slurm, on its node.")
@click.option("--interval", default="20ms", help="Between two samples; 10ms to 50ms show bursts best.")
@click.option("--duration", help="Look for so long; default: until it ends.")
@click.option("--least", help="Take shorter bursts and idles for noise; default: by how long most are.")
@click.option("--plot", type=PATH, metavar="FILE", help="Draw it over time, as .png or .svg.")
@store_option
@json_option
def observe(
    command: tuple[str, ...],
    pid: tuple[int, ...],
    job: str | None,
    interval: str,
    duration: str | None,
    least: str | None,
    plot: Path | None,
    store: str | None,
    as_json: bool,
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

        write_plot(draw_observation(seen), plot)
        note(f"Wrote {plot}.")
    if seen.exit_code:
        raise click.exceptions.Exit(seen.exit_code if seen.exit_code > 0 else _SIGNALLED - seen.exit_code)
