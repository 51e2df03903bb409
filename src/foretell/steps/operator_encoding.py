"""Encodes measured steps as numbers: each distinct operator once, and the recorded times of its occurrences."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from foretell.core.workload import Floats, MeasuredStep, Operator, Shape, StepPhase, Workload

Rows: TypeAlias = NDArray[np.intp]

COLUMNS = (
    *(str(phase) for phase in StepPhase),
    "flops",
    "bytes_moved",
    "intensity",  # operations for each byte
    "parameters",
    "kernels",
    "inputs",
    "input_gradient",
    "item_bits",
    "first_elements",
    "second_elements",
    "output_elements",
    "batch",
    "channels",
    "output_channels",
    "width",
    "output_width",
    "window",  # elements of a convolution's kernel
    "stride",
    "groups",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctOperators:
    """The distinct operators of some workloads, and their positions in each workload."""

    operators: tuple[Operator, ...]
    rows: tuple[Rows, ...]  # for each workload, the distinct operator at each position

    @property
    def flops(self) -> Floats:
        """Of each operator."""
        return np.array([operator.flops for operator in self.operators], dtype=float)

    @property
    def bytes_moved(self) -> Floats:
        """Of each operator."""
        return np.array([operator.bytes_moved for operator in self.operators], dtype=float)

    def count(self, columns: Rows | None = None, width: int | None = None) -> sparse.csr_array:
        """How often each workload has each operator, or each column if operators share columns."""
        lengths = [len(rows) for rows in self.rows]
        positions = np.concatenate([*self.rows, np.empty(0, dtype=np.intp)])
        if columns is not None:
            positions = columns[positions]
        shape = (len(self.rows), len(self.operators) if width is None else width)
        ones = np.ones(len(positions))
        return sparse.csr_array((ones, (np.repeat(np.arange(len(lengths)), lengths), positions)), shape=shape)


def find_distinct(workloads: Iterable[Workload]) -> DistinctOperators:
    """The distinct operators of workloads."""
    numbers: dict[Operator, int] = {}
    numbers_by_id: dict[
        int, int
    ] = {}  # by identity: most occurrences are the same object, and hashing an operator is slow
    rows = []
    kept = list(workloads)  # kept alive, so that no identity is reused
    for workload in kept:
        for key, operator in {id(operator): operator for operator in workload.operators}.items():
            if key not in numbers_by_id:
                numbers_by_id[key] = numbers.setdefault(operator, len(numbers))
        positions = map(numbers_by_id.__getitem__, map(id, workload.operators))
        rows.append(np.fromiter(positions, dtype=np.intp, count=len(workload.operators)))
    return DistinctOperators(operators=tuple(numbers), rows=tuple(rows))


def encode(operators: Sequence[Operator]) -> Floats:
    """A row of :data:`COLUMNS` for each operator; sizes as logarithms."""
    return np.array([_encode(operator) for operator in operators], dtype=float).reshape(-1, len(COLUMNS))


def _encode(operator: Operator) -> list[float]:
    first, second = ((*operator.inputs, (), ())[:2]) if operator.inputs else (operator.output, ())
    output = operator.output or first
    groups = operator.get("groups", 1)
    window = math.prod(second[2:]) if len(second) > 2 and operator.kind.startswith("conv") else 1
    return [
        *(float(operator.phase is phase) for phase in StepPhase),
        math.log1p(operator.flops),
        math.log1p(operator.bytes_moved),
        math.log1p(operator.flops / max(operator.bytes_moved, 1.0)),
        math.log1p(operator.parameters),
        float(operator.kernels),
        float(len(operator.inputs)),
        float(operator.input_gradient),
        float("".join(filter(str.isdecimal, operator.dtype)) or 32),
        math.log1p(math.prod(first)),
        math.log1p(math.prod(second)) if second else 0.0,
        math.log1p(math.prod(output)),
        math.log2(max(_side(first, 0), 1)),
        math.log1p(_side(first, 1)),
        math.log1p(_side(output, 1)),
        math.log1p(_side(first, -1)),
        math.log1p(_side(output, -1)),
        math.log(window),
        math.log(max(_side(first, -1), 1) / max(_side(output, -1), 1)),
        math.log(max(groups if isinstance(groups, int) else math.prod(groups), 1)),
    ]


def _side(shape: Shape, axis: int) -> int:
    return shape[axis] if -len(shape) <= axis < len(shape) else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTimes:
    """The recorded times of a step, which add up to the time of the iteration."""

    positions: Rows  # of the recorded operators, in the order of the step
    kernel_s: Floats
    gap_s: Floats  # until the next recorded operator began; negative where both ran at once
    alone: NDArray[np.bool_]  # whether no unrecorded operator runs in the gap


def read_times(step: MeasuredStep) -> RecordedTimes:
    """The recorded times of a step."""
    positions = np.flatnonzero(~np.isnan(step.kernel_s))
    start, kernel = step.start_s[positions], step.kernel_s[positions]
    after = np.append(start[1:], step.iteration_s + start[:1])[: len(start)]
    return RecordedTimes(
        positions=positions,
        kernel_s=kernel,
        gap_s=after - start - kernel,
        alone=np.diff(positions, append=len(step.kernel_s)) == 1,
    )


def find_iterations(steps: Sequence[MeasuredStep]) -> Floats:
    """The times of the iterations."""
    return np.array([step.iteration_s for step in steps], dtype=float)
