"""ETS as it was published: a sliding window over the operators in the order in which they run."""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import MissingExtraError
from foretell.core.workload import Floats, MeasuredStep, Operator, StepPhase, Workload
from foretell.steps._base import StepModel, StepTimes
from foretell.steps.operator_encoding import DistinctOperators, Rows, encode, find_distinct, find_iterations, read_times
from foretell.steps.torch_seed import torch_seed

WINDOW, STRIDE = 12, 4
LAYERS = 4
BATCH = 128
LEARNING_RATE = 1e-3
PATIENCE = 15  # epochs without a better validation
_VALIDATION_SHARE = 0.15  # of the models
_VALIDATION_STEPS = 50
_PREDICT_BATCH = 1024
_log = logging.getLogger(__name__)


class EtsModel(StepModel):
    """A bidirectional LSTM of four layers tells each operator's time and the gap after it from the twelve around it.

    Each operator is its kind, phase, shapes, hyper-parameters, costs, the batch and the optimizer. Windows move by
    four; where they overlap, their answers are averaged; the iteration is the sum of all. Both targets are seconds,
    standardised, no logarithms, and the loss is their mean absolute error: Adam, 128 windows a batch, at most 100
    epochs. An epoch here is a random ``sample`` of the windows, and the weights are those of the epoch with the least
    mean relative error on models of the training set that were set aside.

    As in the original, operators without a record are no part of a sequence: their work is in the gap before them.
    Which ones they are is learned too: kinds that in a phase mostly had none. Kernels that overlap leave gaps below
    zero; they are learned so, but told as none.

    With ``max_minutes`` the end depends on the machine; without, the same steps and seed give the same answers.
    """

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

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Learn; returns itself.

        Raises:
            MissingExtraError: if PyTorch is not installed.
        """
        torch = _import_torch()
        distinct = find_distinct(step.workload for step in steps)
        self.words_ = _Words.learn(distinct, steps)
        self.unrecorded_ = _find_unrecorded(distinct, steps)
        sequence = _build_sequence(distinct, steps)
        self.centre_, self.spread_ = sequence.times.mean(axis=0), _spread(sequence.times)
        features = self.words_.encode(distinct, [step.workload for step in steps])
        aside = _set_aside(steps, np.random.default_rng(self.seed))
        with torch_seed(seed=self.seed, threads=self.threads):
            self._train(torch, features, sequence, aside, find_iterations(steps))
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step.

        Raises:
            MissingExtraError: if PyTorch is not installed.
        """
        torch = _import_torch()
        distinct = find_distinct(workloads)
        features = self.words_.encode(distinct, workloads)
        hidden = np.array([_word(operator) in self.unrecorded_ for operator in distinct.operators], dtype=bool)
        places = [np.flatnonzero(~hidden[rows]) for rows in distinct.rows]
        rows = [rows[kept] for rows, kept in zip(distinct.rows, places, strict=True)]
        with torch_seed(seed=self.seed, threads=self.threads):
            network = _build_network(torch, features.width, self.hidden)
            network.load_state_dict({name: torch.from_numpy(values) for name, values in self.weights_.items()})
            told = np.maximum(self._tell(torch, network, features, _lay_windows(rows)), 0.0)
        ends = np.cumsum([len(kept) for kept in places])
        return [
            _tell_step(told[end - len(kept) : end], kept, len(workload.operators))
            for workload, kept, end in zip(workloads, places, ends, strict=True)
        ]

    def _train(
        self, torch: Any, features: "_Features", sequence: "_Sequence", aside: NDArray[np.bool_], truth: Floats
    ) -> None:
        windows = _lay_windows(sequence.rows)
        learned = np.flatnonzero(~aside[windows.step])
        judged = _thin(np.flatnonzero(aside), _VALIDATION_STEPS)
        judged_windows = _lay_windows([sequence.rows[place] for place in judged], judged)
        y = torch.from_numpy(((sequence.times - self.centre_) / self.spread_).astype(np.float32))
        network = _build_network(torch, features.width, self.hidden)
        optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.999))
        random = np.random.default_rng(self.seed)
        end = None if self.max_minutes is None else time.monotonic() + 60 * self.max_minutes
        best, waited = np.inf, 0
        for epoch in range(self.epochs):
            chosen = random.permutation(learned)[: self.sample]
            for begin in range(0, len(chosen), BATCH):
                part = windows.take(chosen[begin : begin + BATCH])
                _improve(torch, network, optimizer, features.gather(torch, part), y[part.places], part.mask)
                if end is not None and time.monotonic() > end:
                    break
            error = self._judge(torch, network, features, judged_windows, truth[judged])
            _log.info("epoch %d: %.1f %% on models set aside", epoch + 1, 100 * error)
            waited = 0 if error < best else waited + 1
            if error < best:
                best = error
                self.weights_ = {name: value.numpy().copy() for name, value in network.state_dict().items()}
            if waited >= PATIENCE or (end is not None and time.monotonic() > end):
                break
        self.epochs_ = epoch + 1
        self.validation_error_ = float(best)

    def _judge(self, torch: Any, network: Any, features: "_Features", windows: "_Windows", truth: Floats) -> float:
        """The mean relative error of whole iterations."""
        told = np.maximum(self._tell(torch, network, features, windows), 0.0).sum(axis=1)
        sums = np.bincount(windows.owner, weights=told, minlength=len(truth))
        return float(np.mean(np.abs(sums / truth - 1)))

    def _tell(self, torch: Any, network: Any, features: "_Features", windows: "_Windows") -> Floats:
        """Time and gap of each place, the mean over the windows that have it; equal windows are asked once."""
        first, back = windows.find_distinct(features)
        answers = np.empty((len(first), WINDOW, 2))
        with torch.inference_mode():
            for begin in range(0, len(first), _PREDICT_BATCH):
                part = windows.take(first[begin : begin + _PREDICT_BATCH])
                answers[begin : begin + len(part.step)] = network(features.gather(torch, part)).numpy()
        chosen = windows.places[windows.mask]
        counts = np.bincount(chosen, minlength=len(windows.rows))
        sums = [
            np.bincount(chosen, weights=answers[back][..., target][windows.mask], minlength=len(counts))
            for target in (0, 1)
        ]
        means: Floats = np.column_stack(sums) / np.maximum(counts, 1)[:, None]
        return np.asarray(means * self.spread_ + self.centre_)


