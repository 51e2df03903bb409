"""Whether the choice that is predicted to be best is one of the best that others measured.

Choices are GPUs, their number, batches, precisions and layouts of the same training. Asked are the most examples for
each hour of a GPU, on one kind of GPU and on any, and the shortest time with the same number of GPUs. As many choices
are alike, the share that is as good by chance is shown as well.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

from benchmarks.advise.published import Compared
from benchmarks.advise.results import NEAR, PickResult, judge_picks

_LEAST = 2  # choices


def judge_choices(rows: Sequence[Compared]) -> list[PickResult]:
    """Each question by itself, and all together."""
    found: list[PickResult] = []
    everything: list[tuple[float, float]] = []
    for name, group_by, value in _QUESTIONS:
        picked = [(_pick(choices, value), _pick_by_chance(choices, value)) for choices in _group(rows, group_by)]
        found += judge_picks("the pick", name, picked)
        everything += picked
    return [*found, *judge_picks("the pick", "all", everything)]


def _group(rows: Sequence[Compared], group_by: Callable[[Compared], object]) -> list[list[Compared]]:
    """Choices of the same training, of which there is more than one."""
    groups: dict[object, list[Compared]] = defaultdict(list)
    for each in rows:
        groups[group_by(each)].append(each)
    return [
        choices for choices in groups.values() if len(choices) >= _LEAST and len(set(map(_name, choices))) >= _LEAST
    ]


def _name(each: Compared) -> tuple[object, ...]:
    row = each.row
    return row.device.name, row.gpus, row.batch, row.precision, row.layout, row.accumulation


def _pick(choices: Sequence[Compared], value: Callable[[Compared, float], float]) -> float:
    """The published value of the choice with the best predicted one, as a share of the best published value."""
    best = max(value(each, each.row.rate) for each in choices)
    picked = max(choices, key=lambda each: value(each, each.rate))
    return value(picked, picked.row.rate) / best


def _pick_by_chance(choices: Sequence[Compared], value: Callable[[Compared, float], float]) -> float:
    """The share of the choices that are within 10 % of the best."""
    values = [value(each, each.row.rate) for each in choices]
    return sum(each >= NEAR * max(values) for each in values) / len(values)


def _divide_by_gpus(each: Compared, rate: float) -> float:
    return rate / each.row.gpus


def _take_rate(_: Compared, rate: float) -> float:
    return rate


_QUESTIONS: tuple[tuple[str, Callable[[Compared], object], Callable[[Compared, float], float]], ...] = (
    ("most for a GPU hour", lambda each: (each.row.source, each.row.task), _divide_by_gpus),
    (
        "the same, precision given",
        lambda each: (each.row.source, each.row.task, each.row.precision),
        _divide_by_gpus,
    ),
    ("most for an hour of any GPU", lambda each: (each.row.source, each.row.network), _divide_by_gpus),
    ("shortest time", lambda each: (each.row.source, each.row.network, each.row.gpus), _take_rate),
    (
        "the same, precision given",
        lambda each: (each.row.source, each.row.network, each.row.gpus, each.row.precision),
        _take_rate,
    ),
)
