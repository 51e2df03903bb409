"""Predictions and offers, for the terminal."""

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from foretell.entities.prediction import Offer, Recommendation
from foretell.entities.units import render_bytes, render_duration
from foretell.reports.tables import (
    GOOD,
    HEADING,
    QUIET,
    FirstThatFits,
    add_cells,
    build_line,
    build_notes,
    build_table,
    stack,
)
from foretell.reports.words import (
    ELAPSED,
    count,
    describe_outcome,
    describe_request,
    group_rejections,
    name_node,
    render_cost,
    render_level,
    render_range,
    render_risk,
    render_size,
)


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
