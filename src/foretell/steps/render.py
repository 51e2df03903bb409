"""Training steps and devices, for the terminal."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group
from rich.panel import Panel
from rich.table import Table

from foretell.core.units import render_bytes, render_duration
from foretell.core.workload import Operator, StepPhase, Workload
from foretell.render.phrases import clean_line, count, render_interval, render_level
from foretell.render.tables import (
    HEADING,
    QUIET,
    add_cells,
    build_facts,
    build_line,
    build_table,
    build_warnings,
    stack,
)
from foretell.steps import DEFAULT_METHODS
from foretell.steps.step_records import MeasuredProfile, render_shape
from foretell.steps.step_results import (
    KnownDevice,
    LearnedDevice,
    OperatorGroup,
    StepPrediction,
    find_gaps,
    find_phases,
    group_operators,
    list_layers,
)

_BREAKING = {"Shapes": 13, "Layer": 6}  # columns that may break, and how narrow they get

_SCALES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3))
_LONGEST = 15  # names of layers and kinds, so that there is room for shapes
_KINDS = 8
_LEAST_S = 5e-9  # what is shorter is none
_TYPES = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}
_TIMES = {"shipped": "shipped", "learned": "learned here", "": "none: only its figures"}


# What a step does


def render_workload(workload: Workload, *, rows: int | None) -> Group:
    """Totals of each phase, the kinds that do most, and the operators in the order in which they run."""
    shown = len(workload.operators) if rows is None else min(rows, len(workload.operators))
    left = len(workload.operators) - shown
    return stack(
        build_line(describe_workload(workload), HEADING),
        _build_totals(workload),
        build_line("Kinds that compute most", HEADING),
        _build_kinds(workload),
        build_line("Operators in the order in which they run", HEADING),
        _build_operators(workload, shown),
        build_line(f"... and {count(left, 'more operator')}; --rows or --all shows them", QUIET) if left else None,
    )


def describe_workload(workload: Workload) -> str:
    """A workload and how it is trained, in one line."""
    settings = workload.settings
    words = [
        f"batch {workload.batch:,}",
        f"{render_scaled(workload.parameters)} parameters",
        settings.get("precision", ""),
        " ".join(filter(None, (settings.get("optimizer", ""), _in_brackets(settings.get("implementation", ""))))),
        "" if settings.get("accumulation", "1") == "1" else f"{settings['accumulation']} batches an update",
        "checkpointing" if settings.get("checkpointing") == "yes" else "",
    ]
    return f"{workload.name}: {', '.join(filter(None, words))}"


def _in_brackets(word: str) -> str:
    return f"({word})" if word else ""


def _build_totals(workload: Workload) -> Table:
    numbers = ("Operators", "FLOPs", "Bytes")
    table = build_table("Phase", *numbers, numbers=numbers)
    for phase in StepPhase:
        chosen = [operator for operator in workload.operators if operator.phase is phase]
        add_cells(table, phase, *_sum_up(chosen))
    add_cells(table, "whole step", *_sum_up(workload.operators), style=HEADING)
    return table


def _sum_up(operators: Sequence[Operator]) -> tuple[str, str, str]:
    flops = sum(operator.flops for operator in operators)
    moved = sum(operator.bytes_moved for operator in operators)
    return f"{len(operators):,}", render_scaled(flops), render_bytes(moved)


def _build_kinds(workload: Workload) -> Table:
    kinds: dict[str, list[Operator]] = defaultdict(list)
    for operator in workload.operators:
        kinds[operator.kind].append(operator)
    most = sorted(kinds.items(), key=lambda pair: -sum(operator.flops for operator in pair[1]))[:_KINDS]
    numbers = ("Operators", "FLOPs", "Bytes", "of all FLOPs", "of all bytes")
    table = build_table("Kind", *numbers, numbers=numbers)
    for kind, chosen in most:
        flops = sum(operator.flops for operator in chosen)
        moved = sum(operator.bytes_moved for operator in chosen)
        shares = (_share(flops, workload.flops), _share(moved, workload.bytes_moved))
        add_cells(table, clean_line(kind), *_sum_up(chosen), *shares)
    return table


def _build_operators(workload: Workload, shown: int) -> Table:
    operators = workload.operators[:shown]
    types = ("Type",) if len({operator.dtype for operator in workload.operators}) > 1 else ()
    numbers = ("#", "FLOPs", "Bytes", "Params")
    table = build_table("#", "Phase", "Layer", "Kind", "Shapes", *types, *numbers[1:], numbers=numbers)
    _let_some_break(table)
    for number, (operator, layer) in enumerate(zip(operators, list_layers(workload), strict=False), start=1):
        add_cells(
            table,
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
    return table


def _let_some_break(table: Table) -> None:
    for column in table.columns:
        column.min_width = _BREAKING.get(str(column.header))
        column.no_wrap = column.min_width is None


# How long it takes


def render_step_predictions(predictions: Sequence[StepPrediction], *, rows: int) -> Group:
    """One as a card with the operators that cost most, several as a table."""
    warnings = [warning for prediction in predictions for warning in prediction.warnings]
    if len(predictions) == 1:
        (prediction,) = predictions
        estimate = prediction.estimate
        groups = group_operators(prediction.workload, estimate.kernel_s, estimate.gap_s)
        return stack(
            _build_card(prediction),
            build_line("Operators that cost most", HEADING),
            _build_costly(groups[:rows], estimate.iteration.value),
            *build_warnings(warnings),
        )
    level = render_level(predictions[0].estimate.iteration.level)
    return stack(
        build_line(f"{predictions[0].workload.name} on {predictions[0].device}", HEADING),
        _build_curve(predictions),
        build_line(f"between: holds {level} of the time", QUIET),
        *build_warnings(warnings),
    )


def _build_card(prediction: StepPrediction) -> Panel:
    estimate = prediction.estimate
    whole = estimate.iteration.value
    interval = f"{render_level(estimate.iteration.level)}: {render_interval(estimate.iteration, render_time)}"
    parts = [(phase.title(), estimate.phases.get(phase, 0.0)) for phase in StepPhase]
    waits = [("Device busy", estimate.busy_s), ("Framework overhead", estimate.overhead_s)]
    facts = build_facts(
        [
            ("Iteration", f"{render_time(whole)} ({interval})"),
            *((name, f"{render_time(seconds)}, {_share(seconds, whole)}") for name, seconds in [*parts, *waits]),
            ("Examples a second", _render_rate(prediction.examples_per_s)),
        ]
    )
    title = build_line(
        f" {prediction.workload.name}, batch {prediction.workload.batch:,} on {prediction.device} ", HEADING
    )
    return Panel(facts, title=title, title_align="left", box=box.ROUNDED, border_style=QUIET, expand=False)


def _build_curve(predictions: Iterable[StepPrediction]) -> Table:
    numbers = ("Batch", "Iteration", "between", "Forward", "Backward", "Update", "Busy", "Overhead", "Examples/s")
    table = build_table(*numbers, numbers=numbers)
    for prediction in predictions:
        estimate = prediction.estimate
        add_cells(
            table,
            f"{prediction.workload.batch:,}",
            render_time(estimate.iteration.value),
            render_interval(estimate.iteration, render_time).replace(" to ", " - "),
            *(render_time(estimate.phases.get(phase, 0.0)) for phase in StepPhase),
            _share(estimate.busy_s, estimate.iteration.value),
            _share(estimate.overhead_s, estimate.iteration.value),
            _render_rate(prediction.examples_per_s),
        )
    return table


def render_profile(profile: MeasuredProfile, *, rows: int) -> Group:
    """A measured step: how sure it is, its phases, and the operators that took longest."""
    step = profile.step
    groups = group_operators(step.workload, step.kernel_s, find_gaps(step))
    return stack(
        build_line(f"{step.workload.name}, batch {step.workload.batch:,} on {step.device}", HEADING),
        build_facts(_list_profile_facts(profile)),
        build_line("Operators that took longest", HEADING),
        _build_costly(groups[:rows], step.iteration_s),
    )


def _list_profile_facts(profile: MeasuredProfile) -> list[tuple[str, str]]:
    step = profile.step
    phases = find_phases(step).items()
    return [
        ("Iteration", f"{render_time(step.iteration_s)}, the median of {count(profile.steps, 'step')}"),
        ("Spread", f"half of the steps lie within {_percent(profile.spread)} of it"),
        *((phase.title(), f"{render_time(seconds)}, {_share(seconds, step.iteration_s)}") for phase, seconds in phases),
        (
            "Cost of measuring",
            f"a step took {_percent(max(profile.overhead, 0))} longer while its operators were timed",
        ),
        ("Load before", "" if profile.load is None else f"{profile.load:.2f} processes that wanted to run"),
        ("With", ", ".join(f"{name} {value}" for name, value in profile.facts.items())),
    ]


def _build_costly(groups: Iterable[OperatorGroup], whole_s: float) -> Table:
    numbers = ("Calls", "Time", "Gaps", "Share")
    table = build_table("Phase", "Layer", "Kind", "Shapes", *numbers, numbers=numbers)
    _let_some_break(table)
    for group in groups:
        add_cells(
            table,
            group.operator.phase,
            _shorten_layer(group.layers[0]),
            _shorten(group.operator.kind),
            render_shapes(group.operator),
            f"{len(group.layers):,}",
            render_time(group.seconds),
            render_time(group.gap_s),
            _share(group.seconds, whole_s),
        )
    return table


# Devices


def render_devices(devices: Iterable[KnownDevice]) -> Group:
    """Each with its figures, and whether steps on it can be told."""
    numbers = ("FLOP/s", "Bytes/s", "Memory", "Units")
    table = build_table("Device", "Kind", *numbers, "Times", numbers=numbers)
    for known in devices:
        device = known.device
        add_cells(
            table,
            device.name,
            device.kind,
            render_scaled(device.peak_flops),
            render_scaled(device.bandwidth_bytes),
            render_bytes(device.memory_bytes),
            str(device.units),
            _TIMES[known.times],
        )
    learn = "'foretell device learn' measures the device at hand; 'workload' takes those that have times."
    return stack(table, build_line(learn, QUIET))


def render_learned(learned: LearnedDevice) -> Group:
    """What the model of a device was fitted on, and how to use it."""
    used = [
        *([count(learned.networks, "measured network")] if learned.networks else []),
        *([count(learned.profiles, "profile")] if learned.profiles else []),
    ]
    took = f", measured in {render_duration(learned.seconds)}" if learned.seconds else ""
    method = "" if learned.method in DEFAULT_METHODS else f" --method {learned.method}"
    return stack(
        build_line(f"{learned.device.name}: {learned.method} model fitted on {' and '.join(used)}{took}.", HEADING),
        build_line(f"Saved in {learned.path}. Use it with:"),
        build_line(f"foretell workload predict --device {learned.device.name}{method}"),
    )


def describe_learning(networks: int, seconds: float, budget_s: float) -> str:
    """How far it is."""
    return f"Measured {count(networks, 'network')}, {render_duration(seconds)} of {render_duration(budget_s)}"


# Values


def render_time(seconds: float) -> str:
    """Three digits: ``15.2 µs``, ``1.24 ms``, ``12.4 s``; longer ones as durations are."""
    if seconds >= 59.95 or seconds != seconds:
        return render_duration(seconds)
    name, size = next(
        ((name, size) for name, size in (("s", 1.0), ("ms", 1e-3)) if seconds >= 0.9995 * size), ("µs", 1e-6)
    )
    value = seconds / size
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {name}" if seconds >= _LEAST_S else "0"


def render_scaled(number: float) -> str:
    """``4.1 G``, ``25.6 M``, ``12``."""
    name, size = next(((name, size) for name, size in _SCALES if number >= 0.9995 * size), ("", 1.0))
    return f"{number / size:.3g} {name}".strip()


def render_shapes(operator: Operator) -> str:
    """What goes in first, and what comes out where that is another shape."""
    first = operator.inputs[0] if operator.inputs else ()
    same = operator.output == first or not operator.output
    return render_shape(first) if same else f"{render_shape(first)} > {render_shape(operator.output)}"


def _render_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 99.5 else f"{rate:.3g}"


def _shorten_type(dtype: str) -> str:
    word = dtype.rstrip("0123456789")
    return _TYPES.get(word, word) + dtype[len(word) :]


def _shorten_layer(layer: str) -> str:
    """Its end, which tells it from others."""
    text = clean_line(layer)
    return text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}"


def _shorten(text: str) -> str:
    text = clean_line(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _share(part: float, whole: float) -> str:
    return _percent(part / whole) if whole else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
