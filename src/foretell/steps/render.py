"""Renders training steps and devices: tables for the terminal, and records for JSON and for files."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.panel import Panel

from foretell.core.render.phrases import (
    clean_line,
    count,
    render_scaled,
    render_short_time,
)
from foretell.core.render.tables import (
    BAD,
    HEADING,
    QUIET,
    FirstThatFits,
    WordTable,
    add_cells,
    build_facts,
    build_line,
    build_table,
    build_warnings,
    stack,
)
from foretell.core.serialization import to_record
from foretell.core.table_files import Table
from foretell.core.units import render_bytes, render_duration
from foretell.core.workload import Floats, Operator, Workload
from foretell.measure.other_load import OtherLoad, describe_load
from foretell.steps.step_results import (
    LearnedDevice,
    OperatorGroup,
    OperatorTotals,
    find_gaps,
    find_phases,
    group_operators,
    list_layers,
    rank_kinds,
    total_operators,
    total_phases,
)
from foretell.workloads.measurement_files import Profile
from foretell.workloads.workload_warnings import find_warnings

Record = dict[str, Any]

_LONGEST = 15  # characters of a layer or kind
_KINDS = 8
_SWITCHES = {"checkpointing": "checkpointing", "channels_last": "channels last", "compile": "compiled"}
_TYPES = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}
_COLUMNS = ("kind", "phase", "dtype", "flops", "bytes_moved", "parameters", "kernels")  # of a table of operators
_MAY_BREAK = frozenset({"Shapes", "Layer"})  # columns with cells that may be broken between words


def build_fitting(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | tuple[str, ...]]],
    *,
    numbers: Iterable[str],
    dropped: Sequence[str],
) -> FirstThatFits:
    """A table that leaves out columns, in the order of ``dropped``, until it fits the terminal."""
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    tables = []
    for left_out in range(len(dropped) + 1):
        kept = [name for name in columns if name not in dropped[:left_out]]
        table = build_table(*kept, numbers=numbers, whole=[name for name in kept if name not in _MAY_BREAK])
        for record in records:
            add_cells(table, *(record[name] for name in kept))
        tables.append(table)
    return FirstThatFits(*tables)


# The operators of a step


def render_workload(workload: Workload, *, rows: int | None, warn: bool = True) -> Group:
    """The totals of each phase, the kinds with most operations, and the operators in the order in which they run."""
    shown = len(workload.operators) if rows is None else min(rows, len(workload.operators))
    left = len(workload.operators) - shown
    return stack(
        build_line(describe_workload(workload), HEADING),
        _build_totals(workload),
        build_line("Kinds with most FLOPs", HEADING),
        _build_kinds(workload),
        build_line("Operators in the order in which they run", HEADING),
        _build_operators(workload, shown),
        build_line(f"... and {count(left, 'more operator')}; --rows or --all shows them", QUIET) if left else None,
        *build_warnings(find_warnings(workload) if warn else ()),
    )


def describe_workload(workload: Workload) -> str:
    """A workload and its training options in one line."""
    settings = workload.settings
    implementation = settings.get("implementation", "")
    words = [
        f"batch {workload.batch:,}",
        f"{render_scaled(workload.parameters)} parameters",
        settings.get("mode", "training") if settings.get("mode", "training") != "training" else "",
        settings.get("precision", ""),
        " ".join(filter(None, (settings.get("optimizer", ""), f"({implementation})" if implementation else ""))),
        "" if settings.get("accumulation", "1") == "1" else f"{settings['accumulation']} batches per update",
        *(words for name, words in _SWITCHES.items() if settings.get(name) == "yes"),
    ]
    return f"{workload.name}: {', '.join(filter(None, words))}"


def _build_totals(workload: Workload) -> WordTable:
    numbers = ("Operators", "FLOPs", "Bytes")
    table = build_table("Phase", *numbers, numbers=numbers)
    learns = workload.settings.get("mode", "training") == "training"
    for phase, totals in total_phases(workload).items():
        if totals.operator_count == 0 and not learns:
            continue
        add_cells(table, phase, *_render_totals(totals))
    add_cells(table, "whole step", *_render_totals(total_operators(workload.operators)), style=HEADING)
    return table


def _render_totals(totals: OperatorTotals) -> tuple[str, str, str]:
    return f"{totals.operator_count:,}", render_scaled(totals.flops), render_bytes(totals.bytes_moved)


def _build_kinds(workload: Workload) -> WordTable:
    numbers = ("Operators", "FLOPs", "Bytes", "of all FLOPs", "of all bytes")
    table = build_table("Kind", *numbers, numbers=numbers)
    for kind, totals in rank_kinds(workload)[:_KINDS]:
        shares = (render_share(totals.flops, workload.flops), render_share(totals.bytes_moved, workload.bytes_moved))
        add_cells(table, clean_line(kind), *_render_totals(totals), *shares)
    return table


def _build_operators(workload: Workload, shown: int) -> FirstThatFits:
    operators = workload.operators[:shown]
    types = ("Type",) if len({operator.dtype for operator in workload.operators}) > 1 else ()
    numbers = ("#", "FLOPs", "Bytes", "Params")
    rows = [
        (
            str(number),
            operator.phase,
            _shorten_layer(layer),
            _shorten(operator.kind),
            render_shapes(operator),
            *([_shorten_type(operator.dtype)] if types else []),
            render_scaled(operator.flops),
            render_bytes(operator.bytes_moved),
            render_scaled(operator.parameters) if operator.parameters else "",
        )
        for number, (operator, layer) in enumerate(zip(operators, list_layers(workload), strict=False), start=1)
    ]
    columns = ("#", "Phase", "Layer", "Kind", "Shapes", *types, *numbers[1:])
    return build_fitting(columns, rows, numbers=numbers, dropped=("Params", *types))


# Profiles


def build_panel(title: str, facts: Iterable[tuple[str, str]]) -> Panel:
    """Facts in a frame with a title."""
    return Panel(
        build_facts(facts),
        title=build_line(f" {title} ", HEADING),
        title_align="left",
        box=box.ROUNDED,
        border_style=QUIET,
        expand=False,
    )


def render_profile(profile: Profile, *, rows: int) -> Group:
    """A measured step: its quality, its phases, and the most costly operators."""
    step = profile.step
    groups = group_operators(step.workload, step.kernel_s, find_gaps(step))
    return stack(
        build_line(f"{step.workload.name}, batch {step.workload.batch:,} on {step.device}", HEADING),
        build_facts(_list_profile_facts(profile)),
        build_line("Most costly operators", HEADING),
        build_costly(groups[:rows], step.iteration_s),
    )


def _list_profile_facts(profile: Profile) -> list[tuple[str, str]]:
    step = profile.step
    phases = find_phases(step).items()
    return [
        ("Iteration", f"{render_short_time(step.iteration_s)}, the median of {count(profile.steps, 'step')}"),
        ("Spread", f"half of the steps are within {_percent(profile.spread)} of it"),
        *(
            (phase.title(), f"{render_short_time(seconds)}, {render_share(seconds, step.iteration_s)}")
            for phase, seconds in phases
        ),
        ("Profiler overhead", f"{_percent(max(profile.overhead, 0))}, not part of the times above"),
        ("Load before", "" if profile.load is None else f"{profile.load:.2f} runnable processes"),
        ("Measured with", ", ".join(f"{name} {value}" for name, value in profile.facts.items())),
    ]


def build_costly(groups: Iterable[OperatorGroup], whole_s: float) -> FirstThatFits:
    """Groups of equal operators with their times, and their shares of the whole."""
    numbers = ("Calls", "Time", "Gaps", "Share")
    rows = [
        (
            group.operator.phase,
            _shorten_layer(group.layers[0]),
            _shorten(group.operator.kind),
            render_shapes(group.operator),
            f"{len(group.layers):,}",
            render_short_time(group.seconds),
            render_short_time(group.gap_s),
            render_share(group.seconds, whole_s),
        )
        for group in groups
    ]
    columns = ("Phase", "Layer", "Kind", "Shapes", *numbers)
    return build_fitting(columns, rows, numbers=numbers, dropped=("Gaps", "Calls"))


# Devices


def render_learned(learned: LearnedDevice) -> Group:
    """What the model of a device was fitted on, and how to use it."""
    used = [
        *([count(learned.networks, "measured network")] if learned.networks else []),
        *([count(learned.profiles, "profile")] if learned.profiles else []),
    ]
    took = f", measured in {render_duration(learned.seconds)}" if learned.seconds else ""
    method = "" if learned.is_default else f" --method {learned.method}"
    return stack(
        build_line(f"{learned.device.name}: {learned.method} model fitted on {' and '.join(used)}{took}.", HEADING),
        *(build_line(line, BAD if learned.disturbed_used else QUIET) for line in _describe_disturbance(learned)),
        build_line(f"Saved in {learned.path}. Use it with:"),
        build_line(f"foretell workload predict --device {learned.device.name}{method}"),
    )


def _describe_disturbance(learned: LearnedDevice) -> list[str]:
    """What other processes used meanwhile, and what became of the networks that they disturbed."""
    load = learned.load
    if load is None:
        return []
    if not learned.disturbed:
        return [f"Other processes used {load.busy_cores:.1f} of {load.cores} cores meanwhile."]
    if not learned.disturbed_used:
        return [f"{count(learned.disturbed, 'network')} measured while other processes used the machine: left out."]
    remedy = "Stop them and measure again under another --name."
    return [f"{describe_load(load)} {count(learned.disturbed, 'network')} of {learned.networks} disturbed. {remedy}"]


def describe_learning(networks: int, seconds: float, budget_s: float, load: OtherLoad | None = None) -> str:
    """The progress of measuring, and the last network's load by other processes."""
    busy = f"; other processes use {load.busy_cores:.1f} of {load.cores} cores" if load and load.is_busy else ""
    return f"Measured {count(networks, 'network')}, {render_duration(seconds)} of {render_duration(budget_s)}{busy}"


