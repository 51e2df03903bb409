"""Renders predicted memory: text for the terminal, and a record for JSON."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType

from foretell.core.memory import MemoryKind
from foretell.core.render.phrases import (
    clean_line,
    count,
    render_interval,
    render_level,
    render_percent,
    render_risk,
    render_scaled,
)
from foretell.core.render.tables import (
    BAD,
    HEADING,
    QUIET,
    add_cells,
    build_facts,
    build_line,
    build_table,
    build_warnings,
    stack,
)
from foretell.core.serialization import to_record
from foretell.core.units import render_bytes
from foretell.memory.memory_results import DeviceFit, MemoryPrediction
from foretell.memory.usage import Holder, MemoryUsage
from foretell.steps.render_predictions import build_left_out

Record = dict[str, Any]

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 64  # characters of the time line
_POINTS = 400  # of the time line in JSON


def render_memory(prediction: MemoryPrediction, *, rows: int) -> Group:
    """How much, what for, when, and where it fits."""
    usage = prediction.usage
    return stack(
        build_line(_describe(prediction), HEADING),
        build_facts(_list_facts(prediction)),
        _build_parts(prediction),
        build_line("The last step, from its beginning to its end", HEADING),
        *_build_course(usage),
        build_line("What is there at the peak", HEADING),
        _build_holders(usage.holders, rows),
        *_build_devices(prediction),
        *_build_remedies(prediction),
        *build_left_out(prediction.left_out),
        *build_warnings(prediction.warnings),
    )


def _describe(prediction: MemoryPrediction) -> str:
    trace = prediction.trace
    settings = trace.settings
    words = [
        f"batch {trace.batch:,}",
        f"{render_scaled(trace.parameters)} parameters",
        "" if settings.get("mode") == "training" else settings.get("mode", ""),
        settings.get("precision", ""),
        settings.get("optimizer", ""),
        f"{settings['prompt']} + {settings['new']} tokens" if "prompt" in settings else "",
        "checkpointing" if settings.get("checkpointing") == "yes" else "",
        f"{settings['layout']} on {settings['gpus']} GPUs" if settings.get("gpus", "1") != "1" else "",
    ]
    return f"{clean_line(trace.name)}: {', '.join(filter(None, words))}"


def _list_facts(prediction: MemoryPrediction) -> list[tuple[str, str]]:
    usage, needed = prediction.usage, prediction.needed
    interval = f"{render_level(needed.level)}: {render_interval(needed, render_bytes)}"
    where = f"{usage.operator} in {usage.layer}" if usage.layer else usage.operator
    return [
        ("Memory of the GPU", f"{render_bytes(needed.value)} ({interval}), as nvidia-smi shows it"),
        ("Reserved", f"{render_bytes(prediction.reserved_bytes)} by PyTorch's allocator"),
        (
            "Allocated",
            f"{render_bytes(usage.allocated_bytes)} at the peak, in the {usage.phase} phase: {clean_line(where)}",
        ),
        ("Memory of the host", render_bytes(prediction.host_bytes) if prediction.host_bytes else ""),
    ]


def list_parts(prediction: MemoryPrediction) -> list[tuple[str, int]]:
    """What the memory of the GPU is for, in bytes; the parts add up to the whole."""
    usage = prediction.usage
    outside, workspaces = prediction.trace.outside_bytes, prediction.workspace_bytes
    parts = [(kind.title, usage.parts[kind]) for kind in MemoryKind if usage.parts.get(kind)]
    corrected = usage.allocated_bytes - sum(usage.parts.values()) - usage.rest_bytes
    return [
        *parts,
        *([("rest of blocks, too small to split", usage.rest_bytes)] if usage.rest_bytes else []),
        *([("difference to what was measured", corrected)] if corrected else []),
        ("reserved, not in use at the peak", usage.unused_bytes),
        *([("workspaces of convolutions", workspaces)] if workspaces else []),
        *([("communication, outside of the allocator", outside)] if outside else []),
        ("CUDA context and libraries", prediction.context_bytes),
    ]


def _build_parts(prediction: MemoryPrediction) -> RenderableType:
    numbers = ("Memory", "Share")
    table = build_table("Part", *numbers, numbers=numbers)
    parts = list_parts(prediction)
    whole = sum(size for _, size in parts)
    for name, size in parts:
        add_cells(table, name, render_bytes(size), render_percent(100 * size / whole))
    return table


def _build_course(usage: MemoryUsage) -> Iterator[RenderableType]:
    """The allocated memory over the events of a step, as a line of blocks, with its phases below."""
    curve = usage.allocated_curve
    if not len(curve):
        return
    edges = np.linspace(0, len(curve), _WIDTH + 1).astype(int)
    tops = [curve[begin : max(end, begin + 1)].max() for begin, end in itertools.pairwise(edges)]
    levels = [round((len(_BLOCKS) - 1) * top / max(1, curve.max())) for top in tops]
    yield build_line("".join(_BLOCKS[level] for level in levels))
    marks = [" "] * (_WIDTH + 12)
    for event, phase in usage.phases:
        place = min(_WIDTH - 1, event * _WIDTH // len(curve))
        for offset, letter in enumerate(f"|{phase}"):
            marks[place + offset] = letter
    yield build_line("".join(marks).rstrip(), QUIET)


def _build_holders(holders: Sequence[Holder], rows: int) -> RenderableType:
    table = build_table("Layer", "Operator", "Part", "Blocks", "Memory", numbers=("Blocks", "Memory"))
    for each in holders[:rows]:
        cells = (clean_line(each.layer), clean_line(each.operator), each.kind.title)
        add_cells(table, *cells, f"{each.blocks:,}", render_bytes(each.bytes_))
    rest = holders[rows:]
    if rest:
        size = render_bytes(sum(each.bytes_ for each in rest))
        add_cells(table, f"and {count(len(rest), 'other')}", "", "", f"{sum(each.blocks for each in rest):,}", size)
    return table


def _build_devices(prediction: MemoryPrediction) -> Iterator[RenderableType]:
    if not prediction.devices:
        return
    with_batch = any(each.largest_batch is not None for each in prediction.devices)
    with_length = any(each.longest_sequence is not None for each in prediction.devices)
    columns = [
        "Device",
        "Usable",
        "Needed",
        "Fits",
        "Risk",
        *(["Largest batch"] if with_batch else []),
        *(["Longest sequence"] if with_length else []),
    ]
    allowed = render_risk(prediction.risk_allowed)
    yield build_line(f"Where it fits, with a risk of at most {allowed} that it does not", HEADING)
    table = build_table(*columns, numbers=[name for name in columns if name not in ("Device", "Fits")])
    for each in prediction.devices:
        add_cells(table, *_render_fit(each, with_batch=with_batch, with_length=with_length))
    yield table


def _render_fit(fit: DeviceFit, *, with_batch: bool, with_length: bool) -> list[str]:
    return [
        clean_line(fit.device),
        render_bytes(fit.usable_bytes),
        render_bytes(fit.needed.value),
        "yes" if fit.fits else "no",
        render_risk(fit.risk),
        *([_render_size(fit.largest_batch)] if with_batch else []),
        *([_render_size(fit.longest_sequence)] if with_length else []),
    ]


def _render_size(size: int | None) -> str:
    if size is None:
        return ""
    return f"{size:,}" if size else "none"


def _build_remedies(prediction: MemoryPrediction) -> Iterator[RenderableType]:
    remedies, device = prediction.remedies, clean_line(prediction.remedies_for)
    if not device:
        return
    if not any(each.fits for each in remedies):
        yield build_line(_describe_nearest(prediction), BAD)
    if not remedies:
        return
    yield build_line(f"What would need less on {device}", HEADING)
    numbers = ("Needed", "Frees", "Time")
    table = build_table("Change", "Option", *numbers, "Fits", numbers=numbers)
    for each in remedies:
        time = f"x {each.time_ratio:.2f}" if each.time_ratio is not None else ""
        cells = (render_bytes(each.needed.value), render_bytes(each.freed_bytes), time, "yes" if each.fits else "no")
        add_cells(table, each.name, each.options, *cells)
    yield table


def _describe_nearest(prediction: MemoryPrediction) -> str:
    """Why nothing fits a device, and the change that comes nearest."""
    device = prediction.remedies_for
    usable = next(each.usable_bytes for each in prediction.devices if each.device == device)
    nearest = min(prediction.remedies, key=lambda each: each.needed.value, default=None)
    if nearest is None:
        name, size = max(list_parts(prediction), key=lambda part: part[1])
        return f"No change of the step makes it fit {clean_line(device)}: {name} alone are {render_bytes(size)}."
    return (
        f"No single change makes it fit {clean_line(device)}, which has {render_bytes(usable)}. The nearest is "
        f"{nearest.name} ({nearest.options}), with {render_bytes(nearest.needed.value)}. Join several, or use a larger "
        "device."
    )


def build_memory_record(prediction: MemoryPrediction, *, rows: int) -> Record:
    """Everything as plain values; the course of the step in at most some hundred points."""
    usage, trace = prediction.usage, prediction.trace
    step = max(1, len(usage.allocated_curve) // _POINTS)
    return {
        "name": trace.name,
        "batch": trace.batch,
        "parameters": trace.parameters,
        "settings": dict(trace.settings),
        "needed_bytes": to_record(prediction.needed),
        "reserved_bytes": prediction.reserved_bytes,
        "allocated_bytes": usage.allocated_bytes,
        "workspace_bytes": prediction.workspace_bytes,
        "context_bytes": prediction.context_bytes,
        "host_bytes": prediction.host_bytes,
        "parts": dict(list_parts(prediction)),
        "peak": {"phase": usage.phase.value, "operator": usage.operator, "layer": usage.layer},
        "holders": [
            {"layer": each.layer, "operator": each.operator, "part": each.kind.title, "bytes": each.bytes_}
            for each in usage.holders[:rows]
        ],
        "course": {
            "events": len(usage.allocated_curve),
            "every": step,
            "allocated_bytes": usage.allocated_curve[::step].tolist(),
            "reserved_bytes": usage.reserved_curve[::step].tolist(),
            "phases": [{"event": event, "phase": phase.value} for event, phase in usage.phases],
        },
        "devices": [to_record(each) for each in prediction.devices],
        "left_out": [to_record(each) for each in prediction.left_out],
        "remedies_for": prediction.remedies_for,
        "remedies": [to_record(each) for each in prediction.remedies],
        "warnings": [to_record(each) for each in prediction.warnings],
    }
