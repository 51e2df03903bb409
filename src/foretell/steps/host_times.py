"""Predicts the time of the host between launches, and where it waits for the device."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np

from foretell.core.model_files import read_number, read_numbers
from foretell.core.workload import Floats, MeasuredStep, Operator, StepPhase, Workload

OperatorName: TypeAlias = str  # phase and kind of an operator

_BEHIND_S = 1e-3  # if the device is this far behind, the host waits when it needs a result
_IDLE_S = 60e-6  # longest time between a launch and its kernel on an idle device
_FEWEST = 5  # occurrences of a pair of operators that is predicted by its own median
_WAIT_SHARE = 0.9  # of the occurrences of an operator that waits for the device


def name_operator(operator: Operator) -> OperatorName:
    """The phase and kind of an operator as one name."""
    return f"{operator.phase.value}/{operator.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """For each operator, the time of the host before and within its launch, and whether it waits for the device."""

    step_s: Floats
    within_s: Floats  # from its first to its last launch
    waits: np.ndarray
    after_wait_s: Floats  # the part of step_s after the wait


@dataclass(slots=True)
class _Recorded:
    """Recorded times of the host between two launches, by the operators from one to the other."""

    steps: dict[tuple[OperatorName, ...], list[float]] = field(default_factory=lambda: defaultdict(list))
    views: dict[tuple[OperatorName, ...], list[int]] = field(default_factory=lambda: defaultdict(list))
    within: dict[OperatorName, list[float]] = field(default_factory=lambda: defaultdict(list))
    latencies: list[float] = field(default_factory=list)
    behind: Counter[OperatorName] = field(default_factory=Counter)
    waited: Counter[OperatorName] = field(default_factory=Counter)
    after_wait: dict[OperatorName, list[float]] = field(default_factory=lambda: defaultdict(list))


class HostModel:
    """The time between two launches: after the first plus before the second. Frequent pairs have their own median."""

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Fit the model; returns itself."""
        recorded = _Recorded()
        for step in steps:
            _read(step, recorded)
        self.latency_s_ = float(np.median(recorded.latencies)) if recorded.latencies else 0.0
        self.within_ = {name: max(0.0, float(np.median(gaps))) for name, gaps in recorded.within.items()}
        self.after_wait_ = {
            name: float(np.median(recorded.after_wait[name]))
            for name, count in recorded.behind.items()
            if count >= _FEWEST and recorded.waited[name] >= _WAIT_SHARE * count
        }
        self._fit_steps(recorded)
        return self

    def _fit_steps(self, recorded: _Recorded) -> None:
        pairs = {names: float(np.median(values)) for names, values in recorded.steps.items()}
        counts = {names: len(values) for names, values in recorded.steps.items()}
        views = {names: float(np.median(values)) for names, values in recorded.views.items()}
        known = sorted({name for names in pairs for name in names})
        self.before_, self.after_, self.view_s_ = _solve(known, pairs, counts, views)
        self.common_ = {phase.value: _find_common(phase, self.before_, self.after_) for phase in StepPhase}
        self.pairs_ = {
            f"{names[0]} {names[1]}": (pairs[names], views[names])
            for names in pairs
            if len(names) == 2 and counts[names] >= _FEWEST
        }

    def predict(self, workload: Workload) -> HostTimes:
        """The times of the host for each operator."""
        names = [name_operator(operator) for operator in workload.operators]
        views = workload.views or (0,) * len(names)
        sizes = [operator.kernels for operator in workload.operators]
        before = zip(["", *names], [1, *sizes], strict=True)
        steps = [self._predict_step(*one, name, count) for one, name, count in zip(before, names, views, strict=False)]
        return HostTimes(
            step_s=np.array(steps),
            within_s=np.array([self.within_.get(name, 0.0) for name in names]),
            waits=np.array([name in self.after_wait_ for name in names], dtype=bool),
            after_wait_s=np.array([self.after_wait_.get(name, 0.0) for name in names]),
        )

    def _predict_step(self, before: OperatorName, size: int, name: OperatorName, views: int) -> float:
        known = self.pairs_.get(f"{before} {name}")
        if known:
            return max(0.0, known[0] + (views - known[1]) * self.view_s_)
        usual = self._find_common(before)[1] * max(size, 1)  # an unknown operator launches all its kernels
        return (
            self.after_.get(before, usual) + self.before_.get(name, self._find_common(name)[0]) + views * self.view_s_
        )

    def _find_common(self, name: OperatorName) -> tuple[float, float]:
        return self.common_.get(name.partition("/")[0], (0.0, 0.0))

    def scale(self, factor: float) -> "HostModel":
        """The model of a host that is slower by this factor."""
        record = self.to_record()
        for name in ("within", "after_wait", "before", "after"):
            record[name] = {key: value * factor for key, value in record[name].items()}
        record["view_s"] *= factor
        record["common"] = {phase: (before * factor, after * factor) for phase, (before, after) in self.common_.items()}
        record["pairs"] = {names: (seconds * factor, views) for names, (seconds, views) in self.pairs_.items()}
        return HostModel.from_record(record)

    def transfer(self, steps: Sequence[MeasuredStep]) -> "HostModel":
        """The model of another host, scaled by the square root of its ratio: the speed of a host also varies by day."""
        other = HostModel().fit(steps).pairs_
        ratios = [other[pair][0] / known[0] for pair, known in self.pairs_.items() if pair in other and known[0] > 0]
        return self.scale(float(np.median(ratios)) ** 0.5) if ratios else self

    def to_record(self) -> dict[str, Any]:
        """The fitted model as JSON values."""
        return {
            "latency_s": self.latency_s_,
            "view_s": self.view_s_,
            "common": self.common_,
            "within": self.within_,
            "after_wait": self.after_wait_,
            "before": self.before_,
            "after": self.after_,
            "pairs": self.pairs_,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """The model of a record."""
        model = cls()
        model.latency_s_, model.view_s_ = read_number(record["latency_s"]), read_number(record["view_s"])
        model.common_ = {phase: _read_pair(values) for phase, values in record["common"].items()}
        model.within_, model.after_wait_ = read_numbers(record["within"]), read_numbers(record["after_wait"])
        model.before_, model.after_ = read_numbers(record["before"]), read_numbers(record["after"])
        model.pairs_ = {name: _read_pair(values) for name, values in record["pairs"].items()}
        return model


def _read_pair(values: Sequence[Any]) -> tuple[float, float]:
    return read_number(values[0]), read_number(values[1])


def _find_common(
    phase: str, before: Mapping[OperatorName, float], after: Mapping[OperatorName, float]
) -> tuple[float, float]:
    """The median time of an operator of a phase, before and after its launch; of any phase if there is none."""
    names = [name for name in before if name.startswith(f"{phase}/")] or list(before)
    if not names:
        return (0.0, 0.0)
    return float(np.median([before[name] for name in names])), float(np.median([after[name] for name in names]))


def _read(step: MeasuredStep, found: _Recorded) -> None:
    names = [name_operator(operator) for operator in step.workload.operators]
    views = step.workload.views or (0,) * len(names)
    recorded = np.flatnonzero(np.isfinite(step.launch_s))
    launch, start = step.launch_s, step.start_s
    end = start + step.span_s
    for i, j in zip(recorded[:-1].tolist(), recorded[1:].tolist(), strict=True):
        name = names[j]
        if launch[i] + _BEHIND_S < end[i]:  # the device is behind: the host may wait here
            found.behind[name] += 1
            if launch[j] > end[i] - _IDLE_S / 4:
                found.waited[name] += 1
                found.after_wait[name].append(launch[j] - end[i])
            continue
        if end[i] > launch[j] + _IDLE_S:
            continue
        key = tuple(names[i : j + 1])
        if len(key) <= 6:
            found.steps[key].append(launch[j] - launch[i])
            found.views[key].append(sum(views[i + 1 : j + 1]))
        lag = start[j] - launch[j]
        if lag < _IDLE_S:
            found.latencies.append(lag)
            found.within[name].append(step.span_s[j] - step.kernel_s[j])


def _solve(
    names: Sequence[OperatorName],
    pairs: Mapping[tuple[OperatorName, ...], float],
    counts: Mapping[tuple[OperatorName, ...], int],
    views: Mapping[tuple[OperatorName, ...], float],
) -> tuple[dict[OperatorName, float], dict[OperatorName, float], float]:
    """The time of each operator before and after its launch, and of a view, by non-negative least squares."""
    from scipy.optimize import nnls  # takes long to import, and predictions do not need it

    if not pairs:
        return {}, {}, 0.0
    column = {name: number for number, name in enumerate(names)}
    size = len(names)
    matrix = np.zeros((len(pairs) + 2 * size, 2 * size + 1))
    target = np.zeros(len(matrix))
    for row, (pair, value) in enumerate(pairs.items()):
        weight = np.sqrt(min(counts[pair], 1000)) / max(value, 2e-5)  # relative errors count
        for name in pair[:-1]:
            matrix[row, size + column[name]] += weight
        for name in pair[1:]:
            matrix[row, column[name]] += weight
        matrix[row, 2 * size] = weight * views[pair]
        target[row] = weight * value
    common = float(np.median(list(pairs.values()))) / 2
    for number in range(2 * size):  # operators of few pairs stay near the common value
        matrix[len(pairs) + number, number] = 0.3 / max(common, 1e-6)
        target[len(pairs) + number] = 0.3
    found, _ = nnls(matrix, target)
    return (
        {name: float(found[column[name]]) for name in names},
        {name: float(found[size + column[name]]) for name in names},
        float(found[2 * size]),
    )
