"""The command ``foretell consumption``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli._common import (
    JsonOption,
    LevelOption,
    UnusedStoreOption,
    find_kept_folder,
    note_unused_store,
    parse_option,
    parse_optional,
    parse_settings,
)
from foretell.cli._output import check_plot, make_folder, note, show, show_json
from foretell.cli.workload_command import (
    AccumulationOption,
    ArgumentOption,
    BatchOption,
    CheckpointingOption,
    ImplementationOption,
    InputOption,
    LossOption,
    OptimizerOption,
    PrecisionOption,
    SourceArgument,
    build_options,
)

if TYPE_CHECKING:
    from foretell.distributed.consumption import Setting, Strategy
    from foretell.distributed.learning import LearnedConsumption

app = typer.Typer(
    help="Say what distributed training will consume (compute, network, over time), and learn your own setting.",
    no_args_is_help=True,
)
StrategyOption = Annotated[str, typer.Option(help="allreduce, or ps for parameter servers.")]
WorkersOption = Annotated[int, typer.Option(help="Each has a device and a link of its own.")]
ServersOption = Annotated[
    int | None, typer.Option(help="Parameter servers, each with a link of its own; default: 1 with ps.")
]
AsynchronousOption = Annotated[
    bool, typer.Option("--asynchronous", help="Workers do not wait for each other, with ps.")
]
LinkOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="What each may send and, at the same time, receive, such as 10Gb or 1.2GB/s; "
        "default: one machine's memory.",
    ),
]
DeviceOption = Annotated[str, typer.Option(help="What each worker computes on; 'foretell device list' names them.")]


@app.command(
    "predict",
    epilog="Example: foretell consumption predict train.py:build_model --input 64,3,224,224 --workers 4 --link 10Gb "
    "--device T4",
)
def predict_consumption(
    source: SourceArgument,
    device: DeviceOption,
    inputs: InputOption = None,
    settings: ArgumentOption = None,
    batch: BatchOption = None,
    workers: WorkersOption = 2,
    strategy: StrategyOption = "allreduce",
    servers: ServersOption = None,
    asynchronous: AsynchronousOption = False,
    link: LinkOption = None,
    loss: LossOption = "auto",
    optimizer: OptimizerOption = "sgd",
    implementation: ImplementationOption = "for-loop",
    precision: PrecisionOption = "float32",
    accumulation: AccumulationOption = 1,
    checkpointing: CheckpointingOption = False,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="What 'consumption learn' learned; default: what ships.")
    ] = None,
    level: LevelOption = "90%",
    curves: Annotated[
        bool, typer.Option("--curves/--no-curves", help="Tell what another link, workers, servers, batch would change.")
    ] = True,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it, as .png or .svg.")] = None,
    store: UnusedStoreOption = None,
    as_json: JsonOption = False,
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
        options=build_options(loss, optimizer, implementation, precision, accumulation, checkpointing),
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


@app.command(
    "learn",
    epilog="Example: sudo foretell consumption learn --workers 2 --link 1Gb --device cpu --name lab",
)
def learn_consumption(
    device: DeviceOption,
    workers: WorkersOption = 2,
    strategy: StrategyOption = "allreduce",
    servers: ServersOption = None,
    asynchronous: AsynchronousOption = False,
    link: LinkOption = None,
    name: Annotated[str, typer.Option(help="What to call it; --model of predict takes it.")] = "here",
    jobs: Annotated[int, typer.Option(help="Trainings of small networks to measure; again with more goes on.")] = 20,
    repetitions: Annotated[int, typer.Option(help="How many times to measure each.")] = 1,
    scratch: Annotated[bool, typer.Option("--scratch", help="Forget what ships, and learn from these only.")] = False,
    store: UnusedStoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train small networks on this machine in a setting, measure what they consume, and learn that setting."""
    from foretell.distributed.render import build_learned_consumption_record, render_learned_consumption

    note_unused_store(store)
    setting = _build_setting(device, strategy, workers, servers, asynchronous, link)
    try:
        learned = _learn(setting, name=name, jobs=jobs, repetitions=repetitions, scratch=scratch)
    except KeyboardInterrupt:
        note("Stopped. What was measured is kept; the same command goes on.")
        raise typer.Exit(130) from None
    if as_json:
        show_json(build_learned_consumption_record(learned))
    else:
        show([render_learned_consumption(learned)])


@app.command(
    "scale",
    epilog="Example: foretell consumption scale steps.csv --workload bert --gpus 8 --gpus 2x8 --gpus 4x8",
)
def scale_steps(
    table: Annotated[
        Path,
        typer.Argument(
            help="Measured steps, as CSV or Parquet: batch (of a GPU), gpus (8, 4+2, 2x8), step_s; "
            "where they are known workload, cluster, sync_s, device, link."
        ),
    ],
    gpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GPUS",
            help="On each node, such as 8, 4+2 or 2x8; again for more; default: doublings to twice what was measured.",
        ),
    ] = None,
    batch: Annotated[float | None, typer.Option(help="Of one GPU; default: the largest that was measured.")] = None,
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="Which, if the table has several.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which, if the table has several; or another, with --device or --link."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="GPU of a cluster that the table has not.")] = None,
    link: Annotated[
        str | None, typer.Option(metavar="RATE", help="Between nodes of a cluster that the table has not, as 100Gb.")
    ] = None,
    efficiency: Annotated[
        str,
        typer.Option(metavar="SHARE", help="What each GPU has to do at least of what it does on the least GPUs told."),
    ] = "70%",
    level: LevelOption = "90%",
    as_json: JsonOption = False,
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
