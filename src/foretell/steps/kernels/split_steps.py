"""The kernels of a whole step: each distinct one once, and where it runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from foretell.core.workload import Floats, Workload
from foretell.steps.kernels.kernel_bounds import PRECISIONS, KernelBounds
from foretell.steps.kernels.kernel_calls import Attention, Convolution, KernelCall, MemoryPass, Product
from foretell.steps.kernels.operator_kernels import split_kernels
from foretell.steps.kernels.step_levels import name_group

KINDS: Mapping[str, type] = {
    "product": Product,
    "attention": Attention,
    "convolution": Convolution,
    "memory_pass": MemoryPass,
}
Value = TypeVar("Value")
_MOST_KEPT = 4  # steps whose kernels are kept: each device of a table needs them again


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStep:
    """Distinct kernels of a step by kind, in the order of ``KINDS``, and the kernels of each distinct operator."""

    calls: Mapping[str, tuple[KernelCall, ...]]
    bounds: KernelBounds  # of all kernels
    groups: tuple[str, ...]  # by which kernels are corrected
    group_of: np.ndarray  # of each kernel: its place in groups
    types: tuple[tuple[str, str], ...]  # kind and precision of kernels
    type_of: np.ndarray  # of each kernel: its place in types
    owners: np.ndarray  # distinct operators, one for each of their kernels
    places: np.ndarray  # of those kernels among all
    repeats: Floats  # of those kernels in the operator
    order: np.ndarray  # the distinct operator at each position of the step
    unknown: np.ndarray  # at each position: whether the cost of its operator is unknown

    @property
    def count(self) -> Floats:
        """How often each kernel runs in the step."""
        uses = np.bincount(self.order, minlength=int(self.owners.max(initial=-1)) + 1)
        found = np.zeros(len(self.bounds.flops))
        np.add.at(found, self.places, uses[self.owners] * self.repeats)
        return found

    def add_up(self, seconds: Floats) -> Floats:
        """Seconds of each operator of the step, from those of each kernel."""
        distinct = np.zeros(int(self.order.max(initial=-1)) + 1)
        np.add.at(distinct, self.owners, seconds[self.places] * self.repeats)
        return np.asarray(distinct[self.order])


_kept: dict[int, tuple[Workload, SplitStep]] = {}


def split_step(workload: Workload) -> SplitStep:
    """The kernels of a step; those of the last steps are kept."""
    found = _kept.get(id(workload))
    if found is None or found[0] is not workload:
        while len(_kept) >= _MOST_KEPT:
            del _kept[next(iter(_kept))]
        found = _kept[id(workload)] = workload, _split(workload)
    return found[1]


def _split(workload: Workload) -> SplitStep:
    numbers = {operator: number for number, operator in enumerate(dict.fromkeys(workload.operators))}
    kernels = [Counter(split_kernels(operator, settings=workload.settings)) for operator in numbers]
    distinct = dict.fromkeys(call for each in kernels for call in each)
    calls = {name: tuple(call for call in distinct if isinstance(call, kind)) for name, kind in KINDS.items()}
    every = tuple(call for some in calls.values() for call in some)
    place = {call: number for number, call in enumerate(every)}
    groups, group_of = _number([name_group(call) for call in every])
    types, type_of = _number([_find_type(name, call) for name, some in calls.items() for call in some])
    return SplitStep(
        calls=calls,
        bounds=KernelBounds.count(every),
        groups=groups,
        group_of=group_of,
        types=types,
        type_of=type_of,
        owners=np.array([number for number, each in enumerate(kernels) for _ in each], dtype=int),
        places=np.array([place[call] for each in kernels for call in each], dtype=int),
        repeats=np.array([count for each in kernels for count in each.values()], dtype=float),
        order=np.array([numbers[operator] for operator in workload.operators], dtype=int),
        unknown=np.array([operator.unknown > 0 for operator in workload.operators], dtype=bool),
    )


def _find_type(name: str, call: KernelCall) -> tuple[str, str]:
    """Passes have no precision; they are of the first one."""
    return name, getattr(call, "precision", PRECISIONS[0])


def _number(values: Sequence[Value]) -> tuple[tuple[Value, ...], np.ndarray]:
    """Distinct values, and the place of each value among them."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return tuple(numbers), np.array([numbers[value] for value in values], dtype=int)
