"""For devices that are their own host: what an operator takes, and what lies between two, add up to the step."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.devices import Device, read_device
from foretell.core.model_checks import read_number, read_numbers, read_positive
from foretell.core.workload import Floats, MeasuredStep, Operator, Workload
from foretell.steps._base import StepModel, StepTimes
from foretell.steps.cpu_times import Call, CallModel, list_calls
from foretell.steps.host_times import HostTimes, name_operator
from foretell.steps.operator_encoding import read_times
from foretell.steps.profile_factors import ExpectedTimes, apply_factors, compare_profile

_END = "end"  # of a step
_OFTEN = 3  # times a pair of words was seen to be known
_ENOUGH = 20  # steps of which one half can tell the other


class SerialModel(StepModel):
    """Learns what each operator takes and what lies after it, and sums up."""

    kind: ClassVar[str] = "serial"

    def __init__(self, device: Device, *, seed: int = 0) -> None:
        self.device = device
        self.seed = seed

    @classmethod
    def build(cls, device: Device, *, seed: int = 0) -> Self:
        return cls(device, seed=seed)

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        self.scale_ = self._find_scale(steps) if len(steps) >= _ENOUGH else 1.0
        return self._learn(steps)

    def _find_scale(self, steps: Sequence[MeasuredStep]) -> float:
        """By how much steps take longer than what others tell: the mean of logarithms lies below that of times."""
        ratios: list[float] = []
        for half in range(2):
            model = SerialModel(self.device, seed=self.seed)
            model.scale_ = 1.0
            model._learn(steps[half::2])
            rest = steps[1 - half :: 2]
            told = model.predict([step.workload for step in rest])
            ratios += [step.iteration_s / times.iteration_s for step, times in zip(rest, told, strict=True)]
        return float(np.median(ratios))

    def _learn(self, steps: Sequence[MeasuredStep]) -> Self:
        self.gaps_ = GapModel().fit(steps)
        seen: dict[Call, list[float]] = defaultdict(list)
        for step in steps:
            times, calls = read_times(step), list_calls(step.workload)
            for place, seconds in zip(times.positions.tolist(), times.kernel_s.tolist(), strict=True):
                seen[calls[place]].append(seconds)
        seconds = np.array([np.median(values) for values in seen.values()], dtype=float)
        self.calls_ = CallModel(self.device, seed=self.seed).fit(list(seen), seconds)
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        return [add_up(self.expect(workload), self.gaps_.predict(workload)) for workload in workloads]

    def expect(self, workload: Workload) -> Floats:
        """What each operator takes."""
        calls = list_calls(workload)
        distinct = list(dict.fromkeys(calls))
        known = dict(zip(distinct, self.calls_.predict(distinct).tolist(), strict=True))
        return np.array([known[call] for call in calls], dtype=float) * self.scale_

    def refine(self, profiles: Sequence[MeasuredStep]) -> "RefinedSerial":
        """The model for the network that was profiled, also at other sizes than those."""
        return RefinedSerial(self, profiles)

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What was learned, as plain values and as arrays."""
        record = {
            "device": asdict(self.device),
            "scale": self.scale_,
            "levels": self.calls_.levels_,
            "gaps": self.gaps_.to_record(),
        }
        return record, self.calls_.to_arrays()

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The same model again."""
        model = cls(read_device(record["device"]))
        model.scale_ = read_positive(record["scale"])
        model.calls_ = CallModel.from_arrays(model.device, arrays, record["levels"])
        model.gaps_ = GapModel.from_record(record["gaps"])
        return model


def add_up(kernel_s: Floats, gap_s: Floats) -> StepTimes:
    """A step of these operators, one after the other."""
    return StepTimes(iteration_s=float(kernel_s.sum() + gap_s.sum()), kernel_s=kernel_s, gap_s=gap_s)


class GapModel:
    """What lies between two operators, by their words; by the first one's where the pair is rare."""

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Learn; returns itself."""
        pairs: dict[str, list[float]] = defaultdict(list)
        words: dict[str, list[float]] = defaultdict(list)
        for step in steps:
            for (word, after), seconds in zip(_pair_words(step.workload), _read_gaps(step).tolist(), strict=True):
                if np.isfinite(seconds):
                    pairs[f"{word} {after}"].append(seconds)
                    words[word].append(seconds)
        self.pairs_ = {pair: float(np.median(values)) for pair, values in pairs.items() if len(values) >= _OFTEN}
        self.words_ = {word: float(np.median(values)) for word, values in words.items()}
        self.common_s_ = float(np.median(list(self.words_.values()))) if words else 0.0
        return self

    def predict(self, workload: Workload) -> Floats:
        """Seconds after each operator."""
        found = [
            self.pairs_.get(f"{word} {after}", self.words_.get(word, self.common_s_))
            for word, after in _pair_words(workload)
        ]
        return np.array(found, dtype=float)

    def to_record(self) -> dict[str, Any]:
        """All that was learned."""
        return {"pairs": self.pairs_, "words": self.words_, "common_s": self.common_s_}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """The same model again."""
        model = cls()
        model.pairs_, model.words_ = read_numbers(record["pairs"]), read_numbers(record["words"])
        model.common_s_ = read_number(record["common_s"])
        return model


def _pair_words(workload: Workload) -> list[tuple[str, str]]:
    words = [name_operator(operator) for operator in workload.operators]
    return list(zip(words, [*words[1:], _END][: len(words)], strict=True))


def _read_gaps(step: MeasuredStep) -> Floats:
    """After each operator; not a number where something without a record may have run in it."""
    times = read_times(step)
    found = np.full(len(step.kernel_s), np.nan)
    found[times.positions] = np.where(times.alone, np.maximum(times.gap_s, 0.0), np.nan)
    return found


class RefinedSerial:
    """A serial model with what profiles of one network showed.

    An operator that a profile has takes what it took there; others keep the factors of those like them.
    """

    def __init__(self, model: SerialModel, profiles: Sequence[MeasuredStep]) -> None:
        self.model = model
        self.factors = [compare_profile(each, self._expect(each.workload)) for each in profiles]
        self.measured = _find_measured(profiles)
        self.pairs = [(_pair_words(each.workload), _read_gaps(each)) for each in profiles]
        self.pace = float(np.median([self._find_pace(each) for each in profiles]))

    def _expect(self, workload: Workload) -> ExpectedTimes:
        """There are no launches: a host that takes no time and never waits."""
        none = np.zeros(len(workload.operators))
        host = HostTimes(step_s=none, within_s=none, waits=none.astype(bool), after_wait_s=none)
        return ExpectedTimes(kernel_s=self.model.expect(workload), host=host)

    def _find_pace(self, profile: MeasuredStep) -> float:
        """By how much gaps were longer than expected."""
        shown, expected = _read_gaps(profile), self.model.gaps_.predict(profile.workload)
        known = np.isfinite(shown) & (expected > 0)
        return float(shown[known].sum() / expected[known].sum()) if known.any() else 1.0

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""
        return [add_up(self._refine_kernels(each), self._refine_gaps(each)) for each in workloads]

    def _refine_kernels(self, workload: Workload) -> Floats:
        like, _ = apply_factors(self.factors, workload, self._expect(workload))
        return np.array([self.measured.get(o, s) for o, s in zip(workload.operators, like.tolist(), strict=True)])

    def _refine_gaps(self, workload: Workload) -> Floats:
        """As they were at each place of the same network; else at the pace that was seen."""
        usual = self.model.gaps_.predict(workload) * self.pace
        words = _pair_words(workload)
        shown = np.array([gaps for pairs, gaps in self.pairs if pairs == words]).reshape(-1, len(words))
        known = np.isfinite(shown)
        mean = np.where(known, shown, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        return np.where(known.any(axis=0), mean, usual)


def _find_measured(profiles: Sequence[MeasuredStep]) -> dict[Operator, float]:
    seen: dict[Operator, list[float]] = defaultdict(list)
    for profile in profiles:
        times = read_times(profile)
        for place, seconds in zip(times.positions.tolist(), times.kernel_s.tolist(), strict=True):
            seen[profile.workload.operators[place]].append(seconds)
    return {operator: float(np.mean(values)) for operator, values in seen.items()}
