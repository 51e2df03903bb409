"""The command ``foretell observe``."""

from pathlib import Path

import click

from foretell.cli._click import argument, command
from foretell.cli._options import PATH, json_option, parse_option, parse_optional, store_option
from foretell.cli._output import check_plot, make_folder, note, show, show_json, write_plot
from foretell.cli._places import find_kept_folder, find_store

_SIGNAL_EXIT_CODE = 128  # as shells: 128 + the signal


@command(
    examples=[
        "foretell observe -- torchrun --nproc-per-node 2 train.py",
        "foretell observe --pid 4711 --duration 30s",
        "foretell observe --job 1234 --duration 1m --plot job.png",
    ],
    context_settings={"allow_interspersed_args": False},
)
@argument("command", nargs=-1, metavar="[COMMAND]...", help="The command to run and sample, after --.")
@click.option(
    "--pid", multiple=True, type=click.IntRange(min=1), help="Sample this process and its descendants; repeatable."
)
@click.option("--job", metavar="ID", help="Sample a running Slurm job, on its node.")
@click.option("--interval", default="20ms", help="Between two samples; 10ms to 50ms suit bursts best.")
@click.option("--duration", help="For how long to sample; default: until it ends.")
@click.option("--least", help="Shorter bursts and idle times are noise; default: a quarter of the median.")
@click.option("--plot", type=PATH, metavar="FILE", help="Plot it over time, as .png or .svg.")
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
    """Sample a job while it runs: its bursts and idle times of compute and network."""
    from foretell.core.units import parse_duration
    from foretell.observations import api
    from foretell.observations.render import build_observation_record, render_observation

    check_plot(plot)
    if plot is not None:
        make_folder(plot.parent)  # before the job runs
    observation = api.observe(
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
        show_json(build_observation_record(observation))
    else:
        show([render_observation(observation)])
        note(f"Stored as run {observation.run_id}; all samples are in {observation.path}.")
    if plot is not None:
        from foretell.observations.plots import draw_observation

        write_plot(draw_observation(observation), plot)
        note(f"Wrote {plot}.")
    if observation.exit_code:
        raise click.exceptions.Exit(
            observation.exit_code if observation.exit_code > 0 else _SIGNAL_EXIT_CODE - observation.exit_code
        )
