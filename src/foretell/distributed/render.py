"""Renders predictions of distributed training as text and JSON."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table

from foretell.core.observation import Resource
from foretell.core.prediction import Estimate
from foretell.core.render.phrases import count, render_interval, render_level, render_short_time
from foretell.core.render.tables import (
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
from foretell.core.units import render_link, render_rate
from foretell.distributed.api import LearnedConsumption
from foretell.distributed.consumption import (
    Change,
    ConsumptionPrediction,
    CycleEstimate,
    Limit,
    LimitedBy,
    Outlook,
    Setting,
    Strategy,
)
from foretell.distributed.placed_steps import ChoiceReason, PlacedPrediction, PlacementComparison, render_placement

Record = dict[str, Any]

_LEAST = 0.005  # smaller shares are shown as "< 1 %"
_WHOLE = 99.5  # larger rates have no decimals
_WITHOUT_NETWORK = "The traffic of each worker was not measured: that needs network namespaces, so root on Linux."
_WITHOUT_COMPUTE = "No bursts of compute were measured: of compute, only its time was fitted."


def name_resource(resource: Resource, prediction: ConsumptionPrediction) -> str:
    """``compute (CPU)``, ``transmit``."""
    device = "GPU" if prediction.gpu else "CPU"
    return {Resource.COMPUTE: f"compute ({device})", Resource.MEMORY: "memory (GPU)"}.get(resource, resource.value)


def name_unit(resource: Resource, prediction: ConsumptionPrediction) -> str:
    """The unit of a resource's amounts."""
    if resource in (Resource.TRANSMIT, Resource.RECEIVE):
        return "bytes/s"
    return "cores" if resource is Resource.COMPUTE and not prediction.gpu else "share"


def render_amount(resource: Resource, amount: float, prediction: ConsumptionPrediction) -> str:
    """``0.97 cores``, ``87 %`` of a GPU, ``11.2 MB/s``."""
    renderers: Mapping[str, Callable[[float], str]] = {
        "bytes/s": render_rate,
        "cores": "{:.2f} cores".format,
        "share": lambda share: f"{100 * share:.0f} %",
    }
    return renderers[name_unit(resource, prediction)](amount)


def explain_missing(resource: Resource, prediction: ConsumptionPrediction) -> str:
    """Why there is no prediction of a resource."""
    if resource is Resource.MEMORY:
        return "not predicted: no training on a GPU was measured, and a CPU has no such figure"
    if resource is not Resource.COMPUTE and not prediction.setting.communicates:
        return "none: there is one worker"
    return "not predicted: it was not measured in the trainings that the model was fitted to"


def describe_setting(setting: Setting) -> str:
    """``4 workers, all-reduce, links of 10 Gb/s, T4``."""
    workers = count(setting.workers, "worker")
    if setting.strategy is Strategy.ALLREDUCE:
        how = f"{workers}, all-reduce"
    else:
        how = f"{workers} and {count(setting.servers, 'server')}{'' if setting.synchronous else ', asynchronous'}"
    link = setting.link_bytes_per_s
    return f"{how}, {'no link' if link is None else f'links of {render_link(link)}'}, {setting.device}"


def render_change(change: Change, prediction: ConsumptionPrediction) -> str:
    """The value of what is changed: ``10 Gb/s``, ``4``."""
    value = prediction.get_value(change)
    return render_link(value) if change is Change.LINK else f"{value:,.0f}"


def render_short_interval(estimate: Estimate, render: Callable[[float], str]) -> str:
    """``7.29 - 15.8 ms``: the unit once if both bounds have the same."""
    low, high = render(estimate.low), render(estimate.high)
    number, _, unit = low.partition(" ")
    return f"{number if unit and high.endswith(f' {unit}') else low} - {high}"


def render_share(share: float) -> str:
    """``62 %``; a small one is ``< 1 %`` and not ``0 %``."""
    return "< 1 %" if 0 < share < _LEAST else f"{100 * share:.0f} %"


