"""Plots, drawn without a display and without global state."""

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from foretell.core.model_card import Judgement
from foretell.core.render.figures import (
    ACCENT,
    DECADE,
    GRID,
    MUTED,
    PICK,
    SIZE,
    SMALLEST,
    TIME,
    DecimalRuler,
    Floats,
    build_axes,
    can_be_drawn,
    find_alpha,
    find_limits,
    house_style,
    rule,
)
from foretell.core.render.phrases import ELAPSED, MEMORY, clean_line, render_percent, title_quantity
from foretell.runtimes.explanation import Driver, Explanation

_CLOSE = 0.25  # how far off a prediction may be and still lie in the band
_MOST_PANELS, _MOST_LEVELS = 4, 8


def draw_predicted_measured(judgement: Judgement, *, title: str) -> Figure:
    """Predictions against measurements, for runs that neither the fit nor the choice saw."""
    points = np.array(judgement.pairs, dtype=float).reshape(-1, 2)
    measured, predicted = points[can_be_drawn(points).all(axis=1)].T
    ruler = {ELAPSED: TIME, MEMORY: SIZE}.get(judgement.quantity, DecimalRuler())
    quantity = title_quantity(judgement.quantity).lower()
    with house_style():
        figure, axes = build_axes(title, width=5.2, height=5.0)
        low, high = find_limits(np.concatenate([measured, predicted]))
        line = np.array([low, high])
        axes.fill_between(line, line * (1 - _CLOSE), line * (1 + _CLOSE), color=ACCENT, alpha=0.10, linewidth=0)
        axes.plot(line, line, color=MUTED, linewidth=1)
        axes.scatter(measured, predicted, s=26, color=ACCENT, alpha=find_alpha(len(measured)), linewidth=0)
        rule(axes, "x", ruler, low, high)
        rule(axes, "y", ruler, low, high)
        axes.set(aspect="equal", xlabel=f"measured {quantity}", ylabel=f"predicted {quantity}")
        axes.text(0.03, 0.97, _describe_fit(measured, predicted), transform=axes.transAxes, va="top", linespacing=1.5)
    return figure


def _describe_fit(measured: Floats, predicted: Floats) -> str:
    if not len(measured):
        return "no runs to compare"
    off = np.abs(predicted - measured) / measured
    within = f"{int((off <= _CLOSE).sum())} of {len(off)} within {_CLOSE:.0%}".replace("%", " %")
    return f"median error {render_percent(100 * float(np.median(off)))}\n{within}"


def draw_explanation(explanation: Explanation) -> Figure:
    """Time over each of its main drivers, all else as asked, with the question and the range of the runs marked."""
    time = explanation.elapsed_s
    drivers = time.drivers[:_MOST_PANELS]
    level = f"{100 * time.estimate.level:g} %"
    with house_style():
        columns, rows = min(2, max(1, len(drivers))), max(1, math.ceil(len(drivers) / 2))
        figure = Figure(figsize=(1.6 + 3.6 * columns, 0.8 + 2.9 * rows), layout="constrained")
        title = f"{explanation.app}: what drives its time"
        figure.suptitle(clean_line(title), x=0.02, ha="left", fontsize=11, fontweight="bold")
        scale = _find_scale(explanation)
        for number, driver in enumerate(drivers):
            axes = figure.add_subplot(rows, columns, number + 1)
            axes.tick_params(length=0)
            _draw_driver(axes, driver, asked=time.estimate.value / scale.unit, scale=scale, level=level)
            scale.rule(axes)
            axes.set_ylabel(scale.label if number % columns == 0 else "")
        if drivers:
            _add_legend(figure)
        else:
            figure.text(0.5, 0.5, "nothing that was varied matters", ha="center", color=MUTED)
    return figure


def _add_legend(figure: Figure) -> None:
    """One for all panels, below them; the first that shows a thing says how it looks."""
    named: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend(named.values(), named.keys(), loc="outside lower left", ncols=4, columnspacing=1.2, handletextpad=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimeScale:
    """The axis of time that all panels share: logarithmic over a decade or more, else from zero in one unit."""

    low: float
    high: float
    unit: float
    label: str

    def rule(self, axes: Axes) -> None:
        if self.high / self.low >= DECADE:
            rule(axes, "y", TIME, self.low / 1.25, self.high * 1.25)
        else:
            axes.set_ylim(0, 1.1 * self.high / self.unit)


def _find_scale(explanation: Explanation) -> _TimeScale:
    time = explanation.elapsed_s
    estimates = [point.estimate for driver in time.drivers[:_MOST_PANELS] for point in driver.curve]
    bounds = np.array([bound for one in (*estimates, time.estimate) for bound in (one.low, one.high)])
    drawn = bounds[can_be_drawn(bounds)]
    low, high = (float(drawn.min()), float(drawn.max())) if len(drawn) else (1.0, 1.0)
    if high / low >= DECADE:
        return _TimeScale(low=low, high=high, unit=1.0, label="predicted time")
    name, unit = next((unit for unit in reversed(TIME.units) if high >= 2 * unit[1]), TIME.units[0])
    return _TimeScale(low=low, high=high, unit=unit, label=f"predicted time, {name}")


def _draw_driver(axes: Axes, driver: Driver, *, asked: float, scale: _TimeScale, level: str) -> None:
    points = np.array([(one.estimate.value, one.estimate.low, one.estimate.high) for one in driver.curve]) / scale.unit
    axes.set_xlabel(clean_line(driver.name))
    if driver.low is None or driver.high is None:
        _draw_levels(axes, driver, points, asked)
        return
    x = np.array([float(one.value) for one in driver.curve])
    axes.axvspan(driver.low, driver.high, color=GRID, alpha=0.45, linewidth=0, label="range of the runs")
    axes.fill_between(x, points[:, 1], points[:, 2], color=ACCENT, alpha=0.18, linewidth=0, label=f"{level} band")
    axes.plot(x, points[:, 0], color=ACCENT, linewidth=1.6, label="predicted")
    axes.scatter(float(driver.value), asked, s=60, color=PICK, zorder=4, linewidth=0, label="asked")
    low, high = min(x.min(), float(driver.value)), max(x.max(), float(driver.value))
    if low > SMALLEST and high / low >= DECADE:
        room = (high / low) ** 0.04
        rule(axes, "x", DecimalRuler(), low / room, high * room)


def _draw_levels(axes: Axes, driver: Driver, points: Floats, asked: float) -> None:
    """A bar of bounds for each text; the one asked for stays where there are too many to show."""
    texts = [str(one.value) for one in driver.curve]
    first = [row for row, text in enumerate(texts) if text == str(driver.value)]
    shown = sorted([*first, *(row for row in range(len(texts)) if row not in first)][:_MOST_LEVELS])
    places = np.arange(len(shown))
    value, low, high = points[shown].T
    axes.vlines(places, low, high, color=ACCENT, alpha=0.3, linewidth=7)
    axes.scatter(places, value, s=30, color=ACCENT, zorder=3, linewidth=0, label="predicted")
    for place, row in enumerate(shown):
        if row in first:
            axes.scatter(place, asked, s=60, color=PICK, zorder=4, linewidth=0, label="asked")
    axes.set_xticks(places, [clean_line(texts[row])[:12] for row in shown])
    axes.set_xlim(-0.6, len(shown) - 0.4)
