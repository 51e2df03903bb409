"""A job seen through, for the terminal: what was said, what came, what was paid."""

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from foretell.entities.execution import Execution
from foretell.entities.prediction import Estimate, Recommendation
from foretell.entities.run import Allocation
from foretell.entities.units import render_bytes, render_duration, render_money
from foretell.reports.tables import BAD, GOOD, HEADING, QUIET, add_cells, build_line, build_table, stack
from foretell.reports.words import count, explain_failure, name_place, name_state, render_interval, render_size


def render_start(recommendation: Recommendation, asked: Allocation) -> str:
    """One line before it is submitted."""
    time_s = recommendation.picked.prediction.elapsed_s
    about = render_interval(time_s, render_duration)
    return f"Picked {name_place(asked)}: {recommendation.why}. About {about}; asking for {_render_request(asked)}."


def render_execution(done: Execution) -> Group:
    """What the prediction said, what was asked for and paid each time, and how it ended."""
    if not done.attempts:
        return stack(build_line(f"{done.app}: {done.why_stopped}", "yellow"))
    outcome = "completed" if done.completed else name_state(done.run.state)
    title = f"{done.app}: {outcome} after {count(len(done.attempts), 'attempt')}, {_render_paid(done)}"
    return stack(
        build_line(title, HEADING),
        _build_attempts(done),
        _build_comparison(done) if done.completed else None,
        None if done.completed else build_line(f"Stopped: {done.why_stopped or explain_failure(done.run)}", BAD),
        Text(f"Stored as run {done.run.id}; 'foretell build' learns from it.", style=QUIET),
    )


def _render_paid(done: Execution) -> str:
    if not done.paid:
        return "nothing to pay"
    paid = render_money(done.paid, done.offer.currency)
    by = "as accounting says was allocated" if done.by_accounting else "by what was asked for and measured here"
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


def _build_comparison(done: Execution) -> Group:
    prediction, usage = done.offer.prediction, done.run.usage
    assert usage is not None
    table = build_table(
        "Quantity", "Predicted", "between", "Measured", "", numbers=("Predicted", "between", "Measured")
    )
    _add_row(table, "Time", prediction.elapsed_s, usage.elapsed_s, render_duration)
    if prediction.peak_memory_bytes is not None and usage.peak_memory_bytes is not None:
        _add_row(table, "Memory", prediction.peak_memory_bytes, usage.peak_memory_bytes, render_bytes)
    cost = render_money(done.offer.cost, done.offer.currency)
    add_cells(table, "Cost", cost, "", render_money(done.paid, done.offer.currency), "")
    return stack(table)


def _add_row(table: Table, name: str, estimate: Estimate, measured: float, render: Callable[[float], str]) -> None:
    inside = estimate.low <= measured <= estimate.high
    bounds, verdict = f"{render(estimate.low)} .. {render(estimate.high)}", "inside" if inside else "outside"
    style = GOOD if inside else "yellow"
    add_cells(table, name, render(estimate.value), bounds, render(measured), verdict, style=style)
