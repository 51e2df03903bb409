"""ETS as published: an LSTM over sliding windows of the operators in the order in which they run."""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.devices import Device
from foretell.core.errors import MissingExtraError
from foretell.core.model_files import check_numbers
from foretell.core.workload import Floats, MeasuredStep, Operator, StepPhase, Workload
from foretell.steps._base import StepModel, StepTimes
from foretell.steps.operator_encoding import (
    COLUMNS,
    DistinctOperators,
    Rows,
    encode,
    find_distinct,
    find_iterations,
    read_times,
)
from foretell.steps.torch_seed import torch_seed

WINDOW, STRIDE = 12, 4
LAYERS = 4
BATCH = 128
LEARNING_RATE = 1e-3
PATIENCE = 15  # epochs without a lower validation error
_VALIDATION_SHARE = 0.15  # of the models
_VALIDATION_STEPS = 50
_PREDICT_BATCH = 1024
_MOST_HIDDEN = 4096
_log = logging.getLogger(__name__)


class EtsModel(StepModel):
    """A bidirectional LSTM of four layers predicts the time of each operator and the gap after it.

    An operator is encoded by its kind, phase, shapes, hyper-parameters, costs, the batch and the optimizer. Windows of
    twelve operators move by four; overlapping predictions are averaged, and the iteration takes their sum. Both
    targets are standardised seconds without logarithms; the loss is their mean absolute error (Adam, batches of 128
    windows, at most 100 epochs). Here an epoch is a random ``sample`` of the windows, and the weights are those of the
    epoch with the lowest mean relative error on the validation models.

    As in the original, unrecorded operators are not part of a sequence: their work is in the gap before them. Kinds
    that were mostly unrecorded in a phase are left out of predictions as well. Overlapping kernels have negative gaps,
    which are fitted as such and predicted as zero.

    With ``max_minutes`` the end of training depends on the machine; without it, predictions are repeatable.
    """

    kind: ClassVar[str] = "ets"

    def __init__(
        self,
        epochs: int = 100,
        hidden: int = 64,
        sample: int = 20_000,
        max_minutes: float | None = 20.0,
        threads: int = 1,
        seed: int = 0,
    ) -> None:
        self.epochs = epochs
        self.hidden = hidden
        self.sample = sample
        self.max_minutes = max_minutes
        self.threads = threads
        self.seed = seed

    @classmethod
    def build(cls, device: Device, *, seed: int = 0) -> Self:
        return cls(seed=seed)

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Fit the model; returns itself.

        Raises:
            MissingExtraError: PyTorch is not installed.
        """
        torch = _import_torch()
        distinct = find_distinct(step.workload for step in steps)
        self.encoder_ = _Encoder.fit(distinct, steps)
        self.unrecorded_ = _find_unrecorded(distinct, steps)
        sequence = _build_sequence(distinct, steps)
        self.centre_, self.spread_ = sequence.times.mean(axis=0), _spread(sequence.times)
        features = self.encoder_.encode(distinct, [step.workload for step in steps])
        validation = _choose_validation(steps, np.random.default_rng(self.seed))
        with torch_seed(seed=self.seed, threads=self.threads):
            self._train(torch, features, sequence, validation, find_iterations(steps))
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step.

        Raises:
            MissingExtraError: PyTorch is not installed.
        """
        torch = _import_torch()
        distinct = find_distinct(workloads)
        features = self.encoder_.encode(distinct, workloads)
        hidden = np.array([_find_kind(operator) in self.unrecorded_ for operator in distinct.operators], dtype=bool)
        positions = [np.flatnonzero(~hidden[rows]) for rows in distinct.rows]
        rows = [rows[kept] for rows, kept in zip(distinct.rows, positions, strict=True)]
        with torch_seed(seed=self.seed, threads=self.threads):
            network = _build_network(torch, features.width, self.hidden)
            network.load_state_dict({name: torch.from_numpy(values) for name, values in self.weights_.items()})
            times = np.maximum(self._predict_windows(torch, network, features, _lay_windows(rows)), 0.0)
        ends = np.cumsum([len(kept) for kept in positions])
        return [
            _build_times(times[end - len(kept) : end], kept, len(workload.operators))
            for workload, kept, end in zip(workloads, positions, ends, strict=True)
        ]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        encoder = self.encoder_
        record = {
            "hidden": self.hidden,
            "kinds": list(encoder.kinds),
            "optimizers": list(encoder.optimizers),
            "unrecorded": sorted([kind, phase.value] for kind, phase in self.unrecorded_),
        }
        arrays = {
            "columns.centre": encoder.centre,
            "columns.spread": encoder.spread,
            "times.centre": self.centre_,
            "times.spread": self.spread_,
        }
        return record, arrays | {f"weights.{name}": values for name, values in self.weights_.items()}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        model = cls(hidden=_read_hidden(record["hidden"]))
        model.encoder_ = _Encoder(
            kinds=tuple(map(str, record["kinds"])),
            optimizers=tuple(map(str, record["optimizers"])),
            centre=check_numbers(arrays["columns.centre"], shape=(len(COLUMNS),)),
            spread=check_numbers(arrays["columns.spread"], shape=(len(COLUMNS),)),
        )
        model.unrecorded_ = frozenset((str(kind), StepPhase(phase)) for kind, phase in record["unrecorded"])
        model.centre_, model.spread_ = (
            check_numbers(arrays[f"times.{name}"], shape=(2,)) for name in ("centre", "spread")
        )
        model.weights_ = {
            name: check_numbers(arrays[f"weights.{name}"], shape=shape).astype(np.float32)
            for name, shape in _list_weights(model.encoder_.width, model.hidden).items()
        }
        return model

    def _train(
        self, torch: Any, features: "_Features", sequence: "_Sequence", validation: NDArray[np.bool_], truth: Floats
    ) -> None:
        windows = _lay_windows(sequence.rows)
        training = np.flatnonzero(~validation[windows.step])
        held_out = _thin(np.flatnonzero(validation), _VALIDATION_STEPS)
        held_out_windows = _lay_windows([sequence.rows[position] for position in held_out], held_out)
        y = torch.from_numpy(((sequence.times - self.centre_) / self.spread_).astype(np.float32))
        network = _build_network(torch, features.width, self.hidden)
        optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.999))
        random = np.random.default_rng(self.seed)
        end = None if self.max_minutes is None else time.monotonic() + 60 * self.max_minutes
        best, waited = np.inf, 0
        for epoch in range(self.epochs):
            chosen = random.permutation(training)[: self.sample]
            for begin in range(0, len(chosen), BATCH):
                part = windows.take(chosen[begin : begin + BATCH])
                _improve(torch, network, optimizer, features.gather(torch, part), y[part.positions], part.mask)
                if end is not None and time.monotonic() > end:
                    break
            error = self._validate(torch, network, features, held_out_windows, truth[held_out])
            _log.info("epoch %d: %.1f %% error on validation models", epoch + 1, 100 * error)
            waited = 0 if error < best else waited + 1
            if error < best:
                best = error
                self.weights_ = {name: value.numpy().copy() for name, value in network.state_dict().items()}
            if waited >= PATIENCE or (end is not None and time.monotonic() > end):
                break
        self.epochs_ = epoch + 1
        self.validation_error_ = float(best)

    def _validate(self, torch: Any, network: Any, features: "_Features", windows: "_Windows", truth: Floats) -> float:
        """The mean relative error of whole iterations."""
        times = np.maximum(self._predict_windows(torch, network, features, windows), 0.0).sum(axis=1)
        sums = np.bincount(windows.owner, weights=times, minlength=len(truth))
        return float(np.mean(np.abs(sums / truth - 1)))

    def _predict_windows(self, torch: Any, network: Any, features: "_Features", windows: "_Windows") -> Floats:
        """Time and gap at each position, the mean over its windows; equal windows are computed once."""
        first, back = windows.find_distinct(features)
        outputs = np.empty((len(first), WINDOW, 2))
        with torch.inference_mode():
            for begin in range(0, len(first), _PREDICT_BATCH):
                part = windows.take(first[begin : begin + _PREDICT_BATCH])
                outputs[begin : begin + len(part.step)] = network(features.gather(torch, part)).numpy()
        chosen = windows.positions[windows.mask]
        counts = np.bincount(chosen, minlength=len(windows.rows))
        sums = [
            np.bincount(chosen, weights=outputs[back][..., target][windows.mask], minlength=len(counts))
            for target in (0, 1)
        ]
        means: Floats = np.column_stack(sums) / np.maximum(counts, 1)[:, None]
        return np.asarray(means * self.spread_ + self.centre_)


