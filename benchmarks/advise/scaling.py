"""How much of the rate of one GPU each of several keeps: published, and predicted.

Only trainings whose rate on one GPU is published with the same batch of a GPU and precision.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.advise.published import Compared


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingResult:
    """Medians over trainings of the rate of each GPU, relative to that of one alone, in per cent."""

    group: str
    cases: int
    published: float
    predicted: float


def judge_scaling(rows: Sequence[Compared]) -> list[ScalingResult]:
    """By the number of GPUs, and by how long a batch takes."""
    alone = {_name(each): each for each in rows if each.row.gpus == 1}
    pairs = [(each, alone[_name(each)]) for each in rows if each.row.gpus > 1 and _name(each) in alone]
    found: list[ScalingResult] = []
    for group, least, most in _COUNTS:
        found += _judge(group, [pair for pair in pairs if least <= pair[0].row.gpus <= most])
    for group, least_s, most_s in _TIMES:
        found += _judge(group, [pair for pair in pairs if least_s <= _measure_batch(pair[0]) < most_s])
    return found


_COUNTS = (("2 GPUs", 2, 2), ("4 GPUs", 4, 4), ("8 GPUs", 8, 8), ("16 or more GPUs", 16, 1 << 20))
_TIMES = (
    ("batches below 0.1 s", 0.0, 0.1),
    ("batches of 0.1 to 0.3 s", 0.1, 0.3),
    ("batches of 0.3 s or more", 0.3, float("inf")),
)


def _name(each: Compared) -> tuple[object, ...]:
    row = each.row
    return row.source, row.network, row.device, row.gpus_per_node, row.precision, row.batch


def _measure_batch(each: Compared) -> float:
    return each.row.step_s / each.row.accumulation


def _judge(group: str, pairs: Sequence[tuple[Compared, Compared]]) -> list[ScalingResult]:
    if not pairs:
        return []
    published = [many.row.rate / many.row.gpus / one.row.rate for many, one in pairs]
    predicted = [many.rate / many.row.gpus / one.rate for many, one in pairs]
    return [
        ScalingResult(
            group=group,
            cases=len(pairs),
            published=100 * float(np.median(published)),
            predicted=100 * float(np.median(predicted)),
        )
    ]
