"""Steps on more GPUs, for the terminal."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table

from foretell.entities.placed import PlacedPrediction, render_placement
from foretell.reports.tables import HEADING, QUIET, add_cells, build_line, build_notes, build_table, stack
from foretell.reports.text_workload import render_time
from foretell.reports.words import render_level
from foretell.reports.words_consumption import render_share, render_short_interval
from foretell.reports.words_placed import describe_choice, find_choice, find_efficiencies, find_gpu_hours


def render_placements(told: Sequence[PlacedPrediction], *, efficiency: float) -> Group:
    """What to ask for, then a row for each placement."""
    step = told[0].step
    return stack(
        build_line(f"{step.workload} on {step.cluster}, batch {step.batch:g} for each GPU", HEADING),
        build_line(describe_choice(told, efficiency)),
        _build_placements(told, efficiency),
        build_line(_build_legend(told, efficiency), QUIET),
        *build_notes("Notes", dict.fromkeys(doubt for each in told for doubt in each.doubts)),
    )


def _build_placements(told: Sequence[PlacedPrediction], efficiency: float) -> Table:
    numbers = ("Step", "between", "Measured", "Waits", "Examples/s", "Each GPU", "GPU h/M")
    table = build_table("GPUs", *numbers, numbers=numbers)
    choice = find_choice(told, efficiency)
    for each, share in zip(told, find_efficiencies(told), strict=True):
        mark = f"{'*' if each is choice else ''}{'?' if each.doubts else ''}"
        add_cells(
            table,
            f"{mark:<2} {render_placement(each.step.gpus)}",
            render_time(each.step_s.value),
            render_short_interval(each.step_s, render_time),
            "" if each.measured_s is None else render_time(each.measured_s),
            render_share(each.waits),
            f"{each.examples_per_s:,.3g}" if each.examples_per_s < 1000 else f"{each.examples_per_s:,.0f}",
            render_share(share),
            f"{find_gpu_hours(each):,.3g}",
            style=HEADING if each is choice else "",
        )
    return table


def _build_legend(told: Sequence[PlacedPrediction], efficiency: float) -> str:
    words = [
        f"between: {render_level(told[0].step_s.level)} of the time",
        "GPU h/M: GPU hours for a million examples",
    ]
    if find_choice(told, efficiency):
        words.append(f"*: the most for which each GPU does {render_share(efficiency)}")
    if any(each.doubts for each in told):
        words.append("?: outside of what was measured")
    return "; ".join(words)
