"""The command ``foretell workload``."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli._common import (
    JsonOption,
    LevelOption,
    StoreOption,
    UnusedStoreOption,
    find_kept_folder,
    find_store,
    note_unused_store,
    parse_option,
    parse_optional,
    parse_settings,
)
from foretell.cli._output import make_folder, note, open_console, show, show_json, write_text
from foretell.core.errors import OutputError

if TYPE_CHECKING:
    from foretell.core.workload import Workload

app = typer.Typer(
    help="Read a training step from a model's code, measure it here, predict it for a device.", no_args_is_help=True
)
SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="FILE.py:FACTORY, PACKAGE.MODULE:FACTORY, a Hugging Face config.json, or a .pt2 program.",
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="SHAPE",
        help="What the model is given, [NAME=]SHAPE[:DTYPE[:HIGH]], as in 32,3,224,224 or ids=8,128:int64:30522; "
        "repeat for each.",
    ),
]
ArgumentOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An argument of the factory; repeatable.")
]
BatchOption = Annotated[int | None, typer.Option(min=1, help="The first size of every input; default: as they say.")]
LossOption = Annotated[
    str, typer.Option(help="cross_entropy, mse, sum, own, or auto: the model's own where it has one.")
]
OptimizerOption = Annotated[str, typer.Option(help="sgd (with momentum), adam or adamw.")]
ImplementationOption = Annotated[str, typer.Option(help="The optimizer's: for-loop, foreach or fused.")]
PrecisionOption = Annotated[str, typer.Option(help="float32, mixed bf16 or fp16, pure-bf16 or pure-fp16.")]
AccumulationOption = Annotated[int, typer.Option(min=1, help="Batches before each update.")]
CheckpointingOption = Annotated[
    bool, typer.Option("--checkpointing", help="Compute activations again in the backward phase.")
]
RowsOption = Annotated[int, typer.Option(min=1, help="Operators to show.")]


@app.command("show", epilog="Example: foretell workload show train.py:build_model --input 32,3,224,224")
def show_workload(
    source: SourceArgument,
    inputs: InputOption = None,
    settings: ArgumentOption = None,
    batch: BatchOption = None,
    loss: LossOption = "auto",
    optimizer: OptimizerOption = "sgd",
    implementation: ImplementationOption = "for-loop",
    precision: PrecisionOption = "float32",
    accumulation: AccumulationOption = 1,
    checkpointing: CheckpointingOption = False,
    rows: RowsOption = 20,
    whole: Annotated[bool, typer.Option("--all", help="Show every operator.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="All operators as .parquet, .csv or .json, beside what is shown."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List what a model's training step does, operator by operator, without running it."""
    from foretell.steps import api
    from foretell.steps.render import render_workload
    from foretell.steps.step_records import build_workload_record

    options = build_options(loss, optimizer, implementation, precision, accumulation, checkpointing)
    workload = api.read_workload(source, inputs or (), arguments=parse_settings(settings), options=options, batch=batch)
    if output is not None:
        _save(workload, output)
    if as_json:
        show_json(build_workload_record(workload))
    else:
        show([render_workload(workload, rows=None if whole else rows)])
    if output is not None:
        note(f"Wrote {output}.")