def describe_limit(limit: Limit) -> str:
    """What limits a training, and what would help, in a sentence or two."""
    if limit.link_saving is None and not limit.exposed_share:
        return "Compute is the limit: there is no communication to wait for."
    waits = f"{render_share(limit.exposed_share)} of an iteration waits"
    not_link = "" if limit.link_saving is None else ", but not the link"
    cause = {
        LimitedBy.COMPUTE: f"Compute is the limit{', mostly' if limit.mostly else ''}: {waits} for communication",
        LimitedBy.COMMUNICATION: f"Communication is the limit{not_link}: {waits} for it",
        LimitedBy.LINK: f"The link is the limit: {waits} for it",
    }[limit.by]
    link = "" if limit.link_saving is None else f"; twice the link {_render_saving(limit.link_saving)}"
    server = "" if limit.server_saving is None else f" One more server {_render_saving(limit.server_saving)}."
    return f"{cause}{link}.{server}"


def _render_saving(saved: float) -> str:
    return f"saves {100 * saved:.0f} %" if saved >= _LEAST else "saves nothing"


def build_outlook_record(outlook: Outlook) -> Record:
    """Seconds, bytes a second, cores or shares of a GPU; ``changes`` has predictions with one thing changed."""
    limit = outlook.limit
    return {
        **build_consumption_record(outlook.asked),
        "limit": describe_limit(limit),
        "limited_by": limit.by.value,
        "link_saving": limit.link_saving,
        "server_saving": limit.server_saving,
        "changes": {
            change.value: [build_consumption_record(each) for each in row] for change, row in outlook.shown.items()
        },
    }


def build_consumption_record(prediction: ConsumptionPrediction) -> Record:
    """A prediction; a resource without one has the reason."""
    return {
        "name": prediction.workload.name,
        "batch": prediction.workload.batch,
        "setting": to_record(prediction.setting),
        "iteration_s": to_record(prediction.iteration),
        "compute_s": prediction.compute_s,
        "exposed_s": prediction.exposed_s,
        "exposed_share": prediction.exposed_share,
        "examples_per_s": prediction.examples_per_s,
        "resources": {resource.value: _build_resource(resource, prediction) for resource in Resource},
        "warnings": to_record(prediction.warnings),
    }


def _build_resource(resource: Resource, prediction: ConsumptionPrediction) -> Record:
    cycle = prediction.cycles.get(resource)
    why = "" if cycle else explain_missing(resource, prediction)
    return {"unit": name_unit(resource, prediction), "cycle": to_record(cycle), "why": why}


def build_learned_consumption_record(learned: LearnedConsumption) -> Record:
    """The fitted model: its trainings and its file."""
    return {
        "name": learned.name,
        "method": learned.method,
        "jobs": learned.jobs,
        "disturbed": learned.disturbed,
        "settings": [to_record(setting) for setting in learned.settings],
        "resources": sorted(learned.resources),
        "transferred_from": learned.transferred_from,
        "file": str(learned.path),
        "measured": str(learned.measured),
    }


def render_outlook(outlook: Outlook) -> Group:
    """The iteration, its limit, the cycle of each resource, and predictions with one thing changed."""
    asked = outlook.asked
    return stack(
        _build_card(asked),
        build_line(describe_limit(outlook.limit)),
        build_line(""),
        build_line("What each worker consumes", HEADING),
        _build_cycles(asked),
        *(build_line(line, QUIET) for line in _list_missing(asked)),
        *_list_changes(outlook),
        *build_warnings(asked.warnings),
    )


def _build_card(asked: ConsumptionPrediction) -> Panel:
    whole = asked.iteration
    interval = f"{render_level(whole.level)}: {render_interval(whole, render_short_time)}"
    facts = build_facts(
        [
            ("Training", describe_setting(asked.setting)),
            ("Iteration", f"{render_short_time(whole.value)} ({interval})"),
            ("Compute", f"{render_short_time(asked.compute_s)}, {render_share(asked.compute_s / whole.value)}"),
            ("Exposed communication", f"{render_short_time(asked.exposed_s)}, {render_share(asked.exposed_share)}"),
            ("Examples per second", f"{_render_rate(asked.examples_per_s)}, all workers"),
        ]
    )
    title = build_line(f" {asked.workload.name}, batch {asked.workload.batch:,} for each worker ", HEADING)
    return Panel(facts, title=title, title_align="left", box=box.ROUNDED, border_style=QUIET, expand=False)


