"""Plots the memory of a step over its course."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from foretell.core.memory import Integers
from foretell.core.render.figures import ACCENT, INK, MUTED, build_axes, house_style
from foretell.core.render.phrases import clean_line
from foretell.memory.memory_results import MemoryPrediction

_GIB = 2**30
_POINTS = 1500  # of a curve, which has the highest value of each part of the step


def draw_memory(prediction: MemoryPrediction) -> Figure:
    """What is allocated and reserved after each allocation of a step, its phases, and the moment of the peak."""
    usage = prediction.usage
    places, allocated, reserved = _thin_out(usage.allocated_curve, usage.reserved_curve)
    with house_style():
        figure, axes = build_axes(clean_line(prediction.trace.name), width=9.6, height=4.0)
        axes.fill_between(places, allocated, color=ACCENT, alpha=0.35, step="post", linewidth=0)
        axes.step(places, allocated, where="post", color=ACCENT, linewidth=1.2, label="allocated")
        axes.step(places, reserved, where="post", color=INK, linewidth=1.2, label="reserved")
        peak = int(usage.allocated_curve.argmax())
        top = usage.allocated_curve[peak] / _GIB
        axes.annotate(
            clean_line(f"{top:.2f} GiB: {usage.operator} {usage.layer}".rstrip()),
            (peak, top),
            textcoords="offset points",
            xytext=(6, -12),
            fontsize=8,
            bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
        )
        for event, phase in usage.phases:
            axes.axvline(event, color=MUTED, linewidth=0.8)
            axes.text(event, 0, f" {phase}", va="bottom", fontsize=8, color=MUTED)
        axes.set_xlim(0, len(usage.allocated_curve))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("allocations and frees of a step, in order")
        axes.set_ylabel("GiB")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
    return figure


def _thin_out(*curves: Integers) -> list[NDArray[Any]]:
    """Places of a few events, and the highest values from each to the next, in GiB."""
    count = len(curves[0])
    places = np.unique(np.linspace(0, count, min(count, _POINTS), endpoint=False).astype(int))
    return [places, *(np.maximum.reduceat(each, places) / _GIB for each in curves)]
