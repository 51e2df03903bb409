"""The commands of ``foretell workload``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.cli._click import Group, LeadingCommand
from foretell.cli._layout_options import LAYOUT_NAMES, build_question, layout_options, refuse_with_layouts, show_layouts
from foretell.cli._options import (
    PATH,
    add_unit,
    batch_option,
    build_step_options,
    get_source,
    json_option,
    level_option,
    mode_options,
    model_options,
    model_or_command_options,
    parse_option,
    parse_optional,
    parse_settings,
    read_devices,
    read_timeout,
    rows_option,
    store_option,
    timeout_option,
    training_options,
    unused_store_option,
)
from foretell.cli._output import check_plot, make_folder, note, open_console, show, show_json, write_plot, write_text
from foretell.cli._places import find_kept_folder, find_store, note_unused_store
from foretell.core.errors import OutputError
from foretell.steps import METHODS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from foretell.core.generation import Generation
    from foretell.core.table_files import Table
    from foretell.core.workload import Workload
    from foretell.steps.generation_results import GenerationPredictions
    from foretell.steps.step_results import StepPredictions
    from foretell.workloads.scripts.script_facts import RecordedScript

workload = Group(
    "workload", help="Read a training step from the code of a model, measure it here, predict it for a device."
)


@workload.command(
    "show",
    cls=LeadingCommand,
    examples=[
        "foretell workload show train.py:build_model --input 32,3,224,224",
        "foretell workload show -- python train.py --batch-size 64",
        "foretell workload show --timeout 10m -- torchrun --nproc_per_node 1 train.py",
    ],
)
@model_or_command_options
@batch_option
@training_options
@mode_options
@rows_option(20, "Operators to show.")
@click.option("--all", "whole", is_flag=True, help="Show every operator.")
@click.option(
    "--output",
    type=PATH,
    metavar="FILE",
    help="Also write all operators to this file: .parquet, .csv or .json.",
)
@timeout_option
@json_option
def show_workload(
    source: str | None,
    command: tuple[str, ...],
    inputs: tuple[str, ...],
    settings: tuple[str, ...],
    batch: int | None,
    rows: int,
    whole: bool,
    output: Path | None,
    timeout: str,
    as_json: bool,
    **training: Any,
) -> None:
    """List the operators of a model's training step, without running it; or of the first step of a script, after --."""
    from foretell.steps import api

    if command:
        script = _read_script(source, command, timeout)
        _show_script(script, rows=None if whole else rows, output=output, as_json=as_json)
        return
    options = build_step_options(**training)
    read = api.read_generation if options.mode == "generate" else api.read_workload
    found = read(get_source(source), inputs or (), arguments=parse_settings(settings), options=options, batch=batch)
    if output is not None:
        _save(found, output)
    if as_json:
        show_json(_build_record(found))
    else:
        show([_render(found, None if whole else rows)])
    if output is not None:
        note(f"Wrote {output}.")