def _build_cycles(asked: ConsumptionPrediction) -> Table:
    level = render_level(asked.iteration.level)
    numbers = ("Burst", level, "Idle", level, "In bursts", level)
    table = build_table("Resource", *numbers, numbers=numbers)
    for resource in Resource:
        cycle = asked.cycles.get(resource)
        if cycle is not None:
            add_cells(table, name_resource(resource, asked), *_list_figures(resource, cycle, asked))
    return table


def _list_figures(resource: Resource, cycle: CycleEstimate, asked: ConsumptionPrediction) -> Iterator[str]:
    for seconds in (cycle.burst_s, cycle.idle_s):
        yield render_short_time(seconds.value)
        yield render_short_interval(seconds, render_short_time)
    yield render_amount(resource, cycle.burst_amount.value, asked)
    yield render_short_interval(cycle.burst_amount, lambda amount: render_amount(resource, amount, asked))


def _list_missing(asked: ConsumptionPrediction) -> Iterator[str]:
    for resource in Resource:
        if resource not in asked.cycles:
            yield f"{name_resource(resource, asked)}: {explain_missing(resource, asked)}"


def _list_changes(outlook: Outlook) -> Iterator[RenderableType]:
    if not outlook.shown:
        return
    yield build_line("What would change", HEADING)
    yield _build_changes(outlook)
    lines = ["*: as asked", "sending: share of an iteration in bursts"]
    if any(outlook.is_extrapolated(each) for row in outlook.shown.values() for each in row):
        lines.append("?: outside the measured range")
    yield build_line("; ".join(lines), QUIET)


def _build_changes(outlook: Outlook) -> Table:
    numbers = ("", "Iteration", render_level(outlook.asked.iteration.level), "Examples/s", "Exposed", "Sending")
    table = build_table("Changed", *numbers, numbers=numbers)
    for change, row in outlook.shown.items():
        for place, each in enumerate(row):
            add_cells(
                table,
                change.value if place == 0 else "",
                f"{_mark(each, outlook)}{render_change(change, each)}",
                *_list_changed(each),
                style=HEADING if outlook.is_asked(each) else "",
            )
    return table


def _mark(prediction: ConsumptionPrediction, outlook: Outlook) -> str:
    if outlook.is_asked(prediction):
        return "* "
    return "? " if outlook.is_extrapolated(prediction) else ""


def _list_changed(prediction: ConsumptionPrediction) -> Iterator[str]:
    yield render_short_time(prediction.iteration.value)
    yield render_short_interval(prediction.iteration, render_short_time)
    yield _render_rate(prediction.examples_per_s)
    yield render_share(prediction.exposed_share)
    sending = prediction.find_burst_share(Resource.TRANSMIT)
    yield "-" if sending is None else render_share(sending)


def _render_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= _WHOLE else f"{rate:.3g}"


def render_learned_consumption(learned: LearnedConsumption) -> Group:
    """What the model was fitted to, its file, and how to use it."""
    source = learned.transferred_from
    how = "fitted from scratch" if source is None else f"transferred from {source}"
    disturbed = f" {count(learned.disturbed, 'measurement')} disturbed by other processes." if learned.disturbed else ""
    network = Resource.TRANSMIT in learned.resources
    return stack(
        build_line(
            f"{learned.name}: {learned.method}, {how}, with {count(learned.jobs, 'measured training')}.{disturbed}",
            HEADING,
        ),
        *(build_line(f"- {describe_setting(setting)}") for setting in learned.settings),
        None if network else build_line(_WITHOUT_NETWORK, QUIET),
        None if Resource.COMPUTE in learned.resources else build_line(_WITHOUT_COMPUTE, QUIET),
        build_line(f"Saved in {learned.path}; 'foretell consumption predict --model {learned.name}' uses it."),
    )


# Placements