def _build_times(times: Floats, positions: Rows, length: int) -> StepTimes:
    kernel, gap = np.zeros(length), np.zeros(length)
    kernel[positions], gap[positions] = times[:, 0], times[:, 1]
    return StepTimes(iteration_s=float(times.sum()), kernel_s=kernel, gap_s=gap)


# Sequences and windows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequence:
    """The recorded operators of all steps, one after the other."""

    rows: list[Rows]  # of each step
    times: Floats  # two columns: time and gap


def _build_sequence(distinct: DistinctOperators, steps: Sequence[MeasuredStep]) -> _Sequence:
    read = [read_times(step) for step in steps]
    return _Sequence(
        rows=[rows[times.positions] for rows, times in zip(distinct.rows, read, strict=True)],
        times=np.concatenate([np.column_stack([times.kernel_s, times.gap_s]) for times in read]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """The positions of each window. Positions after the end of a short step are masked."""

    rows: Rows  # for each position, its distinct operator
    owner: Rows  # for each position, its step
    step: Rows  # of each window
    positions: Rows  # of each window, twelve
    mask: NDArray[np.bool_]

    def take(self, chosen: Rows) -> "_Windows":
        return _Windows(
            rows=self.rows,
            owner=self.owner,
            step=self.step[chosen],
            positions=self.positions[chosen],
            mask=self.mask[chosen],
        )

    def find_distinct(self, features: "_Features") -> tuple[Rows, Rows]:
        """The first of each set of equal windows, and the set of each window."""
        operators = np.where(self.mask, self.rows[self.positions], -1)
        keys = np.column_stack([operators, features.same_step[self.step]])
        bytes_of = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel()
        _, first, back = np.unique(bytes_of, return_index=True, return_inverse=True)
        return first, back


def _lay_windows(rows: Sequence[Rows], steps: Rows | None = None) -> _Windows:
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
    return _Windows(
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
class _Features:
    """Columns of each distinct operator, and columns that a whole step shares."""

    operators: NDArray[np.float32]
    steps: NDArray[np.float32]
    same_step: Rows  # a number for each distinct row of columns of steps

    @property
    def width(self) -> int:
        return int(self.operators.shape[1] + self.steps.shape[1])

    def gather(self, torch: Any, windows: _Windows) -> Any:
        own = self.operators[windows.rows[windows.positions]]
        shared = np.broadcast_to(self.steps[windows.step][:, None, :], (*own.shape[:2], self.steps.shape[1]))
        return torch.from_numpy(np.concatenate([own, shared], axis=2) * windows.mask[..., None].astype(np.float32))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoder:
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
            spread=_spread(columns),
        )

    def encode(self, distinct: DistinctOperators, workloads: Sequence[Workload]) -> _Features:
        """Features of operators; unknown kinds and optimizers have only zeros."""
        columns = (encode(distinct.operators) - self.centre) / self.spread
        kinds = _mark([operator.kind for operator in distinct.operators], self.kinds)
        batches = np.array([[np.log2(max(workload.batch, 1))] for workload in workloads]).reshape(-1, 1)
        steps = np.hstack([batches, _mark([_optimizer(workload) for workload in workloads], self.optimizers)])
        _, same = np.unique(steps, axis=0, return_inverse=True)
        return _Features(
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


def _find_kind(operator: Operator) -> tuple[str, StepPhase]:
    return operator.kind, operator.phase


def _spread(columns: Floats) -> Floats:
    spread = columns.std(axis=0)
    return np.where(spread > 0, spread, 1.0)


def _find_unrecorded(distinct: DistinctOperators, steps: Sequence[MeasuredStep]) -> frozenset[tuple[str, StepPhase]]:
    """Kinds that were mostly unrecorded in a phase."""
    totals = np.zeros((2, len(distinct.operators)))
    for rows, step in zip(distinct.rows, steps, strict=True):
        hidden = np.isnan(step.kernel_s)
        for position, chosen in enumerate((hidden, ~hidden)):
            totals[position] += np.bincount(rows[chosen], minlength=totals.shape[1])
    balance: Counter[tuple[str, StepPhase]] = Counter()
    for operator, more in zip(distinct.operators, totals[0] - totals[1], strict=True):
        balance[_find_kind(operator)] += more
    return frozenset(kind for kind, more in balance.items() if more > 0)


def _choose_validation(steps: Sequence[MeasuredStep], random: np.random.Generator) -> NDArray[np.bool_]:
    """Whether each step is for validation: the steps of some models, or some steps of the only model."""
    names = np.array([step.workload.name for step in steps])
    known = np.unique(names)
    if len(known) > 1:
        chosen = random.permutation(known)[: max(1, round(_VALIDATION_SHARE * len(known)))]
        return np.isin(names, chosen)
    chosen_steps = np.zeros(len(steps), dtype=bool)
    chosen_steps[random.permutation(len(steps))[: max(1, round(_VALIDATION_SHARE * len(steps)))]] = True
    return chosen_steps


def _thin(positions: Rows, count: int) -> Rows:
    """``count`` positions, evenly spread, because steps of one model are adjacent."""
    return positions[np.unique(np.linspace(0, len(positions) - 1, count).round().astype(np.intp))]


# PyTorch


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as exc:
        raise MissingExtraError("method 'ets' needs: pip install 'foretell[torch]'") from exc
    return torch


def _build_network(torch: Any, width: int, hidden: int) -> Any:
    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(width, hidden, LAYERS, batch_first=True, bidirectional=True)
            self.output = torch.nn.Linear(2 * hidden, 2)

        def forward(self, X: Any) -> Any:
            return self.output(self.lstm(X)[0])

    return Network()


def _read_hidden(value: Any) -> int:
    if not isinstance(value, int) or not 1 <= value <= _MOST_HIDDEN:
        raise ValueError(f"hidden {value!r}, expected 1 to {_MOST_HIDDEN}")
    return value


def _list_weights(width: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the weights of the network."""
    shapes: dict[str, tuple[int, ...]] = {"output.weight": (2, 2 * hidden), "output.bias": (2,)}
    for layer in range(LAYERS):
        for end in ("", "_reverse"):
            name = f"l{layer}{end}"
            shapes[f"lstm.weight_ih_{name}"] = (4 * hidden, 2 * hidden if layer else width)
            shapes[f"lstm.weight_hh_{name}"] = (4 * hidden, hidden)
            shapes[f"lstm.bias_ih_{name}"] = shapes[f"lstm.bias_hh_{name}"] = (4 * hidden,)
    return shapes


def _improve(torch: Any, network: Any, optimizer: Any, X: Any, y: Any, mask: NDArray[np.bool_]) -> None:
    known = torch.from_numpy(mask)
    loss = torch.nn.functional.l1_loss(network(X)[known], y[known])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
