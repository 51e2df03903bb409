"""The commands of ``foretell consumption``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.cli._click import Group, argument, combine
from foretell.cli._options import (
    PATH,
    batch_option,
    build_step_options,
    json_option,
    level_option,
    model_options,
    parse_option,
    parse_optional,
    parse_settings,
    training_options,
    unused_store_option,
)
from foretell.cli._output import check_plot, note, show, show_json, write_plot
from foretell.cli._places import find_kept_folder, note_unused_store
from foretell.core.errors import Mistake, SpecError

if TYPE_CHECKING:
    from foretell.distributed.consumption import Setting, Strategy

_METHODS = "timeline, driple (the published method), totals or bandwidth"

setting_options = combine(
    click.option("--device", required=True, help="The device of each worker; 'foretell device list' prints them."),
    click.option("--workers", type=int, default=2, help="Each has its own device and link."),
    click.option("--strategy", default="allreduce", help="allreduce, or ps for parameter servers."),
    click.option("--servers", type=int, help="Parameter servers, each with its own link; default: 1 with ps."),
    click.option("--asynchronous", is_flag=True, help="Workers do not wait for each other, with ps."),
    click.option(
        "--link",
        metavar="RATE",
        help="What each can send and, at the same time, receive, such as 10Gb or 1.2GB/s; "
        "default: the memory of one machine.",
    ),
)

consumption = Group(
    "consumption",
    help="Predict what distributed training consumes (compute and network over time), and fit models to measurements.",
)


@consumption.command(
    "predict",
    examples=[
        "foretell consumption predict train.py:build_model --input 64,3,224,224 --workers 4 --link 10Gb --device T4"
    ],
)
@model_options
@batch_option
@setting_options
@training_options
@click.option("--method", metavar="METHOD", help=f"{_METHODS}; default: that of the model, or timeline.")
@click.option("--model", metavar="NAME", help="A model of 'consumption learn'; default: the one that ships.")
@level_option
@click.option("--curves/--no-curves", default=True, help="Also predict other links, workers, servers and batches.")
@click.option("--plot", type=PATH, metavar="FILE", help="Plot it, as .png or .svg.")
@unused_store_option
@json_option
def predict_consumption(
    source: str,
    device: str,
    inputs: tuple[str, ...],
    settings: tuple[str, ...],
    batch: int | None,
    workers: int,
    strategy: str,
    servers: int | None,
    asynchronous: bool,
    link: str | None,
    method: str | None,
    model: str | None,
    level: str,
    curves: bool,
    plot: Path | None,
    store: str | None,
    as_json: bool,
    **training: Any,
) -> None:
    """Predict what each worker of a training consumes, what limits it, and what would change, without running it."""
    from foretell.core.units import parse_share
    from foretell.distributed import api
    from foretell.distributed.render import build_outlook_record, render_outlook

    check_plot(plot)
    note_unused_store(store)
    outlook = api.explore_consumption(
        source,
        inputs or (),
        setting=_build_setting(device, strategy, workers, servers, asynchronous, link),
        batch=batch,
        arguments=parse_settings(settings),
        options=build_step_options(**training),
        method=method,
        model=model,
        curves=curves,
        level=parse_option("--level", parse_share, level),
        folder=find_kept_folder(),
    )
    if plot is not None:
        from foretell.distributed.plots import draw_outlook

        write_plot(draw_outlook(outlook), plot)
    if as_json:
        show_json(build_outlook_record(outlook))
    else:
        show([render_outlook(outlook)])
    if plot is not None:
        note(f"Wrote {plot}.")


@consumption.command(
    "learn",
    examples=[
        "foretell consumption learn --jobs jobs.jsonl --name lab",
        "foretell consumption learn --jobs jobs.jsonl --method driple --name gnn",
    ],
)
@click.option(
    "--jobs",
    type=PATH,
    metavar="FILE",
    help="Measured trainings, as 'python -m lab measure --out FILE' writes them; .gz is read too.",
)
@click.option("--method", default="timeline", help=f"{_METHODS}.")
@click.option("--name", default="here", help="Of the model; --model of predict takes it.")
@click.option("--from", "base", metavar="NAME", help="The model to transfer from; default: the one that ships, if any.")
@click.option("--scratch", is_flag=True, help="Fit to these trainings only, without transfer.")
@click.option(
    *("--device", "--workers", "--strategy", "--servers", "--link", "--repetitions"),
    "moved",
    multiple=True,
    hidden=True,
)
@click.option("--asynchronous", "moved_flag", is_flag=True, hidden=True)
@unused_store_option
@json_option
def learn_consumption(
    jobs: Path | None,
    method: str,
    name: str,
    base: str | None,
    scratch: bool,
    moved: tuple[str, ...],
    moved_flag: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Fit a model to measured trainings: transferred from the one that ships, or from scratch."""
    from foretell.distributed import api
    from foretell.distributed.render import build_learned_consumption_record, render_learned_consumption

    note_unused_store(store)
    learned = api.learn_consumption(
        _require_jobs(jobs, measures=bool(moved) or moved_flag),
        name=name,
        method=method,
        base=base,
        scratch=scratch,
        folder=find_kept_folder(),
    )
    if as_json:
        show_json(build_learned_consumption_record(learned))
    else:
        show([render_learned_consumption(learned)])