@app.command("profile", epilog="Example: foretell workload profile train.py:build_model --input 32,3,224,224")
def profile_workload(
    source: SourceArgument,
    inputs: InputOption = None,
    settings: ArgumentOption = None,
    batch: BatchOption = None,
    loss: LossOption = "auto",
    optimizer: OptimizerOption = "sgd",
    implementation: ImplementationOption = "for-loop",
    precision: PrecisionOption = "float32",
    accumulation: AccumulationOption = 1,
    checkpointing: CheckpointingOption = False,
    seconds: Annotated[str, typer.Option(help="How long to measure, beside some steps to warm up.")] = "1s",
    rows: RowsOption = 12,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A further file for the profile, which predict takes (JSON).")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a few real steps on the device at hand, measure each operator, and keep it as a run."""
    from foretell.core.units import parse_duration
    from foretell.steps import api
    from foretell.steps.render import render_profile
    from foretell.steps.step_records import build_profile_record

    options = build_options(loss, optimizer, implementation, precision, accumulation, checkpointing)
    with open_console(stderr=True).status("Measuring…"):
        kept = api.profile_workload(
            source,
            inputs or (),
            arguments=parse_settings(settings),
            options=options,
            batch=batch,
            seconds=parse_option("--seconds", parse_duration, _add_unit(seconds)),
            store=find_store(store),
            folder=find_kept_folder(),
        )
    if output is not None:
        make_folder(output.parent)
        api.save_profile(kept.profile, output)
    if as_json:
        show_json({**build_profile_record(kept.profile, rows=rows), "run": kept.run.id, "file": str(kept.path)})
    else:
        show([render_profile(kept.profile, rows=rows)])
        note(f"Stored as run {kept.run.id}. The profile, for predict --profile, is {output or kept.path}.")


@app.command(
    "predict",
    epilog="Example: foretell workload predict train.py:build_model --input 32,3,224,224 --batch 16,32,64 --device T4",
)
def predict_workload(
    source: SourceArgument,
    device: Annotated[str, typer.Option(help="Where it should run; 'foretell device list' names them.")],
    inputs: InputOption = None,
    settings: ArgumentOption = None,
    batch: Annotated[
        str | None, typer.Option(help="One or several, such as 16,32,64; default: as the inputs say.")
    ] = None,
    loss: LossOption = "auto",
    optimizer: OptimizerOption = "sgd",
    implementation: ImplementationOption = "for-loop",
    precision: PrecisionOption = "float32",
    accumulation: AccumulationOption = 1,
    checkpointing: CheckpointingOption = False,
    profile: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A profile of the same model on that device, at any batch; repeatable."),
    ] = None,
    level: LevelOption = "90%",
    rows: RowsOption = 12,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it over the batch, as .png or .svg.")] = None,
    store: UnusedStoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how long a training step would take on a device, and what in it costs most, without running it."""
    from foretell.core.units import parse_share
    from foretell.steps import api
    from foretell.steps.render import render_step_predictions
    from foretell.steps.step_records import build_step_record

    note_unused_store(store)
    options = build_options(loss, optimizer, implementation, precision, accumulation, checkpointing)
    answers = api.predict_workload(
        source,
        inputs or (),
        device=device,
        batches=parse_optional("--batch", _read_batches, batch) or (),
        arguments=parse_settings(settings),
        options=options,
        profiles=[api.load_profile(path) for path in profile or ()],
        level=parse_option("--level", parse_share, level),
        folder=find_kept_folder(),
    )
    if plot is not None:
        from foretell.render.figures import save_figure
        from foretell.steps.plots import draw_curve

        make_folder(plot.parent)
        save_figure(draw_curve(answers), plot)
    if as_json:
        show_json([build_step_record(answer, rows=rows) for answer in answers])
    else:
        show([render_step_predictions(answers, rows=rows)])
    if plot is not None:
        note(f"Wrote {plot}.")


def build_options(
    loss: str, optimizer: str, implementation: str, precision: str, accumulation: int, checkpointing: bool
) -> Any:
    """How a model is trained, from what options say."""
    from foretell.steps import api

    return api.StepOptions(
        loss=loss,
        optimizer=optimizer,
        implementation=implementation,
        precision=precision,
        accumulation=accumulation,
        checkpointing=checkpointing,
    )


def _add_unit(seconds: str) -> str:
    """A number alone has its unit in the option's name."""
    return f"{seconds}s" if re.fullmatch(r"[\d.]+", seconds) else seconds


def _read_batches(text: str) -> tuple[int, ...]:
    try:
        batches = tuple(int(word) for word in text.split(","))
    except ValueError:
        batches = (0,)
    if min(batches) < 1:
        raise ValueError("whole numbers from 1, such as 64 or 16,32,64")
    return tuple(dict.fromkeys(batches))


def _save(workload: "Workload", path: Path) -> None:
    """Write all operators.

    Raises:
        OutputError: if the file's name ends otherwise, or it cannot be written.
    """
    from foretell.render.records import render_json
    from foretell.render.tables import save_frame
    from foretell.steps.step_records import build_operator_frame, build_workload_record

    if path.suffix == ".json":
        write_text(path, f"{render_json(build_workload_record(workload))}\n")
    elif path.suffix in (".csv", ".parquet"):
        make_folder(path.parent)
        save_frame(build_operator_frame(workload), path)
    else:
        raise OutputError(f"{str(path)!r}: its name must end in .parquet, .csv or .json")
