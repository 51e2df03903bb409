"""How long the host takes from one call to the next, and where it waits for the device."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np
from scipy.optimize import nnls

from foretell.core.model_checks import read_number, read_numbers
from foretell.core.workload import Floats, MeasuredStep, Operator, StepPhase, Workload

OperatorName: TypeAlias = str  # kind and phase of an operator

_BEHIND_S = 1e-3  # a device that far behind its host keeps it waiting, if the host asks for a result
_IDLE_S = 60e-6  # between a launch and its kernel where the device had nothing else to do
_OFTEN = 5
_SURE = 0.9


def name_operator(operator: Operator) -> OperatorName:
    """Kind and phase."""
    return f"{operator.phase.value}/{operator.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """Of each operator: the host's time before its launch and within it, and whether it waits for the device first."""

    step_s: Floats
    within_s: Floats  # from its first launch to its last
    waits: np.ndarray
    after_wait_s: Floats  # the part of the step that comes after waiting


@dataclass(slots=True)
class _Seen:
    """Steps between two recorded calls, by what was called and what lay between."""

    steps: dict[tuple[OperatorName, ...], list[float]] = field(default_factory=lambda: defaultdict(list))
    views: dict[tuple[OperatorName, ...], list[int]] = field(default_factory=lambda: defaultdict(list))
    within: dict[OperatorName, list[float]] = field(default_factory=lambda: defaultdict(list))
    latencies: list[float] = field(default_factory=list)
    behind: Counter[OperatorName] = field(default_factory=Counter)
    waited: Counter[OperatorName] = field(default_factory=Counter)
    after_wait: dict[OperatorName, list[float]] = field(default_factory=lambda: defaultdict(list))


class HostModel:
    """A step is what the last call leaves to do and what this one does before its launch; frequent pairs are known."""

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Learn; returns itself."""
        seen = _Seen()
        for step in steps:
            _look(step, seen)
        self.latency_s_ = float(np.median(seen.latencies)) if seen.latencies else 0.0
        self.within_ = {word: max(0.0, float(np.median(gaps))) for word, gaps in seen.within.items()}
        self.after_wait_ = {
            word: float(np.median(seen.after_wait[word]))
            for word, count in seen.behind.items()
            if count >= _OFTEN and seen.waited[word] >= _SURE * count
        }
        self._learn_steps(seen)
        return self

    def _learn_steps(self, seen: _Seen) -> None:
        pairs = {words: float(np.median(values)) for words, values in seen.steps.items()}
        counts = {words: len(values) for words, values in seen.steps.items()}
        views = {words: float(np.median(values)) for words, values in seen.views.items()}
        names = sorted({word for words in pairs for word in words})
        self.before_, self.after_, self.view_s_ = _solve(names, pairs, counts, views)
        self.common_ = {phase.value: _find_common(phase, self.before_, self.after_) for phase in StepPhase}
        self.pairs_ = {
            f"{words[0]} {words[1]}": (pairs[words], views[words])
            for words in pairs
            if len(words) == 2 and counts[words] >= _OFTEN
        }

    def predict(self, workload: Workload) -> HostTimes:
        """The host's times for each operator."""
        words = [name_operator(operator) for operator in workload.operators]
        views = workload.views or (0,) * len(words)
        sizes = [operator.kernels for operator in workload.operators]
        before = zip(["", *words], [1, *sizes], strict=True)
        steps = [self._predict_step(*one, word, count) for one, word, count in zip(before, words, views, strict=False)]
        return HostTimes(
            step_s=np.array(steps),
            within_s=np.array([self.within_.get(word, 0.0) for word in words]),
            waits=np.array([word in self.after_wait_ for word in words], dtype=bool),
            after_wait_s=np.array([self.after_wait_.get(word, 0.0) for word in words]),
        )

    def _predict_step(self, before: OperatorName, size: int, word: OperatorName, views: int) -> float:
        known = self.pairs_.get(f"{before} {word}")
        if known:
            return max(0.0, known[0] + (views - known[1]) * self.view_s_)
        usual = self._find_common(before)[1] * max(size, 1)  # a new word launches all its kernels
        return (
            self.after_.get(before, usual) + self.before_.get(word, self._find_common(word)[0]) + views * self.view_s_
        )

    def _find_common(self, word: OperatorName) -> tuple[float, float]:
        return self.common_.get(word.partition("/")[0], (0.0, 0.0))

    def scale(self, factor: float) -> "HostModel":
        """The same for a host that takes so many times as long."""
        record = self.to_record()
        for name in ("within", "after_wait", "before", "after"):
            record[name] = {word: value * factor for word, value in record[name].items()}
        record["view_s"] *= factor
        record["common"] = {phase: (before * factor, after * factor) for phase, (before, after) in self.common_.items()}
        record["pairs"] = {words: (seconds * factor, views) for words, (seconds, views) in self.pairs_.items()}
        return HostModel.from_record(record)

    def move(self, steps: Sequence[MeasuredStep]) -> "HostModel":
        """The same at half the change of pace that steps on another host show: paces differ by the day, too."""
        shown = HostModel().fit(steps).pairs_
        paces = [shown[words][0] / known[0] for words, known in self.pairs_.items() if words in shown and known[0] > 0]
        return self.scale(float(np.median(paces)) ** 0.5) if paces else self

    def to_record(self) -> dict[str, Any]:
        """All that was learned."""
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
        """The same model again."""
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
    """What a word of a phase takes as a rule, before its launch and after it; of any phase where there is none."""
    words = [word for word in before if word.startswith(f"{phase}/")] or list(before)
    if not words:
        return (0.0, 0.0)
    return float(np.median([before[word] for word in words])), float(np.median([after[word] for word in words]))


