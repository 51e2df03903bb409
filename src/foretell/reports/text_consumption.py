"""What distributed training will consume, for the terminal."""

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table

from foretell.entities.consumption import ConsumptionPrediction, CycleEstimate, Resource
from foretell.entities.outlook import Outlook
from foretell.entities.training import JobProgress
from foretell.reports.records_consumption import Learned
from foretell.reports.tables import HEADING, QUIET, add_cells, build_facts, build_line, build_notes, build_table, stack
from foretell.reports.text_workload import render_time
from foretell.reports.words import clean_line, count, render_interval, render_level
from foretell.reports.words_consumption import (
    describe_limit,
    describe_setting,
    explain_missing,
    find_busy_share,
    is_asked,
    is_unsure,
    name_resource,
    render_amount,
    render_change,
    render_share,
    render_short_interval,
)

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
        *build_notes("Notes", (*asked.doubts, *asked.notes)),
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
