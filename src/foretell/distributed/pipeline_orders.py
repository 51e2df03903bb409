"""The order in which a stage of a pipeline runs its batches: 1F1B and its interleaved form (Megatron-LM,
https://arxiv.org/abs/2104.04473; megatron/core/pipeline_parallel/schedules.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foretell.core.errors import Mistake, SpecError
from foretell.core.layouts import Layout
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


def place_units(units: StepUnits, layout: Layout, *, name: str) -> np.ndarray:
    """Of each unit, its part of the model: as many layers in each, what is before and after them in the first and last.

    Raises:
        SpecError: There are fewer layers than parts.
    """
    parts = layout.pipeline_parallel * layout.interleave
    layers = [place for place, numbered in enumerate(units.numbered) if numbered]
    if parts > max(1, len(layers)):
        expected = f"at most {len(layers)}, the repeated layers of {name}"
        found = str(layout.pipeline_parallel) + (
            f" with interleave={layout.interleave}" if layout.interleave > 1 else ""
        )
        raise SpecError("the layout", [Mistake(place="pp", found=found, expected=expected)])
    bounds = np.linspace(0, len(layers), parts + 1).round().astype(int)
    part_of = np.zeros(len(units.names), dtype=int)
    for number, place in enumerate(layers):
        part_of[place:] = np.searchsorted(bounds, number, side="right") - 1
    return part_of
