"""Windows over the operators of steps, and the columns that encode them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.workload import Floats, MeasuredStep, Operator, StepPhase, Workload
from foretell.steps.operator_encoding import COLUMNS, DistinctOperators, Rows, encode, read_times

WINDOW, STRIDE = 12, 4
_VALIDATION_SHARE = 0.15  # of the models

# Sequences and windows


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSequence:
    """The recorded operators of all steps, one after the other."""

    rows: list[Rows]  # of each step
    times: Floats  # two columns: time and gap


def build_sequence(distinct: DistinctOperators, steps: Sequence[MeasuredStep]) -> RecordedSequence:
    read = [read_times(step) for step in steps]
    return RecordedSequence(
        rows=[rows[times.positions] for rows, times in zip(distinct.rows, read, strict=True)],
        times=np.concatenate([np.column_stack([times.kernel_s, times.gap_s]) for times in read]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The positions of each window. Positions after the end of a short step are masked."""

    rows: Rows  # for each position, its distinct operator
    owner: Rows  # for each position, its step
    step: Rows  # of each window
    positions: Rows  # of each window, twelve
    mask: NDArray[np.bool_]

    def take(self, chosen: Rows) -> "Windows":
        return Windows(
            rows=self.rows,
            owner=self.owner,
            step=self.step[chosen],
            positions=self.positions[chosen],
            mask=self.mask[chosen],
        )

    def find_distinct(self, features: "Features") -> tuple[Rows, Rows]:
        """The first of each set of equal windows, and the set of each window."""
        operators = np.where(self.mask, self.rows[self.positions], -1)
        keys = np.column_stack([operators, features.same_step[self.step]])
        bytes_of = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel()
        _, first, back = np.unique(bytes_of, return_index=True, return_inverse=True)
        return first, back


def lay_windows(rows: Sequence[Rows], steps: Rows | None = None) -> Windows:
    """Windows over each step; the last one ends with the step."""
    lengths = np.array([len(part) for part in rows], dtype=np.intp)
    ends = np.cumsum(lengths)
    begins, owners = [], []
    for number, (length, end) in enumerate(zip(lengths.tolist(), ends.tolist(), strict=True)):
        last = max(length - WINDOW, 0)
        starts = [*range(0, last, STRIDE), last] if length else []
        begins.append(np.array(starts, dtype=np.intp) + end - length)
        owners.append(np.full(len(starts), number, dtype=np.intp))
    begin, owner = _join(begins), _join(owners)
    positions = begin[:, None] + np.arange(WINDOW)
    limit = ends[owner][:, None] if len(owner) else np.zeros((0, 1), dtype=np.intp)
    return Windows(
        rows=_join(rows),
        owner=np.repeat(np.arange(len(rows)), lengths),
        step=owner if steps is None else steps[owner],
        positions=np.minimum(positions, limit - 1),
        mask=positions < limit,
    )


def _join(parts: Sequence[Rows]) -> Rows:
    return np.concatenate([*parts, np.empty(0, dtype=np.intp)])


# Encoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Columns of each distinct operator, and columns that a whole step shares."""

    operators: NDArray[np.float32]
    steps: NDArray[np.float32]
    same_step: Rows  # a number for each distinct row of columns of steps

    @property
    def width(self) -> int:
        return int(self.operators.shape[1] + self.steps.shape[1])

    def gather(self, torch: Any, windows: Windows) -> Any:
        own = self.operators[windows.rows[windows.positions]]
        shared = np.broadcast_to(self.steps[windows.step][:, None, :], (*own.shape[:2], self.steps.shape[1]))
        return torch.from_numpy(np.concatenate([own, shared], axis=2) * windows.mask[..., None].astype(np.float32))


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """The known kinds and optimizers, and the scale of the columns."""

    kinds: tuple[str, ...]
    optimizers: tuple[str, ...]
    centre: Floats
    spread: Floats

    @property
    def width(self) -> int:
        """Columns of the encoding."""
        return len(COLUMNS) + len(self.kinds) + 1 + len(self.optimizers)

    @classmethod
    def fit(cls, distinct: DistinctOperators, steps: Sequence[MeasuredStep]) -> Self:
        columns = encode(distinct.operators)
        return cls(
            kinds=tuple(sorted({operator.kind for operator in distinct.operators})),
            optimizers=tuple(sorted({_optimizer(step.workload) for step in steps})),
            centre=columns.mean(axis=0),
            spread=find_spread(columns),
        )

    def encode(self, distinct: DistinctOperators, workloads: Sequence[Workload]) -> Features:
        """Features of operators; unknown kinds and optimizers have only zeros."""
        columns = (encode(distinct.operators) - self.centre) / self.spread
        kinds = _mark([operator.kind for operator in distinct.operators], self.kinds)
        batches = np.array([[np.log2(max(workload.batch, 1))] for workload in workloads]).reshape(-1, 1)
        steps = np.hstack([batches, _mark([_optimizer(workload) for workload in workloads], self.optimizers)])
        _, same = np.unique(steps, axis=0, return_inverse=True)
        return Features(
            operators=np.hstack([columns, kinds]).astype(np.float32),
            steps=steps.astype(np.float32),
            same_step=same.astype(np.intp),
        )


def _mark(values: Sequence[str], known: Sequence[str]) -> Floats:
    """One-hot columns of the known values."""
    positions = {kind: position for position, kind in enumerate(known)}
    marks = np.zeros((len(values), len(known)))
    for row, value in enumerate(values):
        if value in positions:
            marks[row, positions[value]] = 1.0
    return marks


def _optimizer(workload: Workload) -> str:
    return workload.settings.get("optimizer", "")


def find_kind(operator: Operator) -> tuple[str, StepPhase]:
    return operator.kind, operator.phase


def find_spread(columns: Floats) -> Floats:
    spread = columns.std(axis=0)
    return np.where(spread > 0, spread, 1.0)


def find_unrecorded(distinct: DistinctOperators, steps: Sequence[MeasuredStep]) -> frozenset[tuple[str, StepPhase]]:
    """Kinds that were mostly unrecorded in a phase."""
    totals = np.zeros((2, len(distinct.operators)))
    for rows, step in zip(distinct.rows, steps, strict=True):
        hidden = np.isnan(step.kernel_s)
        for position, chosen in enumerate((hidden, ~hidden)):
            totals[position] += np.bincount(rows[chosen], minlength=totals.shape[1])
    balance: Counter[tuple[str, StepPhase]] = Counter()
    for operator, more in zip(distinct.operators, totals[0] - totals[1], strict=True):
        balance[find_kind(operator)] += more
    return frozenset(kind for kind, more in balance.items() if more > 0)


def choose_validation(steps: Sequence[MeasuredStep], random: np.random.Generator) -> NDArray[np.bool_]:
    """Whether each step is for validation: the steps of some models, or some steps of the only model."""
    names = np.array([step.workload.name for step in steps])
    known = np.unique(names)
    if len(known) > 1:
        chosen = random.permutation(known)[: max(1, round(_VALIDATION_SHARE * len(known)))]
        return np.isin(names, chosen)
    chosen_steps = np.zeros(len(steps), dtype=bool)
    chosen_steps[random.permutation(len(steps))[: max(1, round(_VALIDATION_SHARE * len(steps)))]] = True
    return chosen_steps