# Records


def build_workload_record(workload: Workload) -> Record:
    """The whole step: totals of the step and of each phase, and the operators in the order in which they run."""
    return {
        **build_step_facts(workload),
        "unknown": workload.unknown,
        "warnings": [to_record(warning) for warning in find_warnings(workload)],
        "phases": {phase: to_record(totals) for phase, totals in total_phases(workload).items()},
        "operators": [
            {"layer": layer, **_describe_operator(operator)}
            for layer, operator in zip(list_layers(workload), workload.operators, strict=True)
        ],
    }


def build_operator_table(workload: Workload) -> Table:
    """A row for each operator in the order in which they run; shapes as text."""
    rows = [
        {
            "layer": layer,
            **{name: to_record(getattr(operator, name)) for name in _COLUMNS},
            "inputs": " ".join(map(render_shape, operator.inputs)),
            "output": render_shape(operator.output),
            "attributes": " ".join(f"{name}={_render_attribute(value)}" for name, value in operator.attributes),
        }
        for layer, operator in zip(list_layers(workload), workload.operators, strict=True)
    ]
    columns = ("phase", "layer", "kind", "inputs", "output", *_COLUMNS[2:], "attributes")
    return Table.from_rows(rows, columns)


def build_profile_record(profile: Profile, *, rows: int) -> Record:
    """A measured step with its parts, its quality, and the most costly operators."""
    step = profile.step
    return {
        "device": step.device,
        **build_step_facts(step.workload),
        "iteration_s": step.iteration_s,
        "steps": profile.steps,
        "spread": profile.spread,
        "overhead": profile.overhead,
        "load": profile.load,
        "facts": dict(profile.facts),
        "phases_s": find_phases(step),
        "costly": list_costly(step.workload, step.kernel_s, find_gaps(step), rows),
    }