def _look(step: MeasuredStep, seen: _Seen) -> None:
    words = [name_operator(operator) for operator in step.workload.operators]
    views = step.workload.views or (0,) * len(words)
    recorded = np.flatnonzero(np.isfinite(step.launch_s))
    launch, start = step.launch_s, step.start_s
    end = start + step.span_s
    for i, j in zip(recorded[:-1].tolist(), recorded[1:].tolist(), strict=True):
        word = words[j]
        if launch[i] + _BEHIND_S < end[i]:  # the device is behind: a step may hold a wait
            seen.behind[word] += 1
            if launch[j] > end[i] - _IDLE_S / 4:
                seen.waited[word] += 1
                seen.after_wait[word].append(launch[j] - end[i])
            continue
        if end[i] > launch[j] + _IDLE_S:
            continue
        key = tuple(words[i : j + 1])
        if len(key) <= 6:
            seen.steps[key].append(launch[j] - launch[i])
            seen.views[key].append(sum(views[i + 1 : j + 1]))
        lag = start[j] - launch[j]
        if lag < _IDLE_S:
            seen.latencies.append(lag)
            seen.within[word].append(step.span_s[j] - step.kernel_s[j])


def _solve(
    names: Sequence[OperatorName],
    pairs: Mapping[tuple[OperatorName, ...], float],
    counts: Mapping[tuple[OperatorName, ...], int],
    views: Mapping[tuple[OperatorName, ...], float],
) -> tuple[dict[OperatorName, float], dict[OperatorName, float], float]:
    """What each word takes before its launch and after it, and what a view takes: least squares, nothing negative."""
    if not pairs:
        return {}, {}, 0.0
    place = {word: number for number, word in enumerate(names)}
    size = len(names)
    matrix = np.zeros((len(pairs) + 2 * size, 2 * size + 1))
    wanted = np.zeros(len(matrix))
    for row, (words, value) in enumerate(pairs.items()):
        weight = np.sqrt(min(counts[words], 1000)) / max(value, 2e-5)  # by share, as errors are counted
        for word in words[:-1]:
            matrix[row, size + place[word]] += weight
        for word in words[1:]:
            matrix[row, place[word]] += weight
        matrix[row, 2 * size] = weight * views[words]
        wanted[row] = weight * value
    common = float(np.median(list(pairs.values()))) / 2
    for number in range(2 * size):  # what hardly any pair tells stays near the common value
        matrix[len(pairs) + number, number] = 0.3 / max(common, 1e-6)
        wanted[len(pairs) + number] = 0.3
    found, _ = nnls(matrix, wanted)
    return (
        {word: float(found[place[word]]) for word in names},
        {word: float(found[size + place[word]]) for word in names},
        float(found[2 * size]),
    )
