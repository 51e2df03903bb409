"""Plots what a job consumed over time."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from foretell.core.observation import Observation, Resource
from foretell.core.render.figures import ACCENT, MUTED, house_style
from foretell.core.render.phrases import clean_line
from foretell.observations.render import find_window, list_resources, name_resource, render_amount

_PANEL, _HEAD = 1.35, 0.9  # inches
_LONGEST_TITLE = 90
_SHADE = "#c8501e"


def draw_observation(observation: Observation) -> Figure:
    """A panel for each used resource over some periods, with bursts shaded."""
    drawn = [each for each in list_resources(observation) if observation.recorded.series[each].values.any()]
    drawn = drawn or [Resource.COMPUTE]
    with house_style():
        figure = Figure(figsize=(9.6, _HEAD + _PANEL * len(drawn)), layout="constrained")
        panels = np.atleast_1d(figure.subplots(len(drawn), 1, sharex=True))
        title = clean_line(observation.subject)
        shown = title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"
        figure.suptitle(shown, x=0.01, ha="left", fontsize=11, fontweight="bold")
        for axes, resource in zip(panels, drawn, strict=True):
            _draw(axes, resource, observation)
        panels[-1].set_xlabel("seconds since the first sample")
        panels[-1].set_xlim(*find_window(observation))
    return figure


def _draw(axes: Axes, resource: Resource, observation: Observation) -> None:
    series, found = observation.recorded.series[resource], observation.cycles[resource]
    begin_s, end_s = find_window(observation)
    visible = (series.times_s[1:] > begin_s) & (series.times_s[:-1] < end_s)
    first, last = (int(np.flatnonzero(visible)[place]) for place in (0, -1))
    axes.stairs(
        series.values[first : last + 1], series.times_s[first : last + 2], color=ACCENT, linewidth=1.2, baseline=None
    )
    for burst_s in found.bursts:
        if burst_s[1] > begin_s and burst_s[0] < end_s:
            axes.axvspan(*burst_s, color=_SHADE, alpha=0.13, linewidth=0)
    axes.tick_params(length=0)
    axes.grid(visible=False, axis="x")
    top = max(float(series.values[first : last + 1].max()), 1e-9)
    axes.set_ylim(0, 1.08 * top)
    axes.yaxis.set_major_locator(FixedLocator(_find_ticks(resource, top)))
    axes.yaxis.set_major_formatter(lambda value, _: render_amount(resource, value, observation))
    axes.set_title(_describe(resource, observation), fontsize=9, color=MUTED, fontweight="normal", pad=4)


def _find_ticks(resource: Resource, top: float) -> list[float]:
    """Round values in the unit of the axis; rates are decimal."""
    is_share = resource in (Resource.COMPUTE, Resource.MEMORY)
    unit = 1.0 if is_share else max(size for size in (1.0, 1e3, 1e6, 1e9) if size <= max(top, 1.0))
    return [unit * float(tick) for tick in MaxNLocator(3).tick_values(0, top / unit)]


def _describe(resource: Resource, observation: Observation) -> str:
    cycle = observation.cycles[resource].cycle
    if cycle is None:
        return f"{name_resource(resource, observation)}: no cycle found"
    amount = render_amount(resource, cycle.burst_amount, observation)
    times = f"bursts of {1000 * cycle.burst_s:.3g} ms, idles of {1000 * cycle.idle_s:.3g} ms"
    return f"{name_resource(resource, observation)}: {times}, {amount} in bursts"
