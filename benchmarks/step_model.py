"""A model for devices that are their own host: what an operator takes, and what lies between two, add up to the step.

Kernels are learned as a factor on the roofline: a level for each kind and phase, and boosted trees on sizes for what is
left. Gaps are known by the operators on both sides. What one half of the steps tells of the other sets the scale.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeAlias

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from foretell.entities.workload import Attribute, Floats, MeasuredStep, Operator, Shape, StepPhase, Workload
from foretell.models.operators._base import StepModel, StepTimes
from foretell.models.operators.encoding import read_times

CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
PRODUCTS = frozenset({"linear", "matmul", "bmm", "mm", "multi_head_attention_forward", "scaled_dot_product_attention"})
LOOPS = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
LEAST_S = 3e-6  # of a kernel
LOOP_SHARE = 0.1  # of it, for a part of a loop over time
SHORTEST_S = 2e-7
SHRINK = 2.0
OFTEN = 3
ENOUGH = 20  # steps of which one half can tell the other
BLOCK = 8  # channels that are computed together
TREES = {"max_iter": 150, "learning_rate": 0.08, "max_leaf_nodes": 8, "l2_regularization": 2.0, "max_features": 0.5}
LEAF = (2, 8)  # rows of a leaf at least: the fewer there are, the fewer
ROWS_FOR_LEAF = 20

Word: TypeAlias = tuple[str, str]
END: Word = ("end", "")


class SerialModel(StepModel):
    """Sums up kernels and gaps."""

    def __init__(self, *, flops_per_s: float, bytes_per_s: float, seed: int = 0) -> None:
        self.flops_per_s = flops_per_s
        self.bytes_per_s = bytes_per_s
        self.seed = seed

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Learn; returns itself."""
        self.scale_ = self._find_scale(steps) if len(steps) >= ENOUGH else 1.0
        return self._learn(steps)

    def _find_scale(self, steps: Sequence[MeasuredStep]) -> float:
        """By how much steps take longer than what others tell: the mean of logarithms lies below that of times."""
        ratios: list[float] = []
        self.scale_ = 1.0
        for half in range(2):
            self._learn(steps[half::2])
            rest = steps[1 - half :: 2]
            told = self.predict([step.workload for step in rest])
            ratios += [step.iteration_s / times.iteration_s for step, times in zip(rest, told, strict=True)]
        return float(np.median(ratios))

    def _learn(self, steps: Sequence[MeasuredStep]) -> Self:
        self._fit_gaps(steps)
        rows: dict[tuple[Operator, float], list[float]] = defaultdict(list)
        for step in steps:
            times, largest = read_times(step), find_largest(step.workload)
            for place, seconds in zip(times.places.tolist(), times.kernel_s.tolist(), strict=True):
                rows[step.workload.operators[place], largest].append(seconds)
        self._fit_kernels(list(rows), np.array([np.median(values) for values in rows.values()]))
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""
        return [self._predict(workload) for workload in workloads]

    def _predict(self, workload: Workload) -> StepTimes:
        largest = find_largest(workload)
        distinct = list(dict.fromkeys(workload.operators))
        known = dict(zip(distinct, self._predict_kernels([(each, largest) for each in distinct]).tolist(), strict=True))
        kernel = np.array([known[operator] for operator in workload.operators]) * self.scale_
        gap = np.array([self._find_gap(*pair) for pair in pair_words(workload)])
        return StepTimes(iteration_s=float(kernel.sum() + gap.sum()), kernel_s=kernel, gap_s=gap)

    # Gaps

    def _fit_gaps(self, steps: Iterable[MeasuredStep]) -> None:
        pairs: dict[tuple[Word, Word], list[float]] = defaultdict(list)
        words: dict[Word, list[float]] = defaultdict(list)
        for step in steps:
            times, around = read_times(step), pair_words(step.workload)
            for place, seconds, alone in zip(times.places, np.maximum(times.gap_s, 0.0), times.alone, strict=True):
                if alone:
                    pairs[around[place]].append(float(seconds))
                    words[around[place][0]].append(float(seconds))
        self.pairs_ = {pair: float(np.median(values)) for pair, values in pairs.items() if len(values) >= OFTEN}
        self.words_ = {word: float(np.median(values)) for word, values in words.items()}
        self.common_s_ = float(np.median(list(self.words_.values()))) if words else 0.0

    def _find_gap(self, word: Word, after: Word) -> float:
        return self.pairs_.get((word, after), self.words_.get(word, self.common_s_))

    # Kernels

    def _fit_kernels(self, rows: Sequence[tuple[Operator, float]], seconds: Floats) -> None:
        factor = np.log(np.maximum(seconds, SHORTEST_S) / self._roofline(rows))
        self.levels_ = _find_levels([name_word(operator) for operator, _ in rows], factor)
        rest = factor - self._look_up(rows)
        self.trees_: dict[str, HistGradientBoostingRegressor] = {}
        for name, places in _group(rows).items():
            X = np.array([_describe(*rows[place]) for place in places])
            leaf = min(LEAF[1], max(LEAF[0], len(places) // ROWS_FOR_LEAF))
            trees = HistGradientBoostingRegressor(
                **TREES, min_samples_leaf=leaf, early_stopping=False, random_state=self.seed
            )
            self.trees_[name] = trees.fit(self._with_level(X, rows, places), rest[places], np.sqrt(seconds[places]))

    def _predict_kernels(self, rows: Sequence[tuple[Operator, float]]) -> Floats:
        factor = self._look_up(rows)
        for name, places in _group(rows).items():
            if name in self.trees_:
                X = np.array([_describe(*rows[place]) for place in places])
                factor[places] += self.trees_[name].predict(self._with_level(X, rows, places))
        return np.asarray(self._roofline(rows) * np.exp(factor), dtype=float)

    def _roofline(self, rows: Sequence[tuple[Operator, float]]) -> Floats:
        return np.array([self._find_least(operator) for operator, _ in rows])

    def _find_least(self, operator: Operator) -> float:
        """A loop over time is one call, whose weights stay in caches."""
        computing = operator.flops / self.flops_per_s
        if operator.kind in LOOPS:
            return operator.kernels * LEAST_S * LOOP_SHARE + computing
        return operator.kernels * LEAST_S + max(computing, operator.bytes_moved / self.bytes_per_s)

    def _look_up(self, rows: Sequence[tuple[Operator, float]]) -> Floats:
        return np.array([self.levels_.get(name_word(operator), 0.0) for operator, _ in rows])

    def _with_level(self, X: Floats, rows: Sequence[tuple[Operator, float]], places: Sequence[int]) -> Floats:
        return np.column_stack([X, self._look_up([rows[place] for place in places])])


def name_word(operator: Operator) -> Word:
    return operator.phase.value, operator.kind


def pair_words(workload: Workload) -> list[tuple[Word, Word]]:
    words = [name_word(operator) for operator in workload.operators]
    return list(zip(words, [*words[1:], END], strict=True))


def find_largest(workload: Workload) -> float:
    """The step's largest result: what the allocator keeps for the next step goes by it."""
    return _log(max((math.prod(each.output) for each in workload.operators), default=1))


def _find_levels(words: Sequence[Word], factor: Floats) -> dict[Word, float]:
    groups: dict[Word, list[float]] = defaultdict(list)
    for word, value in zip(words, factor.tolist(), strict=True):
        groups[word].append(value)
    return {word: float(np.median(values)) * len(values) / (len(values) + SHRINK) for word, values in groups.items()}


def _group(rows: Sequence[tuple[Operator, float]]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for place, (operator, _) in enumerate(rows):
        groups[_name_group(operator)].append(place)
    return groups


def _name_group(operator: Operator) -> str:
    if operator.phase is StepPhase.UPDATE:
        return "update"
    kind = operator.kind
    return (
        "convolution" if kind in CONVOLUTIONS and len(operator.inputs) > 1
        else "product" if kind in PRODUCTS
        else "loop" if kind in LOOPS
        else "pass"
    )  # fmt: skip


# What trees see


def _describe(operator: Operator, largest: float) -> list[float]:
    return [
        float(list(StepPhase).index(operator.phase)),
        _log(operator.flops + 1),
        _log(operator.bytes_moved + 1),
        _log((operator.flops + 1) / (operator.bytes_moved + 1)),
        float(operator.kernels),
        float(operator.input_gradient),
        _log(operator.parameters + 1),
        largest,
        *_DESCRIBERS[_name_group(operator)](operator),
    ]


def _describe_convolution(operator: Operator) -> list[float]:
    given, weight = operator.inputs[:2]
    groups = _one(operator.get("groups", 1))
    inside, outside = given[1] / groups, operator.output[1] / groups
    window = math.prod(weight[2:])
    positions = math.prod(operator.output[2:])
    return [
        _log(given[0]), _log(inside), _log(outside), _log(groups), _log(positions), _log(math.prod(given[2:])),
        float(window), float(_one(operator.get("stride", 1))), float("transpose" in operator.kind),
        _padding(inside), _padding(outside), float(inside % 16 == 0), float(outside % 16 == 0),
        float(groups == given[1] > 1),
        _log(math.prod(given)), _log(math.prod(operator.output)), _log(math.prod(weight)), _log(given[0] * positions),
        _log(inside * window), float(len(operator.inputs) > 2), _log(operator.output[-1]),
    ]  # fmt: skip


def _describe_product(operator: Operator) -> list[float]:
    first = operator.inputs[0]
    inner = float(first[-1])
    second = operator.inputs[1] if len(operator.inputs) > 1 else first
    if operator.kind == "linear":
        rows, columns, many = math.prod(first) / inner, float(second[0]), 1.0
    elif operator.kind == "scaled_dot_product_attention":
        rows, columns, many = float(first[-2]), float(second[-2]), float(math.prod(first[:-2]))
    elif operator.kind == "multi_head_attention_forward":
        rows, columns, many = float(first[0]), inner, float(math.prod(first[1:-1]))
    else:
        rows, columns, many = float((1, *first)[-2]), float(second[-1]), float(math.prod(first[:-2]))
    return [
        _log(rows), _log(columns), _log(inner), _log(many), _log(min(rows, columns, inner)), _log(rows * columns),
        _log(columns * inner), _log(rows * inner), float(len(operator.inputs) > 2),
    ]  # fmt: skip


def _describe_loop(operator: Operator) -> list[float]:
    """Times and examples change places with an option that is not known; both are there."""
    first = (*operator.inputs[0], 1, 1)
    weights = [shape for shape in operator.inputs if len(shape) == 2]
    return [
        _log(first[0]), _log(first[1]), _log(first[2]), float(len(weights)),
        _log(max((shape[-1] for shape in weights), default=1)),
        _log(operator.kernels), _log(operator.flops / max(operator.kernels, 1)),
    ]  # fmt: skip


def _describe_pass(operator: Operator) -> list[float]:
    big: Shape = max((*operator.inputs, operator.output), key=math.prod, default=())
    second = operator.inputs[1] if len(operator.inputs) > 1 else ()
    return [
        _log(math.prod(big)), _log(math.prod(operator.output)), _log((*big, 1)[0]), _log((*big, 1, 1)[1]),
        _log(math.prod(big[2:])), _log((1, *big)[-1]), float(len(operator.inputs)), float(len(big)),
        _log(math.prod(second)),
    ]  # fmt: skip


def _describe_update(operator: Operator) -> list[float]:
    return [_log(math.prod(operator.output)), float(len(operator.inputs))]


def _one(value: Attribute) -> int:
    return value if isinstance(value, int) else value[0]


def _padding(channels: float) -> float:
    return _log(math.ceil(channels / BLOCK) * BLOCK / channels)


def _log(value: float) -> float:
    return math.log2(max(value, 1e-9))


_DESCRIBERS: dict[str, Callable[[Operator], list[float]]] = {
    "convolution": _describe_convolution,
    "product": _describe_product,
    "loop": _describe_loop,
    "pass": _describe_pass,
    "update": _describe_update,
}
