"""Sites, recommendations, verifications and executed jobs, as text and records."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from foretell.apps.render import build_run_record
from foretell.core.prediction import Estimate, Execution, Offer, Prediction, Recommendation, Verification
from foretell.core.render.phrases import (
    ELAPSED,
    clean_block,
    count,
    describe_outcome,
    describe_request,
    explain_failure,
    group_rejections,
    name_node,
    name_place,
    name_state,
    render_cost,
    render_interval,
    render_level,
    render_parameters,
    render_range,
    render_risk,
    render_size,
)
from foretell.core.render.tables import (
    BAD,
    GOOD,
    HEADING,
    QUIET,
    FirstThatFits,
    add_cells,
    build_facts,
    build_line,
    build_notes,
    build_table,
    build_warnings,
    stack,
)
from foretell.core.run import Allocation, Usage
from foretell.core.serialization import Record, build_record, render_charge, to_record
from foretell.core.site import Billing, NodeType, Site
from foretell.core.units import render_bytes, render_duration, render_money, render_price
from foretell.runtimes.render import build_prediction_record

_NO_SCHEDULER = "shell"
_LEGEND = "> picked   * no other is both quicker and cheaper   ~ not measured"


def render_sites(sites: Iterable[Site]) -> Group:
    """The sites that are known, one line each."""
    table = build_table("Site", "Title", "Scheduler", "Node types", "As of", numbers=("Node types",))
    for site in sites:
        add_cells(table, site.name, site.title, site.scheduler, str(len(site.node_types)), site.as_of)
    return stack(table)


def render_site(site: Site) -> Group:
    """A site with its node types."""
    numbers = ("Cores", "Memory", "Nodes", "Limit")
    table = build_table("Node type", "Partition", "Cores", "Memory", "GPUs", "Nodes", "Limit", "Price", numbers=numbers)
    for node in site.node_types:
        add_cells(table, *_list_node_cells(node, site.currency))
    return stack(
        build_line(f"{site.name}: {site.title}", HEADING),
        build_facts([("Scheduler", site.scheduler), ("As of", site.as_of), ("Source", site.source)]),
        table,
        Text("No prices are filled in: every job here is free.", style="yellow") if _lacks_prices(site) else None,
        Text(clean_block(site.notes), style=QUIET) if site.notes else None,
    )


def _lacks_prices(site: Site) -> bool:
    return site.scheduler != _NO_SCHEDULER and not site.has_prices


def _list_node_cells(node: NodeType, currency: str) -> tuple[str, ...]:
    return (
        node.name,
        node.partition,
        str(node.cores),
        render_bytes(node.memory_bytes),
        f"{node.gpus} x {node.gpu_model or 'GPU'}" if node.gpus else "",
        str(node.max_nodes),
        "" if node.max_walltime_s is None else render_duration(node.max_walltime_s),
        _render_price(node, currency),
    )


def _render_price(node: NodeType, currency: str) -> str:
    if node.billing is Billing.FREE:
        return "free"
    if node.billing is Billing.NODE_HOURS:
        return f"{render_price(node.price_per_node_h, currency)} a node-hour"
    gpus = f", {render_price(node.price_per_gpu_h, currency)} a GPU-hour" if node.gpus else ""
    return f"{render_price(node.price_per_core_h, currency)} a core-hour{gpus}"


def build_recommendation_record(recommendation: Recommendation) -> Record:
    """The offer picked and why, every offer best first, and what cannot work."""
    return {
        "app": recommendation.app,
        "picked": build_offer_record(recommendation.picked),
        "why": recommendation.why,
        "offers": [build_offer_record(offer) for offer in recommendation.offers],
        "rejections": to_record(recommendation.rejections),
    }


def build_offer_record(offer: Offer) -> Record:
    return build_record(offer) | {
        "cost": render_charge(offer.cost),
        "cost_at_request": render_charge(offer.cost_at_request),
    }


def build_execution_record(done: Execution) -> Record:
    """The offer, each attempt with its request, run and cost, and the total cost."""
    return {
        "app": done.app,
        "completed": done.completed,
        "why_stopped": done.why_stopped,
        "offer": build_offer_record(done.offer),
        "why": done.why,
        "attempts": [
            {
                "asked": to_record(attempt.asked),
                "run": build_run_record(attempt.run),
                "bill": render_charge(attempt.bill),
            }
            for attempt in done.attempts
        ],
        "paid": render_charge(done.paid),
        "currency": done.offer.currency,
        "by_accounting": done.by_accounting,
    }


def build_site_record(site: Site) -> Record:
    return build_record(site) | {"node_types": [_build_node_record(node) for node in site.node_types]}


def _build_node_record(node: NodeType) -> Record:
    prices = ("price_per_core_h", "price_per_gpu_h", "price_per_node_h")
    return build_record(node) | {name: render_charge(getattr(node, name)) for name in prices}


def render_verification(verification: Verification) -> Group:
    """Predicted and measured values, and whether the measured ones are in the interval."""
    prediction, run = verification.prediction, verification.run
    head = build_line(f"{run.spec.app}: {render_parameters(prediction.parameters)}", style="bold")
    if not verification.completed or run.usage is None:
        return stack(head, build_line(f"The run did not complete: {explain_failure(run)}", style=BAD))
    return stack(head, _build_comparison(prediction, run.usage), *build_warnings(prediction.warnings))


def _build_comparison(prediction: Prediction, usage: Usage) -> Table:
    """A row for time and one for memory: predicted, measured, and whether that is in the interval."""
    numbers = ("Predicted", render_level(prediction.elapsed_s.level), "Measured", "Error")
    table = build_table("", *numbers, "", numbers=numbers)
    _compare(table, "Time", prediction.elapsed_s, usage.elapsed_s, render_duration)
    if prediction.peak_memory_bytes is not None and usage.peak_memory_bytes is not None:
        _compare(table, "Memory", prediction.peak_memory_bytes, usage.peak_memory_bytes, render_bytes)
    return table


def _compare(table: Table, name: str, estimate: Estimate, measured: float, render: Callable[[float], str]) -> None:
    inside = estimate.contains(measured)
    error = f"{100 * (estimate.value / measured - 1):+.1f} %"
    cells = name, render(estimate.value), render_interval(estimate, render), render(measured), error
    add_cells(table, *cells, "inside" if inside else "outside", style=GOOD if inside else BAD)


def build_verification_record(verification: Verification) -> dict[str, Any]:
    """Prediction, run, and whether each measured figure lies in its interval."""
    return {
        "prediction": build_prediction_record(verification.prediction),
        "run": build_run_record(verification.run),
        "time_inside": verification.time_inside,
        "memory_inside": verification.memory_inside,
    }


def render_start(recommendation: Recommendation, asked: Allocation) -> str:
    """One line before it is submitted."""
    time_s = recommendation.picked.prediction.elapsed_s
    about = render_interval(time_s, render_duration)
    return f"Picked {name_place(asked)}: {recommendation.why}. About {about}; asking for {_render_request(asked)}."


def render_execution(done: Execution) -> Group:
    """Each attempt with its request and cost, and the prediction against the result."""
    if not done.attempts:
        return stack(build_line(f"{done.app}: {done.why_stopped}", "yellow"))
    outcome = "completed" if done.completed else name_state(done.run.state)
    title = f"{done.app}: {outcome} after {count(len(done.attempts), 'attempt')}, {_render_paid(done)}"
    return stack(
        build_line(title, HEADING),
        _build_attempts(done),
        _build_result(done) if done.completed else None,
        None if done.completed else build_line(f"Stopped: {done.why_stopped or explain_failure(done.run)}", BAD),
        Text(f"Stored as run {done.run.id}; 'foretell build' learns from it.", style=QUIET),
    )


def _render_paid(done: Execution) -> str:
    if not done.paid:
        return "free"
    paid = render_money(done.paid, done.offer.currency)
    by = "by accounting" if done.by_accounting else "by the request and the measured time"
    return f"{paid} paid ({by})"


def _build_attempts(done: Execution) -> RenderableType:
    table = build_table("Job", "Asked for", "Outcome", "Time", "Memory", "Paid", numbers=("Time", "Memory", "Paid"))
    for attempt in done.attempts:
        run = attempt.run
        usage = run.usage
        memory = None if usage is None else usage.peak_memory_bytes
        add_cells(
            table,
            run.job_id or "here",
            _render_request(attempt.asked),
            name_state(run.state),
            "" if usage is None else render_duration(usage.elapsed_s),
            "" if memory is None else render_bytes(memory),
            render_money(attempt.bill, done.offer.currency),
        )
    return table


def _render_request(asked: Allocation) -> str:
    parts = [
        render_size(asked),
        render_duration(asked.walltime_s) if asked.walltime_s else "",
        render_bytes(asked.memory_bytes) if asked.memory_bytes else "",
    ]
    return ", ".join(filter(None, parts))


def _build_result(done: Execution) -> Table:
    assert done.run.usage is not None
    table = _build_comparison(done.offer.prediction, done.run.usage)
    cost = render_money(done.offer.cost, done.offer.currency)
    add_cells(table, "Cost", cost, "", render_money(done.paid, done.offer.currency), "", "")
    return table


def render_recommendation(recommendation: Recommendation, *, rows: int = 12) -> Group:
    """The pick, the offers it was picked from, and what cannot work."""
    picked, offers = recommendation.picked, recommendation.offers
    left = len(offers) - rows
    return stack(
        build_line(f"{recommendation.app}: ask for {describe_request(picked)}.", HEADING),
        build_line(f"{describe_outcome(picked)}."),
        build_line(f"Why: {recommendation.why}."),
        *build_warnings(picked.prediction.warnings),
        _build_offers(recommendation, offers[:rows]),
        Text(f"... and {count(left, 'other offer')}", style=QUIET) if left > 0 else None,
        Text(_LEGEND, style=QUIET),
        *build_notes("Cannot work", group_rejections(recommendation.rejections), style=""),
    )


def _build_offers(recommendation: Recommendation, offers: Sequence[Offer]) -> FirstThatFits:
    """A line for each offer, or two on a narrow terminal: times and names of nodes are not broken."""
    level = render_level(recommendation.picked.prediction.elapsed_s.level)
    columns, stacked = (
        ("Memory", "Time", level, "Ask for", "Cost", "Too small"),
        (f"Time\n{level}", "Ask for\nMemory"),
    )
    wide = build_table("", "Node type", "Size", *columns, numbers=columns, whole=("Time", level, "Ask for"))
    narrow = build_table("", "Node type\nSize", *stacked, *columns[-2:], numbers=(*stacked, *columns))
    for offer in offers:
        elapsed, request = offer.prediction.elapsed_s, offer.prediction.request
        picked = offer == recommendation.picked
        style = GOOD if picked else ""
        marks = _render_marks(offer, picked=picked)
        node, size = name_node(offer.allocation), render_size(offer.allocation)
        memory = "" if request.memory_bytes is None else render_bytes(request.memory_bytes)
        expected = render_duration(elapsed.value), render_range(ELAPSED, elapsed)
        walltime, rest = render_duration(request.walltime_s), (render_cost(offer), render_risk(offer.risk))
        add_cells(wide, marks, node, size, memory, *expected, walltime, *rest, style=style)
        add_cells(narrow, marks, (node, size), expected, (walltime, memory), *rest, style=style)
    return FirstThatFits(wide, narrow)


def _render_marks(offer: Offer, *, picked: bool) -> str:
    return (">" if picked else " ") + ("*" if offer.pareto else " ") + (" " if offer.measured else "~")
