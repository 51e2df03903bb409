"""The command ``foretell memory``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.cli._click import LeadingCommand
from foretell.cli._options import (
    PATH,
    batch_option,
    build_step_options,
    get_source,
    json_option,
    level_option,
    mode_options,
    model_or_command_options,
    parse_option,
    parse_settings,
    read_devices,
    read_timeout,
    rows_option,
    timeout_option,
    training_options,
)
from foretell.cli._output import check_plot, note, open_console, show, show_json, write_plot

if TYPE_CHECKING:
    from foretell.memory.memory_results import MemoryPrediction


@click.command(
    "memory",
    cls=LeadingCommand,
    examples=[
        "foretell memory train.py:build_model --input 64,3,224,224 --optimizer adamw --precision bf16",
        "foretell memory config.json --batch 8 --device A100-40,H100 --longest",
        "foretell memory config.json --optimizer adamw --precision bf16 --gpus 64 --layout fsdp --device H100",
        "foretell memory config.json --mode generate --prompt 4096 --new 512 --batch 8 --device L40S",
        "foretell memory --device H100 -- python train.py --batch-size 64",
    ],
)
@model_or_command_options
@batch_option
@training_options
@mode_options
@click.option("--gpus", type=click.IntRange(min=1), help="GPUs that share the step; default: as in --layout, or 1.")
@click.option(
    "--layout",
    default="",
    show_default=False,
    help="How they share it: ddp, zero1, zero2, zero3, fsdp, tp=N, pp=N, joined by commas as in tp=4,pp=2,zero1.",
)
@click.option(
    "--offload",
    default="",
    show_default=False,
    help="What the host keeps: optimizer (with ZeRO) or parameters (zero3, fsdp).",
)
@click.option(
    "--device",
    "device",
    multiple=True,
    metavar="NAME",
    help="Whether it fits: one or several, as in H100,B200; all; or a FILE.toml with the figures of yours. "
    "Default: some usual ones.",
)
@click.option(
    "--device-figures",
    metavar="FIGURES",
    help="Your own device by its figures: bf16=400e12,bandwidth=2e12,memory=48GB,units=100.",
)
@click.option(
    "--profile",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="A profile of the same model, measured on a GPU by 'workload profile', at any batch; repeatable.",
)
@click.option(
    "--allocator",
    default="",
    show_default=False,
    metavar="SETTINGS",
    help="As in PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True,max_split_size_mb:128.",
)
@click.option("--risk", default="5%", help="Chance that it does not fit, which you allow.")
@click.option(
    "--longest", is_flag=True, help="Also find the longest sequence that fits each device; the model may take less."
)
@level_option
@rows_option(8, "Layers to show at the peak.")
@click.option("--plot", type=PATH, metavar="FILE", help="Plot the memory over the step, as .png or .svg.")
@timeout_option
@json_option
def memory(
    source: str | None,
    command: tuple[str, ...],
    inputs: tuple[str, ...],
    settings: tuple[str, ...],
    batch: int | None,
    gpus: int | None,
    layout: str,
    offload: str,
    device: tuple[str, ...],
    device_figures: str | None,
    profile: tuple[Path, ...],
    allocator: str,
    risk: str,
    longest: bool,
    level: str,
    rows: int,
    plot: Path | None,
    timeout: str,
    as_json: bool,
    **training: Any,
) -> None:
    """Predict the memory of a GPU that training or inference needs, what for, and where it fits.

    After --, the command that starts your training script: its first steps are recorded here, without a GPU.
    """
    from foretell.core.units import parse_share
    from foretell.memory import api
    from foretell.steps.api import load_profile

    check_plot(plot)
    given: dict[str, Any] = {
        "devices": read_devices(device, device_figures, required=False),
        "gpus": gpus,
        "layout": layout,
        "offload": offload,
        "allocator": allocator,
        "risk": parse_option("--risk", parse_share, risk),
        "level": parse_option("--level", parse_share, level),
    }
    if command:
        if longest or profile:
            raise click.UsageError("--longest and --profile are for a model, not for a script: it sets its own inputs.")
        timeout_s = read_timeout(source, timeout)
        with open_console(stderr=True).status("Starting the script…") as status:
            found = api.predict_script_memory(command, timeout_s=timeout_s, on_progress=status.update, **given)
        _show(found, rows=rows, plot=plot, as_json=as_json)
        return
    options = build_step_options(**training)
    with open_console(stderr=True).status("Reading the model…"):
        found = api.predict_memory(
            get_source(source),
            inputs or (),
            arguments=parse_settings(settings),
            options=options,
            batch=batch,
            profiles=[load_profile(path) for path in profile],
            longest=longest,
            **given,
        )
    _show(found, rows=rows, plot=plot, as_json=as_json)


def _show(found: "MemoryPrediction", *, rows: int, plot: Path | None, as_json: bool) -> None:
    from foretell.memory.render import build_memory_record, render_memory

    if plot is not None:
        from foretell.memory.plots import draw_memory

        write_plot(draw_memory(found), plot)
    if as_json:
        show_json(build_memory_record(found, rows=rows))
    else:
        show([render_memory(found, rows=rows)])
    if plot is not None:
        note(f"Wrote {plot}.")