def _require_jobs(jobs: Path | None, *, measures: bool) -> Path:
    """The file of measured trainings; options that once measured them are those of the lab now."""
    if jobs is None or measures or (jobs.name.isdigit() and not jobs.exists()):
        found = "options that measure trainings" if measures or jobs else "none"
        expected = (
            "--jobs FILE with measured trainings, as 'python -m lab measure --out FILE' of the source repository "
            "writes them; it takes --device, --workers, --strategy, --servers, --asynchronous, --link, --jobs and "
            "--repetitions"
        )
        raise SpecError("options", [Mistake(place="--jobs", found=found, expected=expected)])
    return jobs


@consumption.command(
    "scale", examples=["foretell consumption scale steps.csv --workload bert --gpus 8 --gpus 2x8 --gpus 4x8"]
)
@argument(
    "table",
    type=PATH,
    help="Measured steps, as CSV or Parquet: batch (of a GPU), gpus (8, 4+2, 2x8), step_s; "
    "optional: workload, cluster, sync_s, device, link.",
)
@click.option(
    "--gpus",
    multiple=True,
    metavar="GPUS",
    help="On each node, such as 8, 4+2 or 2x8; repeatable; default: doublings, to twice the measured GPUs.",
)
@click.option("--batch", type=float, help="Of one GPU; default: the largest measured.")
@click.option("--workload", metavar="NAME", help="Needed if the table has several.")
@click.option(
    "--cluster", metavar="NAME", help="Needed if the table has several; or another one, with --device or --link."
)
@click.option("--device", help="The GPU of a cluster that is not in the table.")
@click.option("--link", metavar="RATE", help="Between nodes of a cluster that is not in the table, such as 100Gb.")
@click.option(
    "--efficiency",
    default="70%",
    metavar="SHARE",
    help="Required work of each GPU, relative to a GPU of the smallest placement.",
)
@level_option
@json_option
def scale_steps(
    table: Path,
    gpus: tuple[str, ...],
    batch: float | None,
    workload: str | None,
    cluster: str | None,
    device: str | None,
    link: str | None,
    efficiency: str,
    level: str,
    as_json: bool,
) -> None:
    """Predict the time of a training's step on more GPUs than were measured, and how many are worth requesting."""
    from foretell.core.units import parse_rate, parse_share
    from foretell.distributed import api
    from foretell.distributed.placed_steps import PlacementComparison, parse_placement
    from foretell.distributed.render import build_placements_record, render_placements

    required = parse_option("--efficiency", parse_share, efficiency)
    predictions = api.predict_placements(
        table,
        placements=[parse_option("--gpus", parse_placement, each) for each in gpus or ()],
        batch=batch,
        workload=workload,
        cluster=cluster,
        device=device,
        link_bytes_per_s=parse_optional("--link", parse_rate, link),
        level=parse_option("--level", parse_share, level),
    )
    comparison = PlacementComparison(predictions=tuple(predictions), efficiency=required)
    if as_json:
        show_json(build_placements_record(comparison))
    else:
        show([render_placements(comparison)])


def _build_setting(
    device: str, strategy: str, workers: int, servers: int | None, asynchronous: bool, link: str | None
) -> "Setting":
    from foretell.core.units import parse_rate
    from foretell.distributed import consumption as api

    how = parse_option("--strategy", _parse_strategy, strategy)
    default = 1 if how is api.Strategy.SERVERS else 0
    return api.Setting(
        strategy=how,
        workers=workers,
        servers=default if servers is None else servers,
        synchronous=not asynchronous,
        link_bytes_per_s=parse_optional("--link", parse_rate, link),
        device=device,
    )


def _parse_strategy(text: str) -> "Strategy":
    from foretell.distributed import consumption as api

    try:
        return api.Strategy(text)
    except ValueError:
        raise ValueError(" or ".join(api.Strategy)) from None
