"""Simple models of training steps, for comparison: a regression of operators, a roofline, Paleo, and step totals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.array_trees import ArrayTrees
from foretell.core.devices import Device
from foretell.core.model_files import check_numbers, read_number, read_positive
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

_Kind: TypeAlias = tuple[str, StepPhase]

_SHORTEST_S = 1e-6  # the logarithm of a shorter time would be mostly noise
_PUBLIC_SHARE = 0.5  # of the public figures of a device that operators reach
_LAUNCH_S = 1e-5  # of an operator, where nothing was measured
_OTHERS = 0  # the position of kinds that were never measured


class OperatorRegressionModel(StepModel):
    """A regression for each kind of operator, as in Habitat and Justus: boosted trees on log time and log gap.

    The trees are fitted on distinct operators, each with its mean time. The mean of logarithms lies below the logarithm
    of the mean, and a step is a sum: predictions are raised by the mean ratio of the fitted times. Kinds with few or no
    measurements are predicted by trees fitted on all kinds.
    """

    kind: ClassVar[str] = "regression"

    def __init__(
        self, trees: int = 200, learning_rate: float = 0.08, min_leaf: int = 5, fewest: int = 40, seed: int = 0
    ) -> None:
        self.trees = trees
        self.learning_rate = learning_rate
        self.min_leaf = min_leaf
        self.fewest = fewest
        self.seed = seed

    @classmethod
    def build(cls, device: Device, *, seed: int = 0) -> Self:
        return cls(seed=seed)

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        distinct = find_distinct(step.workload for step in steps)
        kernel, gap = _average(distinct, steps)
        X = encode(distinct.operators)
        self.kernels_ = self._fit_kinds(distinct, X, kernel)
        self.gaps_ = self._fit_kinds(distinct, X, gap)
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        distinct = find_distinct(workloads)
        X = encode(distinct.operators)
        kernel = _predict_kinds(self.kernels_, distinct, X)
        gap = _predict_kinds(self.gaps_, distinct, X)
        return [
            StepTimes(iteration_s=float(kernel[rows].sum() + gap[rows].sum()), kernel_s=kernel[rows], gap_s=gap[rows])
            for rows in distinct.rows
        ]

    def _fit_kinds(self, distinct: DistinctOperators, X: Floats, times: Floats) -> "dict[_Kind | None, _Trees]":
        known = ~np.isnan(times)
        y = np.log(np.maximum(times, _SHORTEST_S))
        models: dict[_Kind | None, _Trees] = {None: self._fit(X[known], y[known])}
        for kind, rows in _group(distinct).items():
            rows = rows[known[rows]]
            if len(rows) >= self.fewest:
                models[kind] = self._fit(X[rows], y[rows])
        return models

    def _fit(self, X: Floats, y: Floats) -> "_Trees":
        model = _fit_trees(X, y, self)
        return _Trees(model=model, shift=float(np.log(np.mean(np.exp(y - model.predict(X))))))

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        record: dict[str, Any] = {}
        arrays: dict[str, NDArray[Any]] = {}
        for target, models in (("kernel", self.kernels_), ("gap", self.gaps_)):
            record[target] = [[*(kind or ("", "")), trees.shift] for kind, trees in models.items()]
            for number, trees in enumerate(models.values()):
                arrays |= {f"{target}.{number}.{name}": each for name, each in trees.model.to_arrays().items()}
        return record, arrays

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        model = cls()
        model.kernels_, model.gaps_ = (_read_kinds(record[target], arrays, target) for target in ("kernel", "gap"))
        return model


def _read_kinds(
    rows: Sequence[Sequence[Any]], arrays: Mapping[str, NDArray[Any]], target: str
) -> "dict[_Kind | None, _Trees]":
    found: dict[_Kind | None, _Trees] = {}
    for number, (kind, phase, shift) in enumerate(rows):
        trees = ArrayTrees.from_arrays(_select(arrays, f"{target}.{number}."), columns=len(COLUMNS))
        key = (str(kind), StepPhase(phase)) if kind else None
        found[key] = _Trees(model=trees, shift=read_number(shift))
    if None not in found:
        raise ValueError("no trees of all kinds")
    return found


def _select(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def _fit_trees(X: Floats, y: Floats, settings: "OperatorRegressionModel | TotalsModel") -> ArrayTrees:
    from sklearn.ensemble import HistGradientBoostingRegressor

    fitted = HistGradientBoostingRegressor(
        max_iter=settings.trees,
        learning_rate=settings.learning_rate,
        min_samples_leaf=settings.min_leaf,
        early_stopping=False,
        random_state=settings.seed,
    ).fit(X, y)
    return ArrayTrees.from_boosting(fitted, dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trees:
    model: ArrayTrees
    shift: float

    def predict(self, X: Floats) -> Floats:
        return np.exp(self.model.predict(X) + self.shift)


def _average(distinct: DistinctOperators, steps: Sequence[MeasuredStep]) -> tuple[Floats, Floats]:
    """The mean time of each distinct operator and of the gap after it; NaN where none was recorded."""
    sums, counts = np.zeros((2, len(distinct.operators))), np.zeros((2, len(distinct.operators)))
    for rows, step in zip(distinct.rows, steps, strict=True):
        times = read_times(step)
        for target, values, chosen in (
            (0, times.kernel_s, slice(None)),
            (1, np.maximum(times.gap_s, 0.0), times.alone),
        ):
            positions = rows[times.positions][chosen]
            np.add.at(sums[target], positions, values[chosen])
            np.add.at(counts[target], positions, 1.0)
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    return means[0], means[1]


def _predict_kinds(models: dict[_Kind | None, _Trees], distinct: DistinctOperators, X: Floats) -> Floats:
    seconds = np.zeros(len(X))
    for kind, rows in _group(distinct).items():
        seconds[rows] = models.get(kind, models[None]).predict(X[rows])
    return seconds


def _group(distinct: DistinctOperators) -> dict[_Kind | None, Rows]:
    """The positions of the operators of each kind and phase."""
    groups: dict[_Kind | None, list[int]] = {}
    for position, operator in enumerate(distinct.operators):
        groups.setdefault(_find_kind(operator), []).append(position)
    return {kind: np.array(positions, dtype=np.intp) for kind, positions in groups.items()}


def _find_kind(operator: Operator) -> _Kind:
    return operator.kind, operator.phase


class RooflineModel(StepModel):
    """A roofline: each operator takes the longer of computing and moving, plus a launch that is the same for all.

    Three numbers are fitted, by least squares on the relative errors of iterations: operations per second, bytes per
    second, and the launch. Without measurements they are half of the public figures of the device, and 10 µs.
    """

    kind: ClassVar[str] = "roofline"

    @classmethod
    def from_figures(cls, device: Device) -> Self:
        """A roofline by the public figures of the device."""
        model = cls()
        model.flops_per_s_ = _PUBLIC_SHARE * device.peak_flops
        model.bytes_per_s_ = _PUBLIC_SHARE * device.bandwidth_bytes
        model.launch_s_ = _LAUNCH_S
        return model

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        from scipy.optimize import least_squares

        distinct = find_distinct(step.workload for step in steps)
        counts, times = distinct.count(), find_iterations(steps)
        flops, moved = distinct.flops, distinct.bytes_moved

        def miss(logs: Floats) -> Floats:
            speed, bandwidth, launch = np.exp(logs)
            predicted = counts @ (np.maximum(flops / speed, moved / bandwidth) + launch)
            return np.asarray(np.log(predicted / times))

        # No step is faster than its device: the best of all steps is where the search starts.
        best = [np.max(counts @ flops / times), np.max(counts @ moved / times), np.min(times / counts.sum(axis=1))]
        found = least_squares(miss, np.log(np.maximum(best, 1e-12)), loss="soft_l1")
        self.flops_per_s_, self.bytes_per_s_, self.launch_s_ = map(float, np.exp(found.x))
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        distinct = find_distinct(workloads)
        kernel = self._bound(distinct)
        return [_add_launches(kernel[rows], self.launch_s_) for rows in distinct.rows]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        record = {"flops_per_s": self.flops_per_s_, "bytes_per_s": self.bytes_per_s_, "launch_s": self.launch_s_}
        return record, {}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        model = cls()
        model.flops_per_s_, model.bytes_per_s_ = (
            read_positive(record[name]) for name in ("flops_per_s", "bytes_per_s")
        )
        model.launch_s_ = read_positive(record["launch_s"])
        return model

    def _bound(self, distinct: DistinctOperators) -> Floats:
        return np.maximum(distinct.flops / self.flops_per_s_, distinct.bytes_moved / self.bytes_per_s_)


def _add_launches(kernel: Floats, launch: float) -> StepTimes:
    gap = np.full(len(kernel), launch)
    return StepTimes(iteration_s=float(kernel.sum() + gap.sum()), kernel_s=kernel, gap_s=gap)


class PaleoModel(StepModel):
    """Paleo: computing, then moving; operations over the speed of their kind, bytes over the bandwidth of the device.

    The original multiplies the peak by a "platform percent of peak". Here both are one number for each kind, fitted
    with the bandwidth on whole iterations by non-negative least squares of relative errors. There are no launches. A
    kind that was never measured has the speed of all kinds together. Without measurements, all kinds have the peak of
    the device.
    """

    kind: ClassVar[str] = "paleo"

    @classmethod
    def from_figures(cls, device: Device) -> Self:
        """Paleo by the public figures of the device, at 100 percent of peak: the default of its authors' program."""
        model = cls()
        model.positions_ = {}
        model.s_per_flop_, model.s_per_byte_ = np.array([1 / device.peak_flops]), 1 / device.bandwidth_bytes
        return model

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        distinct = find_distinct(step.workload for step in steps)
        kinds = sorted({operator.kind for operator in distinct.operators})
        self.positions_ = {kind: position for position, kind in enumerate(kinds, start=1)}
        counts, times = distinct.count(), find_iterations(steps)
        moved = counts @ distinct.bytes_moved
        computed = np.zeros((len(steps), len(kinds) + 1))
        for position in self.positions_.values():
            computed[:, position] = counts @ np.where(self._find_positions(distinct) == position, distinct.flops, 0.0)
        together = _solve(np.column_stack([computed.sum(axis=1), moved]), times)
        separate = _solve(np.column_stack([computed[:, 1:], moved]), times)
        self.s_per_flop_ = np.array([together[0], *separate[:-1]])
        self.s_per_byte_ = float(separate[-1])
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        distinct = find_distinct(workloads)
        slowness = self.s_per_flop_[self._find_positions(distinct)]
        kernel = slowness * distinct.flops + self.s_per_byte_ * distinct.bytes_moved
        return [
            StepTimes(iteration_s=float(kernel[rows].sum()), kernel_s=kernel[rows], gap_s=np.zeros(len(rows)))
            for rows in distinct.rows
        ]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"kinds": list(self.positions_), "s_per_byte": self.s_per_byte_}, {"s_per_flop": self.s_per_flop_}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        model = cls()
        model.positions_ = {str(kind): position for position, kind in enumerate(record["kinds"], start=1)}
        model.s_per_flop_ = check_numbers(arrays["s_per_flop"], shape=(len(model.positions_) + 1,))
        model.s_per_byte_ = read_number(record["s_per_byte"])
        return model

    def _find_positions(self, distinct: DistinctOperators) -> Rows:
        return np.array([self.positions_.get(operator.kind, _OTHERS) for operator in distinct.operators], dtype=np.intp)


