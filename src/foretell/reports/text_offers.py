"""Predictions and offers, for the terminal."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from foretell.entities.prediction import Estimate, Offer, Prediction, Recommendation, Request
from foretell.entities.units import render_bytes, render_duration
from foretell.reports.tables import (
    GOOD,
    HEADING,
    QUIET,
    FirstThatFits,
    add_cells,
    build_facts,
    build_line,
    build_notes,
    build_table,
    stack,
)
from foretell.reports.words import (
    ELAPSED,
    MEMORY,
    count,
    describe_outcome,
    describe_request,
    group_rejections,
    name_node,
    render_cost,
    render_interval,
    render_level,
    render_parameters,
    render_range,
    render_risk,
    render_size,
)

_ROWS_NAMED = 4
_WORTH_A_WORD = 1.1  # times the first request: a next one that is hardly larger only confuses


def render_predictions(predictions: Sequence[Prediction]) -> Group:
    """One prediction as a card, several as a table with their doubts below."""
    if len(predictions) == 1:
        return stack(_build_card(predictions[0]))
    level = render_level(predictions[0].elapsed_s.level) if predictions else ""
    return stack(
        _build_prediction_table(predictions),
        Text(f"between: holds {level} of the time", style=QUIET) if predictions else None,
        *build_notes("Doubts", _list_doubts(predictions)),
    )


def _build_card(prediction: Prediction) -> Panel:
    facts = build_facts(
        [
            ("Time", _render_estimate(prediction.elapsed_s)),
            ("Peak memory", _render_memory(prediction.peak_memory_bytes)),
            ("Ask for", _render_request(prediction.request)),
            *_list_both_estimates(prediction),
            *((f"Phase {name}", _render_estimate(phase)) for name, phase in prediction.phases.items()),
        ]
    )
    title = build_line(f" {render_parameters(prediction.parameters)} on {render_size(prediction.allocation)} ", HEADING)
    content = stack(facts, *build_notes("Doubts", prediction.doubts))
    return Panel(content, title=title, title_align="left", box=box.ROUNDED, border_style=QUIET, expand=False)


def _list_both_estimates(prediction: Prediction) -> list[tuple[str, str]]:
    """The whole and the sum of phases, where there are two to compare."""
    if prediction.custom is None:
        return []
    chosen = prediction.elapsed_s == prediction.custom
    marks = ("", " (taken)") if chosen else (" (taken)", "")
    return [
        ("Basic estimate", _render_estimate(prediction.basic) + marks[0]),
        ("Custom estimate", _render_estimate(prediction.custom) + marks[1]),
    ]


def _render_estimate(estimate: Estimate) -> str:
    return _render_bounded(estimate, render_duration)


def _render_memory(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not known: too few runs measured it"
    return _render_bounded(estimate, render_bytes)


def _render_bounded(estimate: Estimate, render: Callable[[float], str]) -> str:
    return f"{render(estimate.value)} ({render_level(estimate.level)}: {render_interval(estimate, render)})"


def _render_request(request: Request) -> str:
    first = [render_duration(request.walltime_s)]
    second = _render_larger(request.walltime_s, request.retries_walltime_s, render_duration)
    if request.memory_bytes is not None:
        first.append(render_bytes(request.memory_bytes))
        second += _render_larger(request.memory_bytes, request.retries_memory, render_bytes)
    asked = " and ".join(first)
    return f"{asked}; if too small, {' and '.join(second)}" if second else asked


def _render_larger(first: float, retries: Sequence[float], render: Callable[[float], str]) -> list[str]:
    """The next try, where it is enough larger to be worth a word."""
    return [render(retry) for retry in retries[:1] if retry >= _WORTH_A_WORD * first and render(retry) != render(first)]


def _build_prediction_table(predictions: Sequence[Prediction]) -> FirstThatFits:
    columns = ("Time", "between", "ask for", "Memory", "between", "ask for")
    wide = build_table("#", "Parameters", "Size", *columns, numbers=("#", *columns), whole=columns)
    stacked = ("Time\nMemory", "between", "ask for")
    narrow = build_table("#", "Parameters", "Size", *stacked, numbers=("#", *stacked))
    for number, prediction in enumerate(predictions, start=1):
        names = str(number), render_parameters(prediction.parameters), render_size(prediction.allocation)
        time, memory = _list_time_cells(prediction), _list_memory_cells(prediction)
        add_cells(wide, *names, *time, *memory)
        add_cells(narrow, *names, *zip(time, memory, strict=True))
    return FirstThatFits(wide, narrow)


def _list_time_cells(prediction: Prediction) -> tuple[str, str, str]:
    elapsed, walltime_s = prediction.elapsed_s, prediction.request.walltime_s
    return render_duration(elapsed.value), render_range(ELAPSED, elapsed), render_duration(walltime_s)


def _list_memory_cells(prediction: Prediction) -> tuple[str, str, str]:
    memory, asked = prediction.peak_memory_bytes, prediction.request.memory_bytes
    return (
        "unknown" if memory is None else render_bytes(memory.value),
        "" if memory is None else render_range(MEMORY, memory),
        "" if asked is None else render_bytes(asked),
    )


def _list_doubts(predictions: Iterable[Prediction]) -> list[str]:
    rows = defaultdict(list)
    for number, prediction in enumerate(predictions, start=1):
        for doubt in prediction.doubts:
            rows[doubt].append(number)
    return [f"{_number_rows(numbers)}: {doubt}" for doubt, numbers in rows.items()]


def _number_rows(numbers: Sequence[int]) -> str:
    shown = ", ".join(f"#{number}" for number in numbers[:_ROWS_NAMED])
    return shown if len(numbers) <= _ROWS_NAMED else f"{shown} and {len(numbers) - _ROWS_NAMED:,} more"


def render_recommendation(recommendation: Recommendation, *, rows: int = 12) -> Group:
    """The pick in words, the offers it was picked from, and what cannot work."""
    picked, offers = recommendation.picked, recommendation.offers
    left = len(offers) - rows
    return stack(
        build_line(f"{recommendation.app}: ask for {describe_request(picked)}.", HEADING),
        build_line(f"{describe_outcome(picked)}."),
        build_line(f"Why: {recommendation.why}."),
        *build_notes("Doubts", picked.prediction.doubts),
        _build_offers(recommendation, offers[:rows]),
        Text(f"... and {count(left, 'other offer')}", style=QUIET) if left > 0 else None,
        Text(_build_legend(picked), style=QUIET),
        *build_notes("Cannot work", group_rejections(recommendation.rejections), style=""),
    )


def _build_legend(offer: Offer) -> str:
    level = render_level(offer.prediction.elapsed_s.level)
    return f"> picked   * no other is both quicker and cheaper   ~ not measured   between: holds {level} of the time"


def _build_offers(recommendation: Recommendation, offers: Sequence[Offer]) -> FirstThatFits:
    """A line for each offer, or two where the terminal is narrow: times and the names of nodes are not broken."""
    columns, stacked = (
        ("Memory", "Time", "between", "Ask for", "Cost", "Too small"),
        ("Time\nbetween", "Ask for\nMemory"),
    )
    wide = build_table("", "Node type", "Size", *columns, numbers=columns, whole=("Time", "between", "Ask for"))
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
