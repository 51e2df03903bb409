"""Plots of waste: what each group paid and needed, and the used shares of time, CPU and memory."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from foretell.core.past_jobs import Waste, WasteReport
from foretell.core.render.figures import ACCENT, GRID, INK, MUTED, PICK, house_style
from foretell.core.render.phrases import clean_line

_MOST_ROWS = 12
_LONGEST = 24
_SOFT = "#9fbfe3"
_SHARES = (("time", "o", INK), ("CPU", "s", ACCENT), ("memory", "D", PICK))


def draw_waste(report: WasteReport) -> Figure:
    """Draw bills on the left, by what was needed and what could have been saved, and the used shares on the right.

    Needed is what requests made in hindsight would have cost, avoidable what one request for each application saves.
    """
    rows = report.rows[:_MOST_ROWS][::-1]
    with house_style():
        figure = Figure(figsize=(9.6, 1.9 + 0.36 * len(rows)), layout="constrained")
        bills, shares = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        title = f"What requests cost by {'application' if report.by == 'app' else report.by}, and what was needed"
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        _draw_bills(bills, rows, report.unit)
        _draw_shares(shares, rows)
        bills.set_yticks(np.arange(len(rows)), [_shorten(row.name) for row in rows])
        bills.tick_params(axis="y", labelcolor=INK)
        for axes in (bills, shares):
            axes.tick_params(length=0)
            axes.grid(visible=False, axis="y")
            axes.set_ylim(-0.6, len(rows) - 0.4)
    return figure


def _draw_bills(axes: Axes, rows: Sequence[Waste], unit: str) -> None:
    places = np.arange(len(rows))
    best, one, paid = (np.array([getattr(row, name) for row in rows]) for name in ("at_best", "one_request", "paid"))
    best = np.minimum(best, one)
    axes.barh(places, best, height=0.62, color=ACCENT, label="needed")
    axes.barh(places, one - best, left=best, height=0.62, color=_SOFT, label="hard to predict")
    axes.barh(
        places,
        paid - one,
        left=one,
        height=0.62,
        color=PICK,
        alpha=0.75,
        label="avoidable",
    )
    axes.set_xlabel(f"paid, {clean_line(unit)}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.spines["left"].set_visible(False)
    _put_legend(axes, columns=3)


def _draw_shares(axes: Axes, rows: Sequence[Waste]) -> None:
    places = np.arange(len(rows), dtype=float)
    columns = {
        "time": [1 / row.time_ratio if row.time_ratio else np.nan for row in rows],
        "CPU": [np.nan if row.cpu_used is None else row.cpu_used for row in rows],
        "memory": [np.nan if row.memory_used is None else row.memory_used for row in rows],
    }
    axes.hlines(places, 0, 100, color=GRID, linewidth=1)
    for name, marker, color in _SHARES:
        axes.scatter(
            100 * np.clip(columns[name], 0, 1),
            places,
            s=34,
            marker=marker,
            color=color,
            linewidth=0,
            label=name,
            zorder=3,
        )
    axes.set_xlim(-3, 103)
    axes.set_xlabel("used of what was requested, %")
    axes.spines["left"].set_visible(False)
    axes.xaxis.label.set_color(MUTED)
    _put_legend(axes, columns=3)


def _put_legend(axes: Axes, *, columns: int) -> None:
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        borderaxespad=0.2,
        handletextpad=0.4,
        columnspacing=1.0,
        handlelength=1.0,
    )


def _shorten(name: str) -> str:
    text = clean_line(name)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
