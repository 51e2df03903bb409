"""The order in which a stage of a pipeline runs its batches: 1F1B and its interleaved form (Megatron-LM,
https://arxiv.org/abs/2104.04473; megatron/core/pipeline_parallel/schedules.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foretell.core.errors import Mistake, SpecError
from foretell.core.layouts import Layout
from foretell.core.workload import Floats
from foretell.distributed.step_units import StepUnits


@dataclass(frozen=True, slots=True)
class Turn:
    """A batch in a part of the model, forward or backward."""

    forward: bool
    batch: int
    chunk: int  # part of the model: stage s of S has the parts s, S + s, 2 S + s and so on


def order_turns(stage: int, *, stages: int, interleave: int, batches: int) -> Iterator[Turn]:
    """The turns of a stage."""
    total = batches * interleave
    warm = stages - stage - 1 if interleave == 1 else (stages - stage - 1) * 2 + (interleave - 1) * stages
    if interleave > 1 and batches == stages:
        warm = total
    warm = min(warm, total)
    for number in range(total):
        if number < warm:
            yield _find_turn(True, number, stage, stages, interleave)
            continue
        yield _find_turn(True, number, stage, stages, interleave)
        yield _find_turn(False, number - warm, stage, stages, interleave)
    for number in range(total - warm, total):
        yield _find_turn(False, number, stage, stages, interleave)


def _find_turn(forward: bool, number: int, stage: int, stages: int, interleave: int) -> Turn:
    if interleave == 1:
        return Turn(forward, number, stage)
    within = number % (stages * interleave)
    part = within // stages
    batch = number // (stages * interleave) * stages + within % stages
    return Turn(forward, batch, (part if forward else interleave - 1 - part) * stages + stage)


def place_units(units: StepUnits, layout: Layout, seconds: Floats, *, name: str) -> np.ndarray:
    """Of each unit, its part of the model; ``seconds`` are those of each unit.

    Each part has as many layers as the others, and the first and the last also what is before and after them. Where
    the layers cannot be divided so, the longest part is as short as it can be.

    Raises:
        SpecError: There are fewer layers than parts.
    """
    parts = layout.pipeline_parallel * layout.interleave
    layers = [place for place, numbered in enumerate(units.numbered) if numbered]
    if parts > 1:
        _check_parts(layout, layers=len(layers), units=len(units.names), name=name)
    if parts > 1 and (not layers or len(layers) % parts):
        return _balance(seconds, parts)
    part_of = np.zeros(len(units.names), dtype=int)
    for number, place in enumerate(layers):
        part_of[place:] = number * parts // len(layers)
    return part_of


def _check_parts(layout: Layout, *, layers: int, units: int, name: str) -> None:
    """Layers that are not a multiple of the parts of interleaved stages can be joined with what is around them."""
    parts, interleave = layout.pipeline_parallel * layout.interleave, layout.interleave
    most = layers if interleave == 1 else units
    if parts <= most:
        return
    found = str(layout.pipeline_parallel) + (f" with interleave={interleave}" if interleave > 1 else "")
    if interleave > 1:
        expected = f"at most {most // interleave} with interleave={interleave}: {name} has {units} modules to divide"
    else:
        expected = f"at most {layers}, the repeated layers of {name}" if layers else f"1: {name} has no repeated layers"
    raise SpecError("the layout", [Mistake(place="pp", found=found, expected=expected)])


def _balance(seconds: Floats, parts: int) -> np.ndarray:
    """Neighbours in so many parts, of which the longest is as short as possible; none is empty."""
    low, high = float(seconds.max()), float(seconds.sum())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_fill(seconds, middle)) <= parts else (middle, high)
    sizes = _fill(seconds, high)
    while len(sizes) < parts:  # divide the largest ones
        largest = max(range(len(sizes)), key=lambda place: sizes[place])
        sizes[largest : largest + 1] = [sizes[largest] - sizes[largest] // 2, sizes[largest] // 2]
    return np.repeat(np.arange(len(sizes)), sizes)


_HALVINGS = 30


def _fill(seconds: Floats, limit: float) -> list[int]:
    """The number of units in each part, when parts are filled to a limit."""
    sizes, filled = [0], 0.0
    for each in seconds.tolist():
        if sizes[-1] and filled + each > limit:
            sizes.append(0)
            filled = 0.0
        sizes[-1] += 1
        filled += each
    return sizes
