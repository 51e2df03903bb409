"""Plots of measured runs."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from foretell.core.app import Scale
from foretell.core.render.figures import (
    ACCENT,
    LARGEST,
    MUTED,
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
from foretell.core.render.phrases import clean_line
from foretell.core.run import Run, State


def draw_runs(runs: Sequence[Run]) -> Figure | None:
    """Return time over the parameter that correlates best with it; ``None`` if no number varies."""
    done = [run for run in runs if run.state is State.COMPLETED and run.usage and can_be_drawn(run.usage.elapsed_s)]
    name = _find_best_parameter(done)
    if name is None:
        return None
    with house_style():
        figure, axes = build_axes(f"Time over {clean_line(name)}", width=7.2, height=4.0)
        for scale, color, label in (
            (Scale.SCALED_DOWN, MUTED, "scaled down"),
            (Scale.FULL_SCALE, ACCENT, "full scale"),
        ):
            chosen = [run for run in done if run.spec.scale is scale]
            if chosen:
                values, times = _list_numbers(chosen, name), _list_times(chosen)
                axes.scatter(values, times, s=26, color=color, alpha=find_alpha(len(done)), linewidth=0, label=label)
        values = _list_numbers(done, name)
        rule(axes, "y", TIME, *find_limits(_list_times(done)))
        if can_be_drawn(values).all():
            rule(axes, "x", DecimalRuler(), *find_limits(values))
        axes.set(xlabel=clean_line(name), ylabel="measured time")
        axes.legend(loc="upper left", handletextpad=0.2)
    return figure


def _find_best_parameter(runs: Sequence[Run]) -> str | None:
    """Return the number with the highest rank correlation with time."""
    names = dict.fromkeys(name for run in runs for name in run.spec.parameters)
    agreement = {name: _correlate(_list_numbers(runs, name), _list_times(runs)) for name in names}
    best = max(agreement, key=agreement.__getitem__, default=None)
    return best if best is not None and agreement[best] > 0 else None


def _correlate(values: Floats, times: Floats) -> float:
    if not np.isfinite(values).all() or len(np.unique(values)) < 2 or len(np.unique(times)) < 2:
        return 0.0
    order, order_of_times = (np.unique(column, return_inverse=True)[1].astype(float) for column in (values, times))
    return abs(float(np.corrcoef(order, order_of_times)[0, 1]))


def _list_numbers(runs: Sequence[Run], name: str) -> Floats:
    values = (run.spec.parameters.get(name) for run in runs)
    return np.array([_to_number(value) for value in values])


def _to_number(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
    return float(value) if is_number else math.nan  # type: ignore[arg-type]


def _list_times(runs: Sequence[Run]) -> Floats:
    return np.array([run.usage.elapsed_s for run in runs if run.usage])