@workload.command("profile", examples=["foretell workload profile train.py:build_model --input 32,3,224,224"])
@model_options
@batch_option
@training_options
@mode_options
@click.option("--seconds", default="1s", help="How long to measure, after some steps to warm up.")
@rows_option(12, "Operators to show.")
@click.option(
    "--output",
    type=PATH,
    metavar="FILE",
    help="Also write the profile to this file (JSON), for predict --profile.",
)
@store_option
@json_option
def profile_workload(
    source: str,
    inputs: tuple[str, ...],
    settings: tuple[str, ...],
    batch: int | None,
    seconds: str,
    rows: int,
    output: Path | None,
    store: str | None,
    as_json: bool,
    **training: Any,
) -> None:
    """Run a few real steps on this machine, measure each operator, and store them as a run."""
    from foretell.core.units import parse_duration
    from foretell.steps import api
    from foretell.steps.render import build_profile_record, render_profile

    options = build_step_options(**training)
    with open_console(stderr=True).status("Measuring…"):
        kept = api.profile_workload(
            source,
            inputs or (),
            arguments=parse_settings(settings),
            options=options,
            batch=batch,
            seconds=parse_option("--seconds", parse_duration, add_unit(seconds)),
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


@workload.command(
    "predict",
    cls=LeadingCommand,
    examples=[
        "foretell workload predict train.py:build_model --input 64,3,224,224 --device H100,MI300X --precision bf16",
        "foretell workload predict train.py:build_model --input 32,3,224,224 --batch 16,32,64 --device T4",
        "foretell workload predict config.json --device all --mode inference",
        "foretell workload predict config.json --device H100,MI300X --mode generate --prompt 512 --new 128",
        "foretell workload predict config.json --batch 1 --device H100 --gpus 64 --layout dp=8,tp=4,pp=2",
        "foretell workload predict config.json --device A100,H100 --gpus 16 --global-batch 256 --layout best",
        "foretell workload predict --device H100,A100 -- python train.py --batch-size 64",
    ],
)
@model_or_command_options
@click.option(
    "--device",
    "device",
    multiple=True,
    metavar="NAME",
    help="One or several, as in H100,B200; all; or a FILE.toml with the figures of yours. "
    "'foretell device list' shows them.",
)
@click.option(
    "--device-figures",
    metavar="FIGURES",
    help="Your own device by its figures: bf16=400e12,bandwidth=2e12,memory=48GB,units=100.",
)
@click.option("--batch", help="One or several, such as 16,32,64; default: the batch of the inputs.")
@training_options
@mode_options
@layout_options
@click.option(
    "--profile",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="A profile of the same model on that device, at any batch; repeatable.",
)
@click.option(
    "--calibration",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Kernels that 'device calibrate' measured on the device elsewhere; repeatable.",
)
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    help="How to predict; default: kernels for a GPU, serial for a CPU.",
)
@level_option
@rows_option(12, "Operators to show.")
@click.option("--plot", type=PATH, metavar="FILE", help="Plot the step over batches or devices, as .png or .svg.")
@unused_store_option
@timeout_option
@json_option
def predict_workload(
    source: str | None,
    command: tuple[str, ...],
    device: tuple[str, ...],
    device_figures: str | None,
    inputs: tuple[str, ...],
    settings: tuple[str, ...],
    batch: str | None,
    profile: tuple[Path, ...],
    calibration: tuple[Path, ...],
    method: str | None,
    level: str,
    rows: int,
    plot: Path | None,
    store: str | None,
    timeout: str,
    as_json: bool,
    **training: Any,
) -> None:
    """Predict how long a step takes on one or many devices, and what it spends its time on, without running it.

    After --, the command that starts your training script: its first step is recorded here, without a GPU.
    """
    from foretell.core.units import parse_share
    from foretell.steps import api, prediction_api
    from foretell.steps.render_predictions import build_step_records, render_step_predictions

    check_plot(plot)
    note_unused_store(store)
    sharing = {name: training.pop(name) for name in LAYOUT_NAMES}
    options = build_step_options(**training)
    given: dict[str, Any] = {
        "devices": read_devices(device, device_figures),
        "calibrations": calibration,
        "method": method,
        "level": parse_option("--level", parse_share, level),
        "folder": find_kept_folder(),
    }
    of_model: dict[str, Any] = {
        "batches": parse_optional("--batch", _read_batches, batch) or (),
        "arguments": parse_settings(settings),
        "options": options,
    }
    question = build_question(sharing)
    if question is not None:
        refuse_with_layouts(profile=bool(profile), plot=plot is not None, batches=len(of_model["batches"]) > 1)
        if command:
            given["timeout_s"] = read_timeout(source, timeout)
        else:
            model = {
                "source": get_source(source),
                "inputs": inputs or (),
                "batch": next(iter(of_model.pop("batches")), None),
            }
            given |= {**model, **of_model}
        show_layouts(question, command, given, as_json=as_json)
        return
    if options.mode == "generate" and not command:
        _refuse_for_text({"--profile": bool(profile), "--plot": plot is not None})
        texts = prediction_api.predict_generation(get_source(source), inputs or (), **of_model, **given)
        _show_texts(texts, rows=rows, as_json=as_json)
        return
    given["profiles"] = [api.load_profile(path) for path in profile]
    if command:
        found = _predict_script(source, command, timeout, **given)
    else:
        found = prediction_api.predict_workload(get_source(source), inputs or (), **of_model, **given)
    if plot is not None:
        from foretell.steps.plots import draw_predictions

        write_plot(draw_predictions(found), plot)
    if as_json:
        show_json(build_step_records(found, rows=rows, left_out=found.left_out))
    else:
        show([render_step_predictions(found, rows=rows, left_out=found.left_out)])
    if plot is not None:
        note(f"Wrote {plot}.")


