"""Renders steps that several GPUs share: one in full, several as a table, and records for JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel

from foretell.core.render.phrases import count, render_interval, render_level, render_risk, render_short_time
from foretell.core.render.tables import HEADING, QUIET, FirstThatFits, build_line, build_warnings, stack
from foretell.core.serialization import to_record
from foretell.core.units import render_bytes, render_rate
from foretell.distributed.layout_api import LayoutPredictions
from foretell.distributed.layout_search import LayoutChoice
from foretell.distributed.parallel_results import ParallelStep
from foretell.steps.render import build_fitting, build_panel, build_step_facts, describe_workload, render_share
from foretell.steps.render_predictions import build_left_out
from foretell.steps.render_predictions import render_rate as render_speed
from foretell.steps.step_results import count_tokens

Record = dict[str, Any]

PARTS: Mapping[str, str] = {
    "compute": "computing",
    "tensor": "exchanges inside of layers",
    "data": "exchange of gradients and weights",
    "bubble": "waiting in the pipeline",
    "host": "waiting for the host",
}
_WIDEST = 20  # characters of a column that is never cut
_LEAST = 0.0005  # of the step, for a part to be shown
_SHORT = {"compute": "Compute", "tensor": "Layers", "data": "Gradients", "bubble": "Pipeline", "host": "Host"}


def render_layouts(found: LayoutPredictions) -> Group:
    """One layout as a panel, several as a table."""
    choices = found.choices
    if len(choices) == 1 and not found.left_out:
        parts: list[RenderableType] = [_build_panel(choices[0])]
    else:
        parts = [build_line(_title(choices[0].step), HEADING), _build_layout_table(choices)]
        parts.append(build_line(_explain(choices), QUIET))
    return stack(*parts, *build_left_out(found.left_out), *build_warnings(found.warnings))


def _title(step: ParallelStep) -> str:
    return f"{describe_workload(step.workload)}, on {count(step.gpus, 'GPU')}"


def _explain(choices: Sequence[LayoutChoice]) -> str:
    none = "" if any(choice.fits for choice in choices) else "No layout fits; shown is the one that needs least. "
    return (
        f"{none}Shares of the step: computing; exchanges inside of layers (tp, cp, ep); exchange of gradients and "
        "weights that computing does not hide; waiting in the pipeline; waiting for the host."
    )


# One layout


def _build_panel(choice: LayoutChoice) -> Panel:
    step = choice.step
    whole = step.step.value
    interval = f"{render_level(step.step.level)}: {render_interval(step.step, render_short_time)}"
    shares = sorted(step.parts.items(), key=lambda pair: -pair[1])
    facts = [
        ("Model", describe_workload(step.workload)),
        ("Step", f"{render_short_time(whole)} ({interval})"),
        *(
            (PARTS[name].capitalize(), _render_part(seconds, whole))
            for name, seconds in shares
            if seconds > _LEAST * whole
        ),
        ("Examples", _describe_examples(step)),
        ("Examples per second", render_speed(step.examples_per_s)),
        ("Tokens per second", _render_tokens(step)),
        ("Of the peak (MFU)", _render_mfu(step)),
        ("Memory of a GPU", _describe_memory(choice)),
        ("Sent by a GPU", _describe_sent(step)),
        ("Links", _describe_links(step)),
    ]
    layout = f" by {step.layout}" if step.gpus > 1 else ""
    return build_panel(f"{step.gpus} x {step.topology.device.name}{layout}", facts)


def _render_part(seconds: float, whole: float) -> str:
    return f"{render_short_time(seconds)}, {render_share(seconds, whole)}"


def _describe_examples(step: ParallelStep) -> str:
    parts = [f"{step.workload.batch:,} at once"]
    parts += [f"{step.micro_batches:,} batches before an update"] if step.micro_batches > 1 else []
    parts += [f"{step.layout.copies} copies of the model"] if step.layout.copies > 1 else []
    return f"{step.examples:,}" + (f" ({', '.join(parts)})" if len(parts) > 1 else "")


def _describe_memory(choice: LayoutChoice) -> str:
    if choice.needed is None:
        return ""
    usable = choice.step.topology.device.usable_memory_bytes
    fits = "fits" if choice.fits else "does not fit"
    risk = f", chance of not fitting {render_risk(choice.risk)}" if 0 < choice.risk < 1 else ""
    return f"{render_bytes(choice.needed.value)} of {render_bytes(usable)}: {fits}{risk}"


def _describe_sent(step: ParallelStep) -> str:
    names = {"tensor": "inside of layers", "data": "gradients", "pipeline": "between stages"}
    return ", ".join(f"{render_bytes(sent)} {names[name]}" for name, sent in step.sent_bytes.items() if sent)


def _describe_links(step: ParallelStep) -> str:
    topology = step.topology
    if step.gpus == 1:
        return ""
    inside = f"{render_rate(topology.link_bytes_per_s)} in a node of {topology.gpus_per_node}"
    between = (
        f", {render_rate(topology.network_bytes_per_s)} between nodes" if step.gpus > topology.gpus_per_node else ""
    )
    return inside + between


def _render_tokens(step: ParallelStep) -> str:
    tokens = count_tokens(step.workload) / step.workload.batch
    return render_speed(tokens * step.examples_per_s) if tokens else ""


def _render_mfu(step: ParallelStep) -> str:
    return "" if step.mfu is None else f"{100 * step.mfu:.1f} %"


# Several layouts


def _build_layout_table(choices: Sequence[LayoutChoice]) -> FirstThatFits:
    """A row for each; columns without any value are left out."""
    steps = [choice.step for choice in choices]
    devices = [step.topology.device.name for step in steps]
    level = render_level(steps[0].step.level)
    columns: dict[str, Sequence[str | tuple[str, ...]]] = {
        "Device": devices if len(set(devices)) > 1 else [""] * len(steps),
        "Layout": [break_layout(str(replace(step.layout, micro_batches=0))) for step in steps],
        "At once": [f"{step.workload.batch:,}" for step in steps],
        "Batches": [f"{step.micro_batches:,}" for step in steps],
        "Step": [render_short_time(step.step.value) for step in steps],
        f"{level} interval": [render_interval(step.step, render_short_time).replace(" to ", " - ") for step in steps],
        "Examples/s": [render_speed(step.examples_per_s) for step in steps],
        "Tokens/s": [_render_tokens(step) for step in steps],
        "MFU": [_render_mfu(step) for step in steps],
        "Memory": [_render_need(choice) for choice in choices],
        **{_SHORT[name]: [_render_share(step, name) for step in steps] for name in PARTS},
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    words = ("Device", "Layout")
    return build_fitting(
        tuple(shown),
        list(zip(*shown.values(), strict=True)),
        numbers=[name for name in shown if name not in words],
        dropped=[
            name for name in ("Examples/s", "MFU", f"{level} interval", "At once", "Batches", "Host") if name in shown
        ],
    )


def break_layout(layout: str) -> str | tuple[str, ...]:
    """A layout whose name is too long for a column has a line for each part of it."""
    lines = [""]
    for word in layout.split(","):
        joined = f"{lines[-1]},{word}" if lines[-1] else word
        if len(joined) < _WIDEST or not lines[-1]:
            lines[-1] = joined
        else:
            lines[-1] += ","
            lines.append(word)
    return tuple(lines) if len(lines) > 1 else layout


def _render_need(choice: LayoutChoice) -> str:
    if choice.needed is None:
        return ""
    return render_bytes(choice.needed.value) + ("" if choice.fits else " (too much)")


def _render_share(step: ParallelStep, part: str) -> str:
    share = step.parts.get(part, 0.0) / step.step.value
    return "" if share < _LEAST and part != "compute" else f"{100 * share:.0f} %"


# Records


def build_layout_records(found: LayoutPredictions) -> Record:
    """Every choice with its parts, in the order of the table."""
    return {
        "searched": found.searched,
        "choices": [build_layout_record(choice) for choice in found.choices],
        "left_out": to_record(found.left_out),
        "warnings": to_record(found.warnings),
    }


def build_layout_record(choice: LayoutChoice) -> Record:
    """A layout with its step and its memory."""
    step = choice.step
    return {
        "device": step.topology.device.name,
        "gpus": step.gpus,
        "layout": str(step.layout),
        **build_step_facts(step.workload),
        "micro_batches": step.micro_batches,
        "copies": step.layout.copies,
        "examples": step.examples,
        "step_s": to_record(step.step),
        "parts_s": dict(step.parts),
        "main_limit": step.main_limit,
        "examples_per_s": step.examples_per_s,
        "tokens_per_s": count_tokens(step.workload) / step.workload.batch * step.examples_per_s or None,
        "mfu": step.mfu,
        "sent_bytes": dict(step.sent_bytes),
        "memory_bytes": to_record(choice.needed) if choice.needed else None,
        "usable_bytes": step.topology.device.usable_memory_bytes,
        "risk": choice.risk,
        "fits": choice.fits,
        "gpus_per_node": step.topology.gpus_per_node,
        "link_bytes_per_s": step.topology.link_bytes_per_s,
        "network_bytes_per_s": step.topology.network_bytes_per_s,
    }
