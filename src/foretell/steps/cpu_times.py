"""Predicts the time of a whole operator on a CPU: its roofline, times a factor fitted on distinct operators.

Operators are not split here: PyTorch runs attention and recurrent layers on a CPU as one call.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.array_trees import Arrays, ArrayTrees
from foretell.core.devices import Device
from foretell.core.model_files import read_numbers
from foretell.core.workload import Attribute, Floats, Operator, Shape, StepPhase, Workload
from foretell.steps.device_tasks import CONVOLUTIONS, PRODUCTS
from foretell.steps.host_times import name_operator
from foretell.steps.kernel_times import fit_trees

LEAST_S = 3e-6  # shortest time of a kernel
_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
_ATTENTIONS = frozenset({"multi_head_attention_forward", "scaled_dot_product_attention"})
_RECURRENT_SHARE = 0.1  # of LEAST_S, for each kernel of a recurrent layer
_SHORTEST_S = 2e-7
_SHRINK = 2.0  # calls of a kind that have the weight of their group
_FACTOR = 12.0  # largest log factor; larger ones are errors of the model
_BLOCK = 8  # channels computed together
_PHASES = list(StepPhase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An operator in a step."""

    operator: Operator
    largest: float  # log2 elements of the largest result of the step, which limits what the allocator reuses


def list_calls(workload: Workload) -> list[Call]:
    """A call for each operator of the step; equal operators share one."""
    largest = _log(max((math.prod(each.output) for each in workload.operators), default=1))
    known = {each: Call(operator=each, largest=largest) for each in dict.fromkeys(workload.operators)}
    return [known[each] for each in workload.operators]