def _refuse_for_text(given: dict[str, bool]) -> None:
    """Refuse options that are for single steps only."""
    from foretell.core.errors import Mistake, SpecError

    expected = "mode training or inference"
    mistakes = [Mistake(place=name, found="mode generate", expected=expected) for name, used in given.items() if used]
    if mistakes:
        raise SpecError("options", mistakes)


def _show_texts(found: "GenerationPredictions", *, rows: int, as_json: bool) -> None:
    from foretell.steps.render_generated import build_generation_records, render_generations

    if as_json:
        show_json(build_generation_records(found, rows=rows, left_out=found.left_out))
    else:
        show([render_generations(found, rows=rows, left_out=found.left_out)])


# A command of the user's


def _read_script(source: str | None, command: tuple[str, ...], timeout: str) -> "RecordedScript":
    from foretell.steps import script_api

    timeout_s = read_timeout(source, timeout)
    with open_console(stderr=True).status("Starting the script…") as status:
        return script_api.read_script(command, timeout_s=timeout_s, on_progress=status.update)


def _predict_script(source: str | None, command: tuple[str, ...], timeout: str, **options: Any) -> "StepPredictions":
    from foretell.steps import script_api

    timeout_s = read_timeout(source, timeout)
    with open_console(stderr=True).status("Starting the script…") as status:
        return script_api.predict_script(command, timeout_s=timeout_s, on_progress=status.update, **options)


def _show_script(script: "RecordedScript", *, rows: int | None, output: Path | None, as_json: bool) -> None:
    from foretell.steps.render_scripts import build_script_record, render_script

    if output is not None:
        _save(script.workload, output)
    if as_json:
        show_json(build_script_record(script))
    else:
        show([render_script(script, rows=rows)])
    if output is not None:
        note(f"Wrote {output}.")


def _read_batches(text: str) -> tuple[int, ...]:
    try:
        batches = tuple(int(word) for word in text.split(","))
    except ValueError:
        batches = (0,)
    if min(batches) < 1:
        raise ValueError("whole numbers from 1, such as 64 or 16,32,64")
    return tuple(dict.fromkeys(batches))


def _build_record(found: "Workload | Generation") -> dict[str, Any]:
    from foretell.core.workload import Workload
    from foretell.steps.render import build_workload_record
    from foretell.steps.render_generation import build_generation_record

    return build_workload_record(found) if isinstance(found, Workload) else build_generation_record(found)


def _render(found: "Workload | Generation", rows: int | None) -> "RenderableType":
    from foretell.core.workload import Workload
    from foretell.steps.render import render_workload
    from foretell.steps.render_generation import render_generation

    return render_workload(found, rows=rows) if isinstance(found, Workload) else render_generation(found, rows=rows)


def _build_table(found: "Workload | Generation") -> "Table":
    from foretell.core.workload import Workload
    from foretell.steps.render import build_operator_table
    from foretell.steps.render_generation import build_generation_table

    return build_operator_table(found) if isinstance(found, Workload) else build_generation_table(found)


def _save(found: "Workload | Generation", path: Path) -> None:
    """Write all operators.

    Raises:
        OutputError: if the file's name ends otherwise, or it cannot be written.
    """
    from foretell.core.serialization import render_json
    from foretell.core.table_files import save_table

    if path.suffix == ".json":
        write_text(path, f"{render_json(_build_record(found))}\n")
    elif path.suffix in (".csv", ".parquet"):
        make_folder(path.parent)
        save_table(_build_table(found), path)
    else:
        raise OutputError(f"{str(path)!r}: its name must end in .parquet, .csv or .json")
