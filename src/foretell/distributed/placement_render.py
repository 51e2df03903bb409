"""How steps on more GPUs read, the same in the terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table

from foretell.core.serialization import to_record
from foretell.distributed.placed_steps import PlacedPrediction, render_placement
from foretell.distributed.render import render_share, render_short_interval
from foretell.render.phrases import render_level
from foretell.render.tables import (
    HEADING,
    QUIET,
    add_cells,
    build_line,
    build_table,
    build_warnings,
    stack,
)
from foretell.steps.render import render_time

_MILLION, _HOUR_S = 1e6, 3600.0


def find_least(told: Sequence[PlacedPrediction]) -> PlacedPrediction:
    """What others are compared with: the fewest GPUs, of several such the fastest."""
    return min(told, key=lambda each: (each.count, each.step_s.value))


def find_efficiencies(told: Sequence[PlacedPrediction]) -> list[float]:
    """Of what a GPU of the least placement does, what each does in the others."""
    least = find_least(told)
    return [each.examples_per_s / each.count / (least.examples_per_s / least.count) for each in told]


def find_gpu_hours(told: PlacedPrediction) -> float:
    """For a million examples."""
    return _MILLION / told.examples_per_s * told.count / _HOUR_S


def find_choice(told: Sequence[PlacedPrediction], efficiency: float) -> PlacedPrediction | None:
    """The most examples a second for which each GPU still does so much; nothing if only the least placement does.

    What lies outside of what was measured is chosen only where all does.
    """
    least = find_least(told)
    sure = [each for each in told if not each.warnings] or told
    enough = [
        each
        for each, share in zip(told, find_efficiencies(told), strict=True)
        if share >= efficiency and each.count > least.count and each in sure
    ]
    return max(enough, key=lambda each: each.examples_per_s, default=None)


def describe_choice(told: Sequence[PlacedPrediction], efficiency: float) -> str:
    """What to ask for and why, in a sentence or two."""
    least, choice = find_least(told), find_choice(told, efficiency)
    if choice is None:
        return _describe_staying(told, least, efficiency)
    share = find_efficiencies(told)[told.index(choice)]
    times = choice.examples_per_s / least.examples_per_s
    sure = f" It is not sure: {choice.warnings[0].text}" if choice.warnings else ""
    return (
        f"Ask for {render_gpus(choice)}: {times:.2g} times the examples a second of {render_gpus(least)}, and each GPU "
        f"does {render_share(share)} of what it does there; {render_share(choice.waits)} of a step waits for gradients."
        f"{sure}"
    )


def _describe_staying(told: Sequence[PlacedPrediction], least: PlacedPrediction, efficiency: float) -> str:
    """Why no more GPUs are proposed."""
    more = [each for each in told if each.count > least.count]
    sure = [each for each in more if not each.warnings]
    if not more:
        return f"{render_share(least.waits)} of a step on {render_gpus(least)} waits for gradients."
    if not sure and not least.warnings:
        return f"Stay with {render_gpus(least)} until more is measured. {more[0].warnings[0].text}"
    fewer = f"each GPU does less than {render_share(efficiency)} of what it does there"
    unsure = " of those that are sure" if len(sure) < len(more) and sure else ""
    return f"Stay with {render_gpus(least)}: on more{unsure}, {fewer}."


def render_gpus(told: PlacedPrediction) -> str:
    """``1 GPU``, ``8 GPUs``, ``2x8 GPUs``."""
    return f"{render_placement(told.step.gpus)} GPU{'s' if told.count > 1 else ''}"


def render_placements(told: Sequence[PlacedPrediction], *, efficiency: float) -> Group:
    """What to ask for, then a row for each placement."""
    step = told[0].step
    return stack(
        build_line(f"{step.workload} on {step.cluster}, batch {step.batch:g} for each GPU", HEADING),
        build_line(describe_choice(told, efficiency)),
        _build_placements(told, efficiency),
        build_line(_build_legend(told, efficiency), QUIET),
        *build_warnings(warning for each in told for warning in each.warnings),
    )


def _build_placements(told: Sequence[PlacedPrediction], efficiency: float) -> Table:
    numbers = ("Step", "between", "Measured", "Waits", "Examples/s", "Each GPU", "GPU h/M")
    table = build_table("GPUs", *numbers, numbers=numbers)
    choice = find_choice(told, efficiency)
    for each, share in zip(told, find_efficiencies(told), strict=True):
        mark = f"{'*' if each is choice else ''}{'?' if each.warnings else ''}"
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
    if any(each.warnings for each in told):
        words.append("?: outside of what was measured")
    return "; ".join(words)


Record = dict[str, Any]


def build_placements_record(told: Sequence[PlacedPrediction], *, efficiency: float) -> Record:
    """Seconds, examples a second, what each GPU does of what it does on the least; ``choice`` is what to ask for."""
    first, choice = told[0].step, find_choice(told, efficiency)
    return {
        "workload": first.workload,
        "cluster": first.cluster,
        "batch": first.batch,
        "efficiency_wanted": efficiency,
        "choice": None if choice is None else render_placement(choice.step.gpus),
        "why": describe_choice(told, efficiency),
        "placements": [
            _build_placement(each, share) for each, share in zip(told, find_efficiencies(told), strict=True)
        ],
    }


def _build_placement(told: PlacedPrediction, efficiency: float) -> Record:
    return {
        "placement": render_placement(told.step.gpus),
        "gpus": told.count,
        "nodes": len(told.step.gpus),
        "step_s": to_record(told.step_s),
        "compute_s": told.compute_s,
        "exposed_s": told.exposed_s,
        "exposed_share": told.waits,
        "examples_per_s": told.examples_per_s,
        "efficiency": efficiency,
        "gpu_hours_per_million": find_gpu_hours(told),
        "measured_s": told.measured_s,
        "warnings": to_record(told.warnings),
    }