def _tell_step(told: Floats, places: Rows, length: int) -> StepTimes:
    kernel, gap = np.zeros(length), np.zeros(length)
    kernel[places], gap[places] = told[:, 0], told[:, 1]
    return StepTimes(iteration_s=float(told.sum()), kernel_s=kernel, gap_s=gap)


# Sequences and windows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequence:
    """Recorded operators of all steps, one after the other."""

    rows: list[Rows]  # of each step
    times: Floats  # two columns: time and gap


def _build_sequence(distinct: DistinctOperators, steps: Sequence[MeasuredStep]) -> _Sequence:
    read = [read_times(step) for step in steps]
    return _Sequence(
        rows=[rows[times.places] for rows, times in zip(distinct.rows, read, strict=True)],
        times=np.concatenate([np.column_stack([times.kernel_s, times.gap_s]) for times in read]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """Which places each window has. The places of a step that is shorter than a window are masked behind its end."""

    rows: Rows  # of all places: which distinct operator
    owner: Rows  # of all places: which of the steps that were given
    step: Rows  # of each window
    places: Rows  # of each window, twelve
    mask: NDArray[np.bool_]

    def take(self, chosen: Rows) -> "_Windows":
        return _Windows(
            rows=self.rows,
            owner=self.owner,
            step=self.step[chosen],
            places=self.places[chosen],
            mask=self.mask[chosen],
        )

    def find_distinct(self, features: "_Features") -> tuple[Rows, Rows]:
        """The first of each set of equal windows, and which set each window is of."""
        operators = np.where(self.mask, self.rows[self.places], -1)
        keys = np.column_stack([operators, features.same_step[self.step]])
        bytes_of = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel()
        _, first, back = np.unique(bytes_of, return_index=True, return_inverse=True)
        return first, back


def _lay_windows(rows: Sequence[Rows], steps: Rows | None = None) -> _Windows:
    """Windows over each step; the last one ends with its step."""
    lengths = np.array([len(part) for part in rows], dtype=np.intp)
    ends = np.cumsum(lengths)
    begins, owners = [], []
    for number, (length, end) in enumerate(zip(lengths.tolist(), ends.tolist(), strict=True)):
        last = max(length - WINDOW, 0)
        starts = [*range(0, last, STRIDE), last] if length else []
        begins.append(np.array(starts, dtype=np.intp) + end - length)
        owners.append(np.full(len(starts), number, dtype=np.intp))
    begin, owner = _join(begins), _join(owners)
    places = begin[:, None] + np.arange(WINDOW)
    limit = ends[owner][:, None] if len(owner) else np.zeros((0, 1), dtype=np.intp)
    return _Windows(
        rows=_join(rows),
        owner=np.repeat(np.arange(len(rows)), lengths),
        step=owner if steps is None else steps[owner],
        places=np.minimum(places, limit - 1),
        mask=places < limit,
    )


def _join(parts: Sequence[Rows]) -> Rows:
    return np.concatenate([*parts, np.empty(0, dtype=np.intp)])


# Words and numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Features:
    """Columns of each distinct operator, and those that a whole step shares."""

    operators: NDArray[np.float32]
    steps: NDArray[np.float32]
    same_step: Rows  # a number for each distinct row of the steps' columns

    @property
    def width(self) -> int:
        return int(self.operators.shape[1] + self.steps.shape[1])

    def gather(self, torch: Any, windows: _Windows) -> Any:
        own = self.operators[windows.rows[windows.places]]
        shared = np.broadcast_to(self.steps[windows.step][:, None, :], (*own.shape[:2], self.steps.shape[1]))
        return torch.from_numpy(np.concatenate([own, shared], axis=2) * windows.mask[..., None].astype(np.float32))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """Which kinds and optimizers are known, and how large the columns are."""

    kinds: tuple[str, ...]
    optimizers: tuple[str, ...]
    centre: Floats
    spread: Floats

    @classmethod
    def learn(cls, distinct: DistinctOperators, steps: Sequence[MeasuredStep]) -> Self:
        columns = encode(distinct.operators)
        return cls(
            kinds=tuple(sorted({operator.kind for operator in distinct.operators})),
            optimizers=tuple(sorted({_optimizer(step.workload) for step in steps})),
            centre=columns.mean(axis=0),
            spread=_spread(columns),
        )

    def encode(self, distinct: DistinctOperators, workloads: Sequence[Workload]) -> _Features:
        """An unknown kind or optimizer is none of the known ones."""
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
    """One column for each known word."""
    places = {word: place for place, word in enumerate(known)}
    marks = np.zeros((len(values), len(known)))
    for row, value in enumerate(values):
        if value in places:
            marks[row, places[value]] = 1.0
    return marks


def _optimizer(workload: Workload) -> str:
    return workload.settings.get("optimizer", "")


def _word(operator: Operator) -> tuple[str, StepPhase]:
    return operator.kind, operator.phase


def _spread(columns: Floats) -> Floats:
    spread = columns.std(axis=0)
    return np.where(spread > 0, spread, 1.0)


def _find_unrecorded(distinct: DistinctOperators, steps: Sequence[MeasuredStep]) -> frozenset[tuple[str, StepPhase]]:
    """Kinds that in a phase were recorded less often than not."""
    totals = np.zeros((2, len(distinct.operators)))
    for rows, step in zip(distinct.rows, steps, strict=True):
        hidden = np.isnan(step.kernel_s)
        for place, chosen in enumerate((hidden, ~hidden)):
            totals[place] += np.bincount(rows[chosen], minlength=totals.shape[1])
    balance: Counter[tuple[str, StepPhase]] = Counter()
    for operator, more in zip(distinct.operators, totals[0] - totals[1], strict=True):
        balance[_word(operator)] += more
    return frozenset(word for word, more in balance.items() if more > 0)


def _set_aside(steps: Sequence[MeasuredStep], random: np.random.Generator) -> NDArray[np.bool_]:
    """Steps of some models, for validation; of one model, some of its steps."""
    names = np.array([step.workload.name for step in steps])
    known = np.unique(names)
    if len(known) > 1:
        chosen = random.permutation(known)[: max(1, round(_VALIDATION_SHARE * len(known)))]
        return np.isin(names, chosen)
    aside = np.zeros(len(steps), dtype=bool)
    aside[random.permutation(len(steps))[: max(1, round(_VALIDATION_SHARE * len(steps)))]] = True
    return aside


def _thin(places: Rows, count: int) -> Rows:
    """So many, evenly spread: steps of one model stand together."""
    return places[np.unique(np.linspace(0, len(places) - 1, count).round().astype(np.intp))]


# PyTorch


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as exc:
        raise MissingExtraError("model 'ets' needs: pip install 'foretell[torch]'") from exc
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


def _improve(torch: Any, network: Any, optimizer: Any, X: Any, y: Any, mask: NDArray[np.bool_]) -> None:
    known = torch.from_numpy(mask)
    loss = torch.nn.functional.l1_loss(network(X)[known], y[known])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
