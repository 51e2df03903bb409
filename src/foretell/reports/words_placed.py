"""How steps on more GPUs read, the same in the terminal and as JSON."""

from collections.abc import Sequence

from foretell.entities.placed import PlacedPrediction, render_placement
from foretell.reports.words_consumption import render_share

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
    sure = [each for each in told if not each.doubts] or told
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
    sure = f" It is not sure: {choice.doubts[0]}" if choice.doubts else ""
    return (
        f"Ask for {render_gpus(choice)}: {times:.2g} times the examples a second of {render_gpus(least)}, and each GPU "
        f"does {render_share(share)} of what it does there; {render_share(choice.waits)} of a step waits for gradients."
        f"{sure}"
    )


def _describe_staying(told: Sequence[PlacedPrediction], least: PlacedPrediction, efficiency: float) -> str:
    """Why no more GPUs are proposed."""
    more = [each for each in told if each.count > least.count]
    sure = [each for each in more if not each.doubts]
    if not more:
        return f"{render_share(least.waits)} of a step on {render_gpus(least)} waits for gradients."
    if not sure and not least.doubts:
        return f"Stay with {render_gpus(least)} until more is measured. {more[0].doubts[0]}"
    fewer = f"each GPU does less than {render_share(efficiency)} of what it does there"
    unsure = " of those that are sure" if len(sure) < len(more) and sure else ""
    return f"Stay with {render_gpus(least)}: on more{unsure}, {fewer}."


def render_gpus(told: PlacedPrediction) -> str:
    """``1 GPU``, ``8 GPUs``, ``2x8 GPUs``."""
    return f"{render_placement(told.step.gpus)} GPU{'s' if told.count > 1 else ''}"
