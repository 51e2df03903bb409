"""Plots a prediction of distributed training: an iteration over time, and what changes would do."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from foretell.core.observation import Resource
from foretell.core.render.figures import ACCENT, INK, MUTED, PICK, house_style
from foretell.core.render.phrases import clean_line, render_level, render_short_time
from foretell.distributed.consumption import Change, ConsumptionPrediction, CycleEstimate, Outlook, Strategy
from foretell.distributed.render import describe_setting, name_resource, render_amount, render_change

_WIDTH, _HEAD, _PANEL, _CURVES = 9.6, 1.2, 1.0, 2.6  # inches
_LONGEST_TITLE = 90
_ITERATIONS = 2  # that are drawn, to show the cycle


def draw_outlook(outlook: Outlook) -> Figure:
    """Two iterations of each resource with bursts shaded; below, the iteration over each change."""
    asked = outlook.asked
    below = _CURVES if outlook.shown else 0.0
    above = _HEAD + _PANEL * max(1, len(asked.cycles))
    with house_style():
        figure = Figure(figsize=(_WIDTH, above + below), layout="constrained")
        title = clean_line(f"{asked.workload.name}, batch {asked.workload.batch:,} for each worker")
        figure.suptitle(
            f"{title[:_LONGEST_TITLE]}\n{clean_line(describe_setting(asked.setting))}",
            x=0.01,
            ha="left",
            fontsize=11,
            fontweight="bold",
        )
        parts = figure.subfigures(2 if below else 1, 1, height_ratios=[above, below] if below else None, squeeze=False)
        _draw_iterations(parts[0, 0], asked)
        if below:
            _draw_changes(parts[1, 0], outlook)
    return figure


def _draw_iterations(part: SubFigure, asked: ConsumptionPrediction) -> None:
    panels = np.atleast_1d(part.subplots(max(1, len(asked.cycles)), 1, sharex=True))
    for axes, (resource, cycle) in zip(panels, asked.cycles.items(), strict=False):
        _draw_resource(axes, resource, cycle, asked)
    whole_s = asked.iteration.value
    panels[-1].set_xlim(0, 1e3 * _ITERATIONS * whole_s)
    panels[-1].set_xlabel("ms; the order of bursts in an iteration is schematic")


def _draw_resource(axes: Axes, resource: Resource, cycle: CycleEstimate, asked: ConsumptionPrediction) -> None:
    whole_s, begin_s = asked.iteration.value, place_burst(resource, asked)
    for number in range(_ITERATIONS):
        begin_ms, length_ms = 1e3 * (number * whole_s + begin_s), 1e3 * cycle.burst_s.value
        axes.axvspan(begin_ms, begin_ms + length_ms, color=PICK, alpha=0.13, linewidth=0)
        axes.stairs(
            [cycle.burst_amount.value], [begin_ms, begin_ms + length_ms], color=ACCENT, linewidth=1.4, baseline=0
        )
        axes.axvline(1e3 * number * whole_s, color=MUTED, linewidth=0.8, linestyle=":")
    axes.set_ylim(0, 1.15 * cycle.burst_amount.value)
    axes.tick_params(length=0)
    axes.grid(visible=False, axis="x")
    axes.locator_params(axis="y", nbins=3)
    axes.yaxis.set_major_formatter(lambda value, _: render_amount(resource, value, asked))
    times = f"bursts of {render_short_time(cycle.burst_s.value)}, idles of {render_short_time(cycle.idle_s.value)}"
    amount = render_amount(resource, cycle.burst_amount.value, asked)
    title = f"{name_resource(resource, asked)}: {times}, {amount} in bursts"
    axes.set_title(title, fontsize=9, color=MUTED, fontweight="normal", pad=4)


def place_burst(resource: Resource, asked: ConsumptionPrediction) -> float:
    """When in an iteration a burst is drawn: compute first, receiving last, sending before it."""
    if resource in (Resource.COMPUTE, Resource.MEMORY):
        return 0.0
    received = asked.cycles.get(Resource.RECEIVE)
    after = received.burst_s.value if received and resource is Resource.TRANSMIT else 0.0
    late = after if asked.setting.strategy is Strategy.SERVERS else 0.0
    return max(0.0, asked.iteration.value - late - asked.cycles[resource].burst_s.value)


def _draw_changes(part: SubFigure, outlook: Outlook) -> None:
    panels = np.atleast_1d(part.subplots(1, len(outlook.shown), sharey=True))
    for axes, (change, row) in zip(panels, outlook.shown.items(), strict=True):
        _draw_change(axes, change, row, asked=outlook.asked.get_value(change))
    panels[0].set_ylabel("iteration, ms")
    panels[0].set_ylim(bottom=0)
    level = render_level(outlook.asked.iteration.level)
    panels[0].plot([], [], color=ACCENT, label=f"iteration, with its {level} interval")
    part.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)


def _draw_change(axes: Axes, change: Change, row: Sequence[ConsumptionPrediction], *, asked: float) -> None:
    places = np.arange(len(row), dtype=float)
    value, low, high = (
        1e3 * np.array([getattr(one.iteration, name) for one in row]) for name in ("value", "low", "high")
    )
    axes.fill_between(places, low, high, color=ACCENT, alpha=0.15, linewidth=0)
    axes.plot(places, value, color=ACCENT, linewidth=1.6, marker="o", markersize=4)
    compute = [1e3 * one.compute_s for one in row]
    axes.plot(places, compute, color=MUTED, linewidth=1.2, linestyle="--", label="compute")
    at = [one.get_value(change) for one in row].index(asked)
    axes.plot(places[at], value[at], color=PICK, marker="o", markersize=7, linestyle="none", label="as asked")
    axes.tick_params(length=0)
    axes.set_xlabel(change.value)
    axes.xaxis.label.set_color(INK)
    axes.xaxis.set_major_locator(FixedLocator(places.tolist()))
    axes.xaxis.set_major_formatter(FixedFormatter([render_change(change, one) for one in row]))
    axes.xaxis.set_minor_locator(NullLocator())
    if change is Change.LINK:
        axes.tick_params(axis="x", labelsize=8)