def _solve(work: Floats, times: Floats) -> Floats:
    """Seconds for each unit of work, by least squares of relative errors."""
    from scipy.optimize import nnls

    scale = np.maximum(work.max(axis=0), 1e-300)
    found, _ = nnls(work / scale / times[:, None], np.ones(len(times)))
    return np.asarray(found / scale)


class TotalsModel(StepModel):
    """A regression of whole steps, as in DNNPerf: boosted trees on log(time of the iteration / bytes moved).

    Columns are the operations, bytes, parameters and batch of a step, and its number of operators of each kind and
    phase. The time is divided among the operators by what they compute and move.
    """

    kind: ClassVar[str] = "totals"

    def __init__(self, trees: int = 200, learning_rate: float = 0.08, min_leaf: int = 10, seed: int = 0) -> None:
        self.trees = trees
        self.learning_rate = learning_rate
        self.min_leaf = min_leaf
        self.seed = seed

    @classmethod
    def build(cls, device: Device, *, seed: int = 0) -> Self:
        return cls(seed=seed)

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        workloads = [step.workload for step in steps]
        distinct = find_distinct(workloads)
        kinds = sorted({_find_kind(operator) for operator in distinct.operators})
        self.positions_ = {kind: position for position, kind in enumerate(kinds, start=1)}
        moved = distinct.count() @ distinct.bytes_moved
        times = find_iterations(steps)
        self.model_ = _fit_trees(self._encode(workloads, distinct), np.log(times / np.maximum(moved, 1.0)), self)
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        if not workloads:
            return []
        distinct = find_distinct(workloads)
        moved = distinct.count() @ distinct.bytes_moved
        times = np.exp(self.model_.predict(self._encode(workloads, distinct))) * np.maximum(moved, 1.0)
        flops, read = distinct.flops, distinct.bytes_moved
        return [
            StepTimes(
                iteration_s=float(time), kernel_s=time * _share(flops[rows], read[rows]), gap_s=np.zeros(len(rows))
            )
            for time, rows in zip(times, distinct.rows, strict=True)
        ]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"kinds": [[kind, phase.value] for kind, phase in self.positions_]}, self.model_.to_arrays()

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        model = cls()
        kinds = [(str(kind), StepPhase(phase)) for kind, phase in record["kinds"]]
        model.positions_ = {kind: position for position, kind in enumerate(kinds, start=1)}
        model.model_ = ArrayTrees.from_arrays(arrays, columns=len(kinds) + 1 + 2 * len(StepPhase) + 3)
        return model

    def _encode(self, workloads: Sequence[Workload], distinct: DistinctOperators) -> Floats:
        positions = [self.positions_.get(_find_kind(operator), _OTHERS) for operator in distinct.operators]
        kinds = distinct.count(np.array(positions, dtype=np.intp), len(self.positions_) + 1).toarray()
        return np.column_stack(
            [
                np.log1p(kinds),
                *(np.log1p(total) for total in _sum_phases(distinct)),
                np.log([len(rows) + 1 for rows in distinct.rows]),
                np.log2([max(workload.batch, 1) for workload in workloads]),
                np.log1p([workload.parameters for workload in workloads]),
            ]
        )


def _sum_phases(distinct: DistinctOperators) -> list[Floats]:
    """Operations and bytes of each phase."""
    counts = distinct.count()
    phases = np.array([operator.phase for operator in distinct.operators])
    return [
        np.asarray(counts @ np.where(phases == phase, values, 0.0))
        for phase in StepPhase
        for values in (distinct.flops, distinct.bytes_moved)
    ]


def _share(flops: Floats, moved: Floats) -> Floats:
    """The share of each operator in the step: half by what it computes, half by what it moves."""
    parts = [values / values.sum() for values in (flops, moved) if values.sum() > 0]
    return np.mean(parts, axis=0) if parts else np.full(len(flops), 1 / max(len(flops), 1))