class CallModel:
    """A factor on the roofline: a level for each kind and phase, and boosted trees on sizes for the rest."""

    def __init__(self, device: Device, *, seed: int = 0) -> None:
        self.device = device
        self.seed = seed

    def fit(self, calls: Sequence[Call], seconds: Floats) -> Self:
        """Fit on distinct calls and their times; returns itself."""
        factor = np.log(np.maximum(seconds, _SHORTEST_S) / self._find_least(calls))
        self.levels_ = _fit_levels(calls, factor)
        self.trees_: dict[str, ArrayTrees] = {}
        for group, positions in _group(calls).items():
            if len(positions) < 2:
                continue
            some = [calls[position] for position in positions]
            levels = self._find_levels(some)
            self.trees_[group] = fit_trees(
                _describe(some, levels), factor[positions] - levels, np.sqrt(seconds[positions]), seed=self.seed
            )
        return self

    def predict(self, calls: Sequence[Call]) -> Floats:
        """Seconds of each call."""
        factor = self._find_levels(calls)
        for group, positions in _group(calls).items():
            if group in self.trees_:
                some = [calls[position] for position in positions]
                factor[positions] += self.trees_[group].predict(_describe(some, factor[positions]))
        return np.asarray(self._find_least(calls) * np.exp(np.clip(factor, -_FACTOR, _FACTOR)))

    def _find_least(self, calls: Sequence[Call]) -> Floats:
        return np.array([_find_least(call.operator, self.device) for call in calls], dtype=float)

    def _find_levels(self, calls: Sequence[Call]) -> Floats:
        known = [
            self.levels_.get(name_operator(call.operator), self.levels_.get(_name_group(call.operator), 0.0))
            for call in calls
        ]
        return np.array(known, dtype=float)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The trees as arrays."""
        return {
            f"{group}.{name}": values
            for group, trees in self.trees_.items()
            for name, values in trees.to_arrays().items()
        }

    @classmethod
    def from_arrays(cls, device: Device, arrays: Arrays, levels: Mapping[str, float]) -> Self:
        """The model of arrays and levels."""
        model = cls(device)
        model.levels_ = read_numbers(levels)
        groups: dict[str, dict[str, NDArray[Any]]] = defaultdict(dict)
        for path, values in arrays.items():
            group, _, name = path.partition(".")
            groups[group][name] = values
        model.trees_ = {group: ArrayTrees.from_arrays(some) for group, some in groups.items()}
        return model


def _find_least(operator: Operator, device: Device) -> float:
    """The roofline. A recurrent layer is one call, whose weights stay in caches."""
    started = max(operator.kernels, 1) * LEAST_S
    computing = operator.flops / device.peak_flops
    if operator.kind in _RECURRENT:
        return started * _RECURRENT_SHARE + computing
    return started + max(computing, operator.bytes_moved / device.bandwidth_bytes)


def _fit_levels(calls: Sequence[Call], factor: Floats) -> dict[str, float]:
    """Levels of groups of kinds, and of each kind in its phase, shrunk towards its group if it is rare."""
    levels = {group: float(np.median(factor[positions])) for group, positions in _group(calls).items()}
    names: dict[str, list[int]] = defaultdict(list)
    for position, call in enumerate(calls):
        names[name_operator(call.operator)].append(position)
    for name, positions in names.items():
        above, count = levels[_name_group(calls[positions[0]].operator)], len(positions)
        levels[name] = (float(np.median(factor[positions])) * count + above * _SHRINK) / (count + _SHRINK)
    return levels


def _group(calls: Sequence[Call]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for position, call in enumerate(calls):
        groups[_name_group(call.operator)].append(position)
    return groups


def _name_group(operator: Operator) -> str:
    if operator.phase is StepPhase.UPDATE:
        return "update"
    several = len(operator.inputs) > 1
    if operator.kind in CONVOLUTIONS and several:
        return "convolution"
    if operator.kind in PRODUCTS | _ATTENTIONS and several:
        return "product"
    return "loop" if operator.kind in _RECURRENT else "pass"


# Columns of the trees


def _describe(calls: Sequence[Call], levels: Floats) -> Floats:
    """Columns for calls of one group."""
    rows = [_describe_call(call) for call in calls]
    return np.column_stack([np.array(rows, dtype=float), levels])


def _describe_call(call: Call) -> list[float]:
    operator = call.operator
    return [
        float(_PHASES.index(operator.phase)),
        _log(operator.flops + 1),
        _log(operator.bytes_moved + 1),
        _log((operator.flops + 1) / (operator.bytes_moved + 1)),
        float(operator.kernels),
        float(operator.input_gradient),
        _log(operator.parameters + 1),
        call.largest,
        *_DESCRIBERS[_name_group(operator)](operator),
    ]


def _describe_convolution(operator: Operator) -> list[float]:
    """Blocks of channels, few channels and depthwise convolutions are computed in different ways."""
    given, weight, output = operator.inputs[0], operator.inputs[1], operator.output
    groups = max(_one(operator.get("groups", 1)), 1)
    images, channels = _side(given, 0), _side(given, 1)
    inside, outside = channels / groups, _side(output, 1) / groups
    window, positions = math.prod(weight[2:]), math.prod(output[2:])
    return [
        _log(images), _log(inside), _log(outside), _log(groups), _log(positions), _log(math.prod(given[2:])),
        float(window), float(_one(operator.get("stride", 1))), float("transpose" in operator.kind),
        _pad(inside), _pad(outside), float(inside % 16 == 0), float(outside % 16 == 0), float(groups == channels > 1),
        _log(math.prod(given)), _log(math.prod(output)), _log(math.prod(weight)), _log(images * positions),
        _log(inside * window), float(len(operator.inputs) > 2), _log(_side(output, -1)),
    ]  # fmt: skip


def _describe_product(operator: Operator) -> list[float]:
    rows, columns, inner, many = _find_product(operator)
    return [
        _log(rows), _log(columns), _log(inner), _log(many), _log(min(rows, columns, inner)), _log(rows * columns),
        _log(columns * inner), _log(rows * inner), float(len(operator.inputs) > 2),
    ]  # fmt: skip


def _find_product(operator: Operator) -> tuple[float, float, float, float]:
    """Rows, columns, inner dimension, number of products."""
    first, second = operator.inputs[:2]
    inner = float(_side(first, -1))
    if operator.kind == "linear":
        return math.prod(first) / max(inner, 1.0), float(_side(second, 0)), inner, 1.0
    if operator.kind == "scaled_dot_product_attention":
        return float(_side(first, -2)), float(_side(second, -2)), inner, float(math.prod(first[:-2]))
    if operator.kind == "multi_head_attention_forward":
        return float(_side(first, 0)), inner, inner, float(math.prod(first[1:-1]))
    return float(_side(first, -2)), float(_side(second, -1)), inner, float(math.prod(first[:-2]))


def _describe_loop(operator: Operator) -> list[float]:
    """Whether the first dimension is time or batch is unknown; both are columns."""
    first = operator.inputs[0] if operator.inputs else ()
    weights = [shape for shape in operator.inputs if len(shape) == 2]
    return [
        _log(_side(first, 0)), _log(_side(first, 1)), _log(_side(first, 2)), float(len(weights)),
        _log(max((shape[-1] for shape in weights), default=1)),
        _log(operator.kernels), _log(operator.flops / max(operator.kernels, 1)),
    ]  # fmt: skip


def _describe_pass(operator: Operator) -> list[float]:
    big: Shape = max((*operator.inputs, operator.output), key=math.prod, default=())
    second = operator.inputs[1] if len(operator.inputs) > 1 else ()
    return [
        _log(math.prod(big)), _log(math.prod(operator.output)), _log(_side(big, 0)), _log(_side(big, 1)),
        _log(math.prod(big[2:])), _log(_side(big, -1)), float(len(operator.inputs)), float(len(big)),
        _log(math.prod(second)),
    ]  # fmt: skip


def _describe_update(operator: Operator) -> list[float]:
    return [_log(math.prod(operator.output)), float(len(operator.inputs))]


def _one(value: Attribute) -> int:
    return value if isinstance(value, int) else (value[0] if value else 1)


def _side(shape: Shape, axis: int) -> int:
    return shape[axis] if -len(shape) <= axis < len(shape) else 1


def _pad(channels: float) -> float:
    """The ratio of padded to needed channels."""
    return _log(math.ceil(channels / _BLOCK) * _BLOCK / max(channels, 1e-9))


def _log(value: float) -> float:
    return math.log2(max(value, 1e-9))


_DESCRIBERS: dict[str, Callable[[Operator], list[float]]] = {
    "convolution": _describe_convolution,
    "product": _describe_product,
    "loop": _describe_loop,
    "pass": _describe_pass,
    "update": _describe_update,
}
