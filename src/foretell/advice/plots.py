"""The plot of offers: time against cost."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

from foretell.core.prediction import Offer, Recommendation
from foretell.core.render.figures import (
    ACCENT,
    MUTED,
    PICK,
    TIME,
    DecimalRuler,
    Floats,
    build_axes,
    can_be_drawn,
    find_limits,
    house_style,
    rule,
)
from foretell.core.render.phrases import clean_line, name_node, render_size
from foretell.core.units import render_price


def draw_offers(recommendation: Recommendation) -> Figure:
    """Time against cost: every offer, the Pareto front, and the pick."""
    with house_style():
        figure, axes = build_axes("Time against cost", width=7.2, height=4.4)
        offers = [offer for offer in recommendation.offers if can_be_drawn(_locate(offer)[0])]
        _scatter_offers(axes, [offer for offer in offers if offer.measured], "offer", filled=True)
        _scatter_offers(axes, [offer for offer in offers if not offer.measured], "offer, not measured", filled=False)
        _draw_front(axes, [offer for offer in offers if offer.pareto])
        low, high = find_limits(np.array([_locate(offer)[0] for offer in offers]))
        rule(axes, "x", TIME, low, high)
        _rule_costs(axes, np.array([_locate(offer)[1] for offer in offers]), recommendation.picked.currency)
        if recommendation.picked in offers:
            _mark_pick(axes, recommendation.picked, middle_s=math.sqrt(low * high))
        axes.set(xlabel="expected time", ylabel="expected cost")
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0, handletextpad=0.3, columnspacing=1.2
        )
        axes.set_title(axes.get_title(loc="left"), pad=28)
    return figure


def _locate(offer: Offer) -> tuple[float, float]:
    return offer.prediction.elapsed_s.value, float(offer.cost)


def _scatter_offers(axes: Axes, offers: Sequence[Offer], label: str, *, filled: bool) -> None:
    if offers:
        times, costs = zip(*map(_locate, offers), strict=True)
        face = MUTED if filled else "none"
        axes.scatter(times, costs, s=24, facecolor=face, edgecolor=MUTED, linewidth=1, alpha=0.6, label=label)


def _draw_front(axes: Axes, offers: Sequence[Offer]) -> None:
    if offers:
        times, costs = zip(*sorted(map(_locate, offers)), strict=True)
        label = "no other is both quicker and cheaper"
        axes.step(times, costs, where="post", color=ACCENT, linewidth=1.4, marker="o", markersize=5, label=label)


def _mark_pick(axes: Axes, picked: Offer, *, middle_s: float) -> None:
    """A ring, with a label on the free side of the front: above it on the left, below it on the right."""
    place = _locate(picked)
    axes.scatter(*place, s=130, facecolor="none", edgecolor=PICK, linewidth=2, zorder=4, label="picked")
    offset, side = ((10.0, 9.0), "left") if place[0] < middle_s else ((-12.0, -4.0), "right")
    words = f"{name_node(picked.allocation)}, {render_size(picked.allocation)}"
    label = axes.annotate(
        words, place, xytext=offset, textcoords="offset points", ha=side, color=PICK, weight="bold", fontsize=9
    )
    label.set_path_effects([Stroke(linewidth=3, foreground="white"), Normal()])  # to be read above other offers


def _rule_costs(axes: Axes, costs: Floats, currency: str) -> None:
    if can_be_drawn(costs).all():
        rule(axes, "y", DecimalRuler(currency=clean_line(currency)), *find_limits(costs))
    else:  # free offers have no place on a logarithmic axis
        axes.yaxis.set_major_formatter(lambda value, _: render_price(max(value, 0.0), clean_line(currency)))
        axes.set_ylim(bottom=0)