def describe_choice(comparison: PlacementComparison) -> str:
    """The recommended placement and the reason, in a sentence or two."""
    smallest, choice = comparison.smallest, comparison.choice
    if choice is not None:
        share = comparison.get_efficiency(choice)
        times = choice.examples_per_s / smallest.examples_per_s
        warning = f" Warning: {choice.warnings[0]}" if choice.warnings else ""
        return (
            f"Request {render_gpus(choice)}: {times:.2g} times the examples per second of {render_gpus(smallest)}, "
            f"with an efficiency of {render_share(share)}; {render_share(choice.exposed_share)} of a step waits for "
            f"gradients.{warning}"
        )
    gpus, waits = render_gpus(smallest), render_share(smallest.exposed_share)
    low = f"the efficiency of more GPUs is below {render_share(comparison.efficiency)}"
    unmeasured = ", or outside the measured range" if comparison.partly_extrapolated else ""
    return {
        ChoiceReason.NO_LARGER: f"{waits} of a step on {gpus} waits for gradients.",
        ChoiceReason.NOT_MEASURED: f"Stay with {gpus} until more is measured. {comparison.first_warning}",
        ChoiceReason.INEFFICIENT: f"Stay with {gpus}: {low}{unmeasured}.",
    }[comparison.reason]


def render_gpus(prediction: PlacedPrediction) -> str:
    """``1 GPU``, ``8 GPUs``, ``2x8 GPUs``."""
    return f"{render_placement(prediction.step.gpus)} GPU{'s' if prediction.count > 1 else ''}"


def render_placements(comparison: PlacementComparison) -> Group:
    """The recommended placement, then a row for each."""
    step = comparison.predictions[0].step
    return stack(
        build_line(f"{step.workload} on {step.cluster}, batch {step.batch:g} for each GPU", HEADING),
        build_line(describe_choice(comparison)),
        _build_placements(comparison),
        build_line(_build_legend(comparison), QUIET),
        *build_warnings(warning for each in comparison.predictions for warning in each.warnings),
    )


def _build_placements(comparison: PlacementComparison) -> Table:
    level = render_level(comparison.predictions[0].step_s.level)
    numbers = ("Step", level, "Measured", "Waits", "Examples/s", "Efficiency", "GPU h/M")
    table = build_table("GPUs", *numbers, numbers=numbers)
    for each in comparison.predictions:
        mark = f"{'*' if each is comparison.choice else ''}{'?' if each.warnings else ''}"
        add_cells(
            table,
            f"{mark:<2} {render_placement(each.step.gpus)}",
            render_short_time(each.step_s.value),
            render_short_interval(each.step_s, render_short_time),
            "" if each.measured_s is None else render_short_time(each.measured_s),
            render_share(each.exposed_share),
            f"{each.examples_per_s:,.3g}" if each.examples_per_s < 1000 else f"{each.examples_per_s:,.0f}",
            render_share(comparison.get_efficiency(each)),
            f"{each.gpu_hours_per_million:,.3g}",
            style=HEADING if each is comparison.choice else "",
        )
    return table


def _build_legend(comparison: PlacementComparison) -> str:
    words = ["waits: for gradients", "GPU h/M: GPU hours for a million examples"]
    if comparison.choice is not None:
        words.append(f"*: the most examples per second at {render_share(comparison.efficiency)} efficiency or more")
    if any(each.warnings for each in comparison.predictions):
        words.append("?: outside the measured range")
    return "; ".join(words)


def build_placements_record(comparison: PlacementComparison) -> Record:
    """Seconds, examples per second, the efficiency of each placement; ``choice`` is the one to request."""
    first, choice = comparison.predictions[0].step, comparison.choice
    return {
        "workload": first.workload,
        "cluster": first.cluster,
        "batch": first.batch,
        "efficiency_wanted": comparison.efficiency,
        "choice": None if choice is None else render_placement(choice.step.gpus),
        "reason": comparison.reason.value,
        "why": describe_choice(comparison),
        "placements": [
            {
                "placement": render_placement(each.step.gpus),
                "gpus": each.count,
                "nodes": len(each.step.gpus),
                "step_s": to_record(each.step_s),
                "compute_s": each.compute_s,
                "exposed_s": each.exposed_s,
                "exposed_share": each.exposed_share,
                "examples_per_s": each.examples_per_s,
                "efficiency": comparison.get_efficiency(each),
                "gpu_hours_per_million": each.gpu_hours_per_million,
                "measured_s": each.measured_s,
                "warnings": to_record(each.warnings),
            }
            for each in comparison.predictions
        ],
    }
