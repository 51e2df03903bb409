"""The options that say how several GPUs share a step."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from foretell.cli._click import combine
from foretell.cli._options import parse_option
from foretell.cli._output import open_console, show, show_json

if TYPE_CHECKING:
    from foretell.distributed.layout_api import LayoutQuestion

layout_options = combine(
    click.option("--gpus", type=click.IntRange(min=1), help="GPUs that share the step; default: as in --layout, or 1."),
    click.option(
        "--layout",
        help="How they share it: best (the fastest that fit), or ddp, zero1, zero2, zero3, fsdp, dp=N, tp=N, pp=N, "
        "cp=N, ep=N, joined by commas as in dp=8,tp=4,pp=2,zero1. Default with --gpus: best.",
    ),
    click.option("--global-batch", type=click.IntRange(min=1), help="Examples of all GPUs in one step."),
    click.option("--micro-batch", type=click.IntRange(min=1), help="Examples that a GPU computes at once."),
    click.option("--zero", type=click.IntRange(1, 3), help="As zero1, zero2 or zero3 in --layout."),
    click.option("--sequence-parallel", is_flag=True, help="As sp in --layout: with tp, norms share the sequence."),
    click.option("--interleave", type=click.IntRange(min=1), help="Parts of the model on each stage of a pipeline."),
    click.option("--context", type=click.IntRange(min=1), help="As cp=N in --layout: GPUs that share each sequence."),
    click.option("--experts", type=click.IntRange(min=1), help="As ep=N in --layout: GPUs that share the experts."),
    click.option("--gpus-per-node", type=click.IntRange(min=1), default=8, help="GPUs of each node."),
    click.option("--network", metavar="RATE", help="Between nodes, of one GPU: 100Gb/s. Default: usual with the GPU."),
    click.option("--link", metavar="RATE", help="Between the GPUs of a node: 300GB/s. Default: that of the GPU."),
)

LAYOUT_NAMES = (
    "gpus", "layout", "global_batch", "micro_batch", "zero", "sequence_parallel", "interleave", "context", "experts",
    "gpus_per_node", "network", "link",
)  # fmt: skip


def build_question(given: dict[str, Any]) -> "LayoutQuestion | None":
    """What was asked; None if one GPU takes the whole step."""
    from foretell.core.units import parse_rate
    from foretell.distributed.layout_api import BEST, GpuPlaces, LayoutQuestion

    words = list(_list_words(given))
    if given["layout"] == BEST and words:
        raise click.UsageError(f"--layout best chooses {', '.join(words)} by itself. Leave out one of them.")
    layout = ",".join([*filter(None, [given["layout"]]), *words])
    if not layout and given["gpus"] is None:
        _refuse_rest(given)
        return None
    rates = {
        name: parse_option(f"--{option}", parse_rate, given[option]) if given[option] else 0.0
        for name, option in (("network_bytes", "network"), ("link_bytes", "link"))
    }
    return LayoutQuestion(
        gpus=given["gpus"],
        layout=layout or BEST,
        batch=given["global_batch"],
        micro_batch=given["micro_batch"],
        places=GpuPlaces(gpus_per_node=given["gpus_per_node"], **rates),
    )


def _list_words(given: dict[str, Any]) -> Iterator[str]:
    if given["zero"]:
        yield f"zero{given['zero']}"
    if given["sequence_parallel"]:
        yield "sp"
    for option, word in (("interleave", "interleave"), ("context", "cp"), ("experts", "ep")):
        if given[option]:
            yield f"{word}={given[option]}"


def _refuse_rest(given: dict[str, Any]) -> None:
    for name in ("global_batch", "micro_batch", "network", "link"):
        if given[name] is not None:
            raise click.UsageError(
                f"--{name.replace('_', '-')} needs --gpus or --layout: how many GPUs share the step."
            )


def refuse_with_layouts(**used: bool) -> None:
    """Refuse what is for steps of one GPU only."""
    names = {"profile": "--profile", "plot": "--plot", "batches": "several batches"}
    for name, given in used.items():
        if given:
            raise click.UsageError(f"{names[name]} cannot be used with --gpus and --layout.")


def show_layouts(question: "LayoutQuestion", command: tuple[str, ...], given: dict[str, Any], *, as_json: bool) -> None:
    """Predict the step of a model, or of a command, and print it."""
    from foretell.distributed import layout_api
    from foretell.distributed.render_layouts import build_layout_records, render_layouts

    with open_console(stderr=True).status("Reading the step…") as status:
        if command:
            found = layout_api.predict_script_layouts(command, question=question, on_progress=status.update, **given)
        else:
            found = layout_api.predict_layouts(question=question, **given)
    if as_json:
        show_json(build_layout_records(found))
    else:
        show([render_layouts(found)])