def build_learned_record(learned: LearnedDevice) -> Record:
    """What the model of a device was fitted on."""
    record: Record = to_record(learned)
    return {**{name: value for name, value in record.items() if name != "path"}, "file": str(learned.path)}


def render_shape(shape: Sequence[int]) -> str:
    """``32x3x224x224``; ``1`` for a scalar."""
    return "x".join(map(str, shape)) or "1"


def build_step_facts(workload: Workload) -> Record:
    """What a step is, without its operators."""
    return {
        "name": workload.name,
        "batch": workload.batch,
        "settings": dict(workload.settings),
        "parameters": workload.parameters,
        "operator_count": len(workload.operators),
        "flops": workload.flops,
        "product_flops": workload.product_flops,
        "bytes_moved": workload.bytes_moved,
    }


def _describe_operator(operator: Operator) -> Mapping[str, Any]:
    record: Record = to_record(operator)
    return {**record, "attributes": {name: to_record(value) for name, value in operator.attributes}}


def list_costly(workload: Workload, kernel_s: Floats, gap_s: Floats, rows: int) -> list[Record]:
    """The most costly groups of equal operators."""
    groups = group_operators(workload, kernel_s, gap_s)[:rows]
    return [
        {
            "calls": len(group.layers),
            "seconds": group.seconds,
            "gap_s": group.gap_s,
            "layers": list(dict.fromkeys(group.layers)),
            **_describe_operator(group.operator),
        }
        for group in groups
    ]


def _render_attribute(value: int | Sequence[int]) -> str:
    return str(value) if isinstance(value, int) else render_shape(value)


# Values


def render_shapes(operator: Operator) -> str:
    """The shape of the first input, and of the output if it differs."""
    first = operator.inputs[0] if operator.inputs else ()
    same = operator.output == first or not operator.output
    return render_shape(first) if same else f"{render_shape(first)} > {render_shape(operator.output)}"


def _shorten_type(dtype: str) -> str:
    word = dtype.rstrip("0123456789")
    return _TYPES.get(word, word) + dtype[len(word) :]


def _shorten_layer(layer: str) -> str:
    """The end of its name, which distinguishes it from other layers."""
    text = clean_line(layer)
    return text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}"


def _shorten(text: str) -> str:
    text = clean_line(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def render_share(part: float, whole: float) -> str:
    """A part of the whole in per cent; nothing if the whole is 0."""
    return _percent(part / whole) if whole else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
