"""What distributed training will consume, for the terminal."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table

from foretell.core.cycles import Resource
from foretell.core.prediction import Estimate
from foretell.core.serialization import to_record
from foretell.core.units import render_link, render_rate
from foretell.distributed.consumption import Change, ConsumptionPrediction, CycleEstimate, Outlook, Setting, Strategy
from foretell.distributed.training_jobs import JobProgress
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
from foretell.steps.render import render_time

_LITTLE, _MUCH = 0.1, 0.25  # of an iteration: what waits less hardly limits it, or is not what limits it most
_LEAST = 0.005  # of an iteration: what saves less saves nothing


def name_resource(resource: Resource, prediction: ConsumptionPrediction) -> str:
    """``compute (CPU)``, ``transmit``."""
    device = "GPU" if prediction.gpu else "CPU"
    return {Resource.COMPUTE: f"compute ({device})", Resource.MEMORY: "memory (GPU)"}.get(resource, resource.value)


def name_unit(resource: Resource, prediction: ConsumptionPrediction) -> str:
    """What amounts of a resource are counted in."""
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
    """Why nothing is told of a resource."""
    if resource is Resource.MEMORY:
        return "not told: no training on a GPU was measured, and nothing stands in for it on a CPU"
    if resource is not Resource.COMPUTE and not prediction.setting.communicates:
        return "none: one worker has nobody to talk to"
    return "not told: it could not be measured in the trainings that were learned from"


def describe_setting(setting: Setting) -> str:
    """``4 workers, all-reduce, links of 10 Gb/s, T4``."""
    workers = count(setting.workers, "worker")
    if setting.strategy is Strategy.ALLREDUCE:
        how = f"{workers}, all-reduce"
    else:
        how = f"{workers} and {count(setting.servers, 'server')}{'' if setting.synchronous else ', asynchronous'}"
    link = setting.link_bytes_per_s
    return f"{how}, {'no link named' if link is None else f'links of {render_link(link)}'}, {setting.device}"


def render_change(change: Change, prediction: ConsumptionPrediction) -> str:
    """The value of what is changed: ``10 Gb/s``, ``4``."""
    value = find_value(change, prediction)
    return render_link(value) if change is Change.LINK else f"{value:,.0f}"


def find_value(change: Change, prediction: ConsumptionPrediction) -> float:
    """The value of what is changed, as a number."""
    setting = prediction.setting
    return {
        Change.LINK: setting.link_bytes_per_s or 0.0,
        Change.WORKERS: setting.workers,
        Change.SERVERS: setting.servers,
        Change.BATCH: prediction.workload.batch,
    }[change]


def is_unsure(told: ConsumptionPrediction, asked: ConsumptionPrediction) -> bool:
    """Whether a change leads outside of what was measured."""
    return bool(told.outside - asked.outside)


def is_asked(told: ConsumptionPrediction, outlook: Outlook) -> bool:
    """Whether nothing is changed."""
    asked = outlook.asked
    return (told.setting, told.workload.batch) == (asked.setting, asked.workload.batch)


def find_busy_share(resource: Resource, prediction: ConsumptionPrediction) -> float | None:
    """Of an iteration, that a resource is in a burst."""
    cycle = prediction.cycles.get(resource)
    return None if cycle is None else cycle.burst_s.value / (cycle.burst_s.value + cycle.idle_s.value)


def render_short_interval(estimate: Estimate, render: Callable[[float], str]) -> str:
    """``7.29 - 15.8 ms``: the unit once, where both bounds have the same."""
    low, high = render(estimate.low), render(estimate.high)
    number, _, unit = low.partition(" ")
    return f"{number if unit and high.endswith(f' {unit}') else low} - {high}"


def render_share(share: float) -> str:
    """``62 %``, never a small one as none: ``< 1 %``."""
    return "< 1 %" if 0 < share < _LEAST else f"{100 * share:.0f} %"


# What limits


def describe_limit(outlook: Outlook) -> str:
    """What limits a training, and what would help, in a sentence or two."""
    if not outlook.asked.setting.communicates:
        return "Compute is the limit: there is no communication to wait for."
    more = _find_saving(outlook, Change.SERVERS, further=1)
    further = "" if more is None else f" One more server {_render_saving(more)}."
    return f"{_describe_cause(outlook.asked.exposed_share, _find_saving(outlook, Change.LINK, factor=2.0))}{further}"


def _describe_cause(waits: float, saved: float | None) -> str:
    if waits < _MUCH:
        mostly = "" if waits < _LITTLE else ", mostly"
        cause = f"Compute is the limit{mostly}: {render_share(waits)} of an iteration waits for communication"
    elif saved is None or saved < _LITTLE:
        but = "" if saved is None else ", but not the link"
        cause = f"Communication is the limit{but}: {render_share(waits)} of an iteration waits for it"
    else:
        cause = f"The link is the limit: {render_share(waits)} of an iteration waits for it"
    return f"{cause}." if saved is None else f"{cause}; twice the link {_render_saving(saved)}."


def _render_saving(saved: float) -> str:
    return f"saves {100 * saved:.0f} %" if saved >= _LEAST else "saves nothing"


def _find_saving(outlook: Outlook, change: Change, *, factor: float = 1.0, further: int = 0) -> float | None:
    """The share of an iteration that a change saves; ``None`` if it was not told."""
    wanted = factor * find_value(change, outlook.asked) + further
    told = [each for each in outlook.others.get(change, ()) if find_value(change, each) == wanted]
    return 1 - told[0].iteration.value / outlook.asked.iteration.value if told else None


Record = dict[str, Any]


class Learned(Protocol):
    """What was learned from measured trainings."""

    @property
    def name(self) -> str: ...
    @property
    def jobs(self) -> int: ...
    @property
    def disturbed(self) -> int: ...
    @property
    def settings(self) -> Iterable[Setting]: ...
    @property
    def resources(self) -> frozenset[Resource]: ...
    @property
    def transferred(self) -> bool: ...
    @property
    def path(self) -> Path: ...
    @property
    def measured(self) -> Path: ...


def build_outlook_record(outlook: Outlook) -> Record:
    """Seconds, bytes a second, cores or shares of a GPU; ``changes`` has what would change, one thing at a time."""
    return {
        **build_consumption_record(outlook.asked),
        "limit": describe_limit(outlook),
        "changes": {
            change.value: [build_consumption_record(told) for told in row] for change, row in outlook.shown.items()
        },
    }


def build_consumption_record(prediction: ConsumptionPrediction) -> Record:
    """A prediction; a resource of which nothing is told says why."""
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


def build_learned_consumption_record(learned: Learned) -> Record:
    """What was learned from, and where it is kept."""
    return {
        "name": learned.name,
        "jobs": learned.jobs,
        "disturbed": learned.disturbed,
        "settings": [to_record(setting) for setting in learned.settings],
        "resources": sorted(learned.resources),
        "transferred": learned.transferred,
        "file": str(learned.path),
        "measured": str(learned.measured),
    }


_WHOLE = 99.5  # rates from here on have no decimals
_WITHOUT_NETWORK = (
    "What each worker sends and receives could not be told apart: that needs network namespaces, so root on Linux."
)
_WITHOUT_COMPUTE = "No bursts of compute could be told apart: of compute nothing was learned but how long it takes."


def render_outlook(outlook: Outlook) -> Group:
    """The iteration, what limits it, the cycle of each resource, and what would change."""
    asked = outlook.asked
    return stack(
        _build_card(asked),
        build_line(describe_limit(outlook)),
        build_line(""),
        build_line("What each worker consumes", HEADING),
        _build_cycles(asked),
        *(build_line(line, QUIET) for line in _list_missing(asked)),
        *_list_changes(outlook),
        *build_warnings(asked.warnings),
    )


def _build_card(asked: ConsumptionPrediction) -> Panel:
    whole = asked.iteration
    interval = f"{render_level(whole.level)}: {render_interval(whole, render_time)}"
    facts = build_facts(
        [
            ("Training", describe_setting(asked.setting)),
            ("Iteration", f"{render_time(whole.value)} ({interval})"),
            ("Compute", f"{render_time(asked.compute_s)}, {render_share(asked.compute_s / whole.value)}"),
            ("Exposed communication", f"{render_time(asked.exposed_s)}, {render_share(asked.exposed_share)}"),
            ("Examples a second", f"{_render_rate(asked.examples_per_s)} over all workers"),
        ]
    )
    title = build_line(f" {asked.workload.name}, batch {asked.workload.batch:,} for each worker ", HEADING)
    return Panel(facts, title=title, title_align="left", box=box.ROUNDED, border_style=QUIET, expand=False)


def _build_cycles(asked: ConsumptionPrediction) -> Table:
    numbers = ("Burst", "between", "Idle", "between", "In bursts", "between")
    table = build_table("Resource", *numbers, numbers=numbers)
    for resource in Resource:
        cycle = asked.cycles.get(resource)
        if cycle is not None:
            add_cells(table, name_resource(resource, asked), *_list_figures(resource, cycle, asked))
    return table


def _list_figures(resource: Resource, cycle: CycleEstimate, asked: ConsumptionPrediction) -> Iterator[str]:
    for seconds in (cycle.burst_s, cycle.idle_s):
        yield render_time(seconds.value)
        yield render_short_interval(seconds, render_time)
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
    if any(is_unsure(told, outlook.asked) for row in outlook.shown.values() for told in row):
        lines.append("?: outside of what was measured")
    yield build_line("; ".join(lines), QUIET)


def _build_changes(outlook: Outlook) -> Table:
    numbers = ("", "Iteration", "between", "Examples/s", "Exposed", "Sending")
    table = build_table("With another", *numbers, numbers=numbers)
    for change, row in outlook.shown.items():
        for place, told in enumerate(row):
            add_cells(
                table,
                change.value if place == 0 else "",
                f"{_mark(told, outlook)}{render_change(change, told)}",
                *_list_changed(told),
                style=HEADING if is_asked(told, outlook) else "",
            )
    return table


def _mark(told: ConsumptionPrediction, outlook: Outlook) -> str:
    if is_asked(told, outlook):
        return "* "
    return "? " if is_unsure(told, outlook.asked) else ""


def _list_changed(told: ConsumptionPrediction) -> Iterator[str]:
    yield render_time(told.iteration.value)
    yield render_short_interval(told.iteration, render_time)
    yield _render_rate(told.examples_per_s)
    yield render_share(told.exposed_share)
    sending = find_busy_share(Resource.TRANSMIT, told)
    yield "-" if sending is None else render_share(sending)


def _render_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= _WHOLE else f"{rate:.3g}"


# Learning


def describe_job(progress: JobProgress) -> str:
    """``12/20 conv 11: 84.2 ms an iteration, quiet``."""
    place = f"{progress.done}/{progress.asked}"
    if progress.iteration_s is None:
        return clean_line(f"{place} number {progress.number}: failed ({progress.failed})")
    quiet = "disturbed by others" if progress.disturbed else "quiet"
    return f"{place} {progress.family} {progress.number}: {render_time(progress.iteration_s)} an iteration, {quiet}"


def render_learned_consumption(learned: Learned) -> Group:
    """What was learned from, where it is kept, and how to use it."""
    how = "carried over from what ships" if learned.transferred else "learned from scratch"
    settings = list(learned.settings)
    disturbed = f" {count(learned.disturbed, 'measurement')} disturbed by others." if learned.disturbed else ""
    network = Resource.TRANSMIT in learned.resources
    return stack(
        build_line(f"{learned.name}: {how}, with {count(learned.jobs, 'measured training')}.{disturbed}", HEADING),
        *(build_line(f"- {describe_setting(setting)}") for setting in settings),
        None if network else build_line(_WITHOUT_NETWORK, QUIET),
        None if Resource.COMPUTE in learned.resources else build_line(_WITHOUT_COMPUTE, QUIET),
        build_line(f"Kept in {learned.path}; 'foretell consumption predict --model {learned.name}' uses it."),
    )
