"""Plots predicted steps over batches and over devices."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from foretell.core.render.figures import ACCENT, INK, MUTED, PICK, house_style
from foretell.core.render.phrases import clean_line, render_level
from foretell.core.workload import StepPhase
from foretell.steps.step_results import StepPrediction

_COLOURS = {StepPhase.FORWARD: ACCENT, StepPhase.BACKWARD: "#9fbfe3", StepPhase.UPDATE: MUTED}
_OF_EVIDENCE = {"measured": ACCENT, "similar": "#9fbfe3", "figures": MUTED}
_BAR = 0.32  # inches of height


def draw_curve(predictions: Sequence[StepPrediction]) -> Figure:
    """The time of a step by phase, with its interval, and the examples per second, over the batch."""
    ordered = sorted(predictions, key=lambda prediction: prediction.workload.batch)
    batches = [prediction.workload.batch for prediction in ordered]
    places = np.arange(len(ordered), dtype=float)
    with house_style():
        figure = Figure(figsize=(9.6, 4.0), layout="constrained")
        times, rates = figure.subplots(1, 2, width_ratios=(3, 2))
        title = f"{ordered[0].workload.name} on {ordered[0].device}"
        figure.suptitle(clean_line(title), x=0.01, ha="left", fontsize=11, fontweight="bold")
        _draw_times(times, places, ordered)
        _draw_rates(rates, places, ordered)
        for axes in (times, rates):
            axes.tick_params(length=0)
            axes.grid(visible=False, axis="x")
            axes.set_xlim(-0.6, len(ordered) - 0.4)
            axes.set_xlabel("batch")
            axes.xaxis.set_major_locator(FixedLocator(places.tolist()))
            axes.xaxis.set_major_formatter(FixedFormatter([f"{batch:,}" for batch in batches]))
            axes.xaxis.set_minor_locator(NullLocator())
    return figure


def _draw_times(axes: Axes, places: np.ndarray, predictions: Sequence[StepPrediction]) -> None:
    below = np.zeros(len(predictions))
    for phase in StepPhase:
        seconds = np.array([prediction.estimate.phases.get(phase, 0.0) for prediction in predictions])
        axes.bar(places, 1e3 * seconds, bottom=1e3 * below, width=0.62, color=_COLOURS[phase], label=phase.value)
        below = below + seconds
    whole = [prediction.estimate.iteration for prediction in predictions]
    value, low, high = (np.array([getattr(one, name) for one in whole]) for name in ("value", "low", "high"))
    axes.errorbar(
        places,
        1e3 * value,
        yerr=1e3 * np.maximum([value - low, high - value], 0.0),
        fmt="none",
        ecolor=INK,
        elinewidth=1.4,
        capsize=3,
        label=f"{render_level(whole[0].level)} interval",
    )
    axes.set_ylim(0, 1.08e3 * float(high.max()))
    axes.set_ylabel("time of a step, ms")
    _put_legend(axes)


def _draw_rates(axes: Axes, places: np.ndarray, predictions: Sequence[StepPrediction]) -> None:
    rates = np.array([prediction.examples_per_s for prediction in predictions])
    axes.plot(places, rates, color=PICK, linewidth=1.6, marker="o", markersize=5, label="examples per second")
    axes.set_ylim(0, 1.08 * float(rates.max()))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    _put_legend(axes)


def _put_legend(axes: Axes) -> None:
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=4,
        borderaxespad=0.2,
        handletextpad=0.4,
        columnspacing=1.0,
        handlelength=1.0,
    )


def draw_predictions(predictions: Sequence[StepPrediction]) -> Figure:
    """One device over its batches; several devices side by side."""
    return draw_curve(predictions) if len({each.device for each in predictions}) == 1 else draw_devices(predictions)


def draw_devices(predictions: Sequence[StepPrediction]) -> Figure:
    """The time of a step on each device with its interval, and the examples per second."""
    rows = np.arange(len(predictions), dtype=float)
    names = _name_rows(predictions)
    with house_style():
        figure = Figure(figsize=(9.6, 1.6 + _BAR * len(predictions)), layout="constrained")
        times, rates = figure.subplots(1, 2, width_ratios=(3, 2), sharey=True)
        figure.suptitle(_title_devices(predictions), x=0.01, ha="left", fontsize=11, fontweight="bold")
        _draw_device_times(times, rows, predictions)
        rates.barh(rows, [each.examples_per_s for each in predictions], height=0.62, color=PICK)
        rates.set_xlabel("examples per second")
        rates.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        for axes in (times, rates):
            axes.tick_params(length=0)
            axes.grid(visible=False, axis="y")
            axes.grid(visible=True, axis="x")
        times.yaxis.set_major_locator(FixedLocator(rows.tolist()))
        times.yaxis.set_major_formatter(FixedFormatter(names))
        times.yaxis.set_minor_locator(NullLocator())
        times.set_ylim(len(rows) - 0.4, -0.6)
    return figure


def _name_rows(predictions: Sequence[StepPrediction]) -> list[str]:
    several = len({each.workload.batch for each in predictions}) > 1
    return [clean_line(f"{each.device}, {each.workload.batch:,}" if several else each.device) for each in predictions]


def _title_devices(predictions: Sequence[StepPrediction]) -> str:
    first = predictions[0]
    batches = dict.fromkeys(f"{each.workload.batch:,}" for each in predictions)
    return clean_line(f"{first.workload.name}, batch {', '.join(batches)}, {first.precision}")


def _draw_device_times(axes: Axes, rows: np.ndarray, predictions: Sequence[StepPrediction]) -> None:
    whole = [prediction.estimate.iteration for prediction in predictions]
    value, low, high = (1e3 * np.array([getattr(one, name) for one in whole]) for name in ("value", "low", "high"))
    kinds = [prediction.estimate.main_evidence for prediction in predictions]
    for kind in dict.fromkeys(kinds):
        chosen = np.array([each == kind for each in kinds])
        label = kind or predictions[0].method
        axes.barh(rows[chosen], value[chosen], height=0.62, color=_OF_EVIDENCE.get(kind, ACCENT), label=label)
    axes.errorbar(
        value,
        rows,
        xerr=np.maximum([value - low, high - value], 0.0),
        fmt="none",
        ecolor=INK,
        elinewidth=1.4,
        capsize=3,
        label=f"{render_level(whole[0].level)} interval",
    )
    axes.set_xlim(0, 1.05 * float(min(high.max(), 3 * value.max())))
    axes.set_xlabel("time of a step, ms")
    _put_legend(axes)
