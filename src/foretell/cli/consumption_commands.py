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
from foretell.cli._output import check_plot, make_folder, note, show, show_json
from foretell.cli._places import find_kept_folder, note_unused_store

if TYPE_CHECKING:
    from foretell.distributed.consumption import Setting, Strategy
    from foretell.distributed.learning import LearnedConsumption

setting_options = combine(
    click.option("--device", required=True, help="What each worker computes on; 'foretell device list' names them."),
    click.option("--workers", type=int, default=2, help="Each has a device and a link of its own."),
    click.option("--strategy", default="allreduce", help="allreduce, or ps for parameter servers."),
    click.option("--servers", type=int, help="Parameter servers, each with a link of its own; default: 1 with ps."),
    click.option("--asynchronous", is_flag=True, help="Workers do not wait for each other, with ps."),
    click.option(
        "--link",
        metavar="RATE",
        help="What each may send and, at the same time, receive, such as 10Gb or 1.2GB/s; "
        "default: one machine's memory.",
    ),
)

consumption = Group(
    "consumption",
    help="Say what distributed training will consume (compute, network, over time), and learn your own setting.",
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
@click.option("--model", metavar="NAME", help="What 'consumption learn' learned; default: what ships.")
@level_option
@click.option(
    "--curves/--no-curves", default=True, help="Tell what another link, workers, servers, batch would change."
)
@click.option("--plot", type=PATH, metavar="FILE", help="Draw it, as .png or .svg.")
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
    model: str | None,
    level: str,
    curves: bool,
    plot: Path | None,
    store: str | None,
    as_json: bool,
    **training: Any,
) -> None:
    """Say what each worker of a training will consume, what limits it, and what would change, without running it."""
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
        model=model,
        curves=curves,
        level=parse_option("--level", parse_share, level),
        folder=find_kept_folder(),
    )
    if plot is not None:
        from foretell.distributed.plots import draw_outlook
        from foretell.render.figures import save_figure

        make_folder(plot.parent)
        save_figure(draw_outlook(outlook), plot)
    if as_json:
        show_json(build_outlook_record(outlook))
    else:
        show([render_outlook(outlook)])
    if plot is not None:
        note(f"Wrote {plot}.")


@consumption.command(
    "learn", examples=["sudo foretell consumption learn --workers 2 --link 1Gb --device cpu --name lab"]
)
@setting_options
@click.option("--name", default="here", help="What to call it; --model of predict takes it.")
@click.option("--jobs", type=int, default=20, help="Trainings of small networks to measure; again with more goes on.")
@click.option("--repetitions", type=int, default=1, help="How many times to measure each.")
@click.option("--scratch", is_flag=True, help="Forget what ships, and learn from these only.")
@unused_store_option
@json_option
def learn_consumption(
    device: str,
    workers: int,
    strategy: str,
    servers: int | None,
    asynchronous: bool,
    link: str | None,
    name: str,
    jobs: int,
    repetitions: int,
    scratch: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Train small networks on this machine in a setting, measure what they consume, and learn that setting."""
    from foretell.distributed.render import build_learned_consumption_record, render_learned_consumption

    note_unused_store(store)
    setting = _build_setting(device, strategy, workers, servers, asynchronous, link)
    try:
        learned = _learn(setting, name=name, jobs=jobs, repetitions=repetitions, scratch=scratch)
    except KeyboardInterrupt:
        note("Stopped. What was measured is kept; the same command goes on.")
        raise click.exceptions.Exit(130) from None
    if as_json:
        show_json(build_learned_consumption_record(learned))
    else:
        show([render_learned_consumption(learned)])


@consumption.command(
    "scale", examples=["foretell consumption scale steps.csv --workload bert --gpus 8 --gpus 2x8 --gpus 4x8"]
)
@argument(
    "table",
    type=PATH,
    help="Measured steps, as CSV or Parquet: batch (of a GPU), gpus (8, 4+2, 2x8), step_s; "
    "where they are known workload, cluster, sync_s, device, link.",
)
@click.option(
    "--gpus",
    multiple=True,
    metavar="GPUS",
    help="On each node, such as 8, 4+2 or 2x8; again for more; default: doublings to twice what was measured.",
)
@click.option("--batch", type=float, help="Of one GPU; default: the largest that was measured.")
@click.option("--workload", metavar="NAME", help="Which, if the table has several.")
@click.option("--cluster", metavar="NAME", help="Which, if the table has several; or another, with --device or --link.")
@click.option("--device", help="GPU of a cluster that the table has not.")
@click.option("--link", metavar="RATE", help="Between nodes of a cluster that the table has not, as 100Gb.")
@click.option(
    "--efficiency",
    default="70%",
    metavar="SHARE",
    help="What each GPU has to do at least of what it does on the least GPUs told.",
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
    """Say how long a training's step takes on more GPUs than were measured, and how many are worth asking for."""
    from foretell.core.units import parse_rate, parse_share
    from foretell.distributed import api
    from foretell.distributed.placed_steps import parse_placement
    from foretell.distributed.placement_render import build_placements_record, render_placements

    least = parse_option("--efficiency", parse_share, efficiency)
    told = api.predict_placements(
        table,
        placements=[parse_option("--gpus", parse_placement, each) for each in gpus or ()],
        batch=batch,
        workload=workload,
        cluster=cluster,
        device=device,
        link_bytes_per_s=parse_optional("--link", parse_rate, link),
        level=parse_option("--level", parse_share, level),
    )
    if as_json:
        show_json(build_placements_record(told, efficiency=least))
    else:
        show([render_placements(told, efficiency=least)])


def _learn(setting: "Setting", *, name: str, jobs: int, repetitions: int, scratch: bool) -> "LearnedConsumption":
    from foretell.distributed import learning as api
    from foretell.distributed.render import describe_job

    note("Measuring; leave this machine alone meanwhile. Ctrl-C keeps what was measured.")
    return api.learn_consumption(
        setting,
        name=name,
        jobs=jobs,
        repetitions=repetitions,
        scratch=scratch,
        folder=find_kept_folder(),
        on_progress=lambda progress: note(describe_job(progress)),
    )


def _build_setting(
    device: str, strategy: str, workers: int, servers: int | None, asynchronous: bool, link: str | None
) -> "Setting":
    from foretell.core.units import parse_rate
    from foretell.distributed import consumption as api

    how = parse_option("--strategy", _parse_strategy, strategy)
    usual = 1 if how is api.Strategy.SERVERS else 0
    return api.Setting(
        strategy=how,
        workers=workers,
        servers=usual if servers is None else servers,
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
