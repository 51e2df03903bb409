"""The default model of CPUs: the times of operators and of the gaps between them add up to the step."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.devices import Device, read_device
from foretell.core.model_files import read_number, read_numbers, read_positive
from foretell.core.workload import Floats, MeasuredStep, Operator, Workload
from foretell.steps._base import StepModel, StepTimes
from foretell.steps.cpu_times import Call, CallModel, list_calls
from foretell.steps.host_times import HostTimes, name_operator
from foretell.steps.operator_encoding import read_times
from foretell.steps.profile_factors import ExpectedTimes, apply_factors, compare_profile

_END = "end"  # of a step
_FEWEST = 3  # occurrences of a pair of operators whose gap is predicted by its own median
_ENOUGH = 20  # steps, so that one half can predict the other


class SerialModel(StepModel):
    """Predicts each operator and the gap after it, and adds them up."""

    kind: ClassVar[str] = "serial"

    def __init__(self, device: Device, *, seed: int = 0) -> None:
        self.device = device
        self.seed = seed

    @classmethod
    def build(cls, device: Device, *, seed: int = 0) -> Self:
        return cls(device, seed=seed)

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        self.scale_ = self._find_scale(steps) if len(steps) >= _ENOUGH else 1.0
        return self._fit_operators(steps)

    def _find_scale(self, steps: Sequence[MeasuredStep]) -> float:
        """The ratio of measured to predicted steps: the mean of logarithms lies below the logarithm of the mean."""
        ratios: list[float] = []
        for half in range(2):
            model = SerialModel(self.device, seed=self.seed)
            model.scale_ = 1.0
            model._fit_operators(steps[half::2])
            rest = steps[1 - half :: 2]
            predicted = model.predict([step.workload for step in rest])
            ratios += [step.iteration_s / times.iteration_s for step, times in zip(rest, predicted, strict=True)]
        return float(np.median(ratios))

    def _fit_operators(self, steps: Sequence[MeasuredStep]) -> Self:
        self.gaps_ = GapModel().fit(steps)
        measured: dict[Call, list[float]] = defaultdict(list)
        for step in steps:
            times, calls = read_times(step), list_calls(step.workload)
            for position, seconds in zip(times.positions.tolist(), times.kernel_s.tolist(), strict=True):
                measured[calls[position]].append(seconds)
        seconds = np.array([np.median(values) for values in measured.values()], dtype=float)
        self.calls_ = CallModel(self.device, seed=self.seed).fit(list(measured), seconds)
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        return [add_up(self.expect(workload), self.gaps_.predict(workload)) for workload in workloads]

    def expect(self, workload: Workload) -> Floats:
        """The time of each operator."""
        calls = list_calls(workload)
        distinct = list(dict.fromkeys(calls))
        known = dict(zip(distinct, self.calls_.predict(distinct).tolist(), strict=True))
        return np.array([known[call] for call in calls], dtype=float) * self.scale_

    def refine(self, profiles: Sequence[MeasuredStep]) -> "RefinedSerial":
        """The model of the profiled network, also at other sizes."""
        return RefinedSerial(self, profiles)

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The fitted model as JSON values and arrays."""
        record = {
            "device": asdict(self.device),
            "scale": self.scale_,
            "levels": self.calls_.levels_,
            "gaps": self.gaps_.to_record(),
        }
        return record, self.calls_.to_arrays()

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The model of a state."""
        model = cls(read_device(record["device"]))
        model.scale_ = read_positive(record["scale"])
        model.calls_ = CallModel.from_arrays(model.device, arrays, record["levels"])
        model.gaps_ = GapModel.from_record(record["gaps"])
        return model


def add_up(kernel_s: Floats, gap_s: Floats) -> StepTimes:
    """A step of these operators, one after the other."""
    return StepTimes(iteration_s=float(kernel_s.sum() + gap_s.sum()), kernel_s=kernel_s, gap_s=gap_s)


class GapModel:
    """The gap between two operators: the median of the pair, or of the first operator if the pair is rare."""

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Fit the model; returns itself."""
        pairs: dict[str, list[float]] = defaultdict(list)
        names: dict[str, list[float]] = defaultdict(list)
        for step in steps:
            for (name, after), seconds in zip(_pair_names(step.workload), _read_gaps(step).tolist(), strict=True):
                if np.isfinite(seconds):
                    pairs[f"{name} {after}"].append(seconds)
                    names[name].append(seconds)
        self.pairs_ = {pair: float(np.median(values)) for pair, values in pairs.items() if len(values) >= _FEWEST}
        self.operators_ = {name: float(np.median(values)) for name, values in names.items()}
        self.common_s_ = float(np.median(list(self.operators_.values()))) if names else 0.0
        return self

    def predict(self, workload: Workload) -> Floats:
        """Seconds after each operator."""
        found = [
            self.pairs_.get(f"{name} {after}", self.operators_.get(name, self.common_s_))
            for name, after in _pair_names(workload)
        ]
        return np.array(found, dtype=float)

    def to_record(self) -> dict[str, Any]:
        """The fitted model as JSON values."""
        return {"pairs": self.pairs_, "words": self.operators_, "common_s": self.common_s_}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """The model of a record."""
        model = cls()
        model.pairs_, model.operators_ = read_numbers(record["pairs"]), read_numbers(record["words"])
        model.common_s_ = read_number(record["common_s"])
        return model


def _pair_names(workload: Workload) -> list[tuple[str, str]]:
    names = [name_operator(operator) for operator in workload.operators]
    return list(zip(names, [*names[1:], _END][: len(names)], strict=True))


def _read_gaps(step: MeasuredStep) -> Floats:
    """The gap after each operator; NaN where an unrecorded operator may have run in it."""
    times = read_times(step)
    found = np.full(len(step.kernel_s), np.nan)
    found[times.positions] = np.where(times.alone, np.maximum(times.gap_s, 0.0), np.nan)
    return found


class RefinedSerial:
    """A serial model with profiles of one network.

    An operator of a profile has its measured time; other operators have the factors of similar ones.
    """

    def __init__(self, model: SerialModel, profiles: Sequence[MeasuredStep]) -> None:
        self.model = model
        self.factors = [compare_profile(each, self._expect(each.workload)) for each in profiles]
        self.measured = _find_measured(profiles)
        self.pairs = [(_pair_names(each.workload), _read_gaps(each)) for each in profiles]
        self.gap_ratio = float(np.median([self._find_gap_ratio(each) for each in profiles]))

    def _expect(self, workload: Workload) -> ExpectedTimes:
        """On a CPU there are no launches: the host takes no time and never waits."""
        none = np.zeros(len(workload.operators))
        host = HostTimes(step_s=none, within_s=none, waits=none.astype(bool), after_wait_s=none)
        return ExpectedTimes(kernel_s=self.model.expect(workload), host=host)

    def _find_gap_ratio(self, profile: MeasuredStep) -> float:
        """The ratio of measured to expected gaps."""
        measured, expected = _read_gaps(profile), self.model.gaps_.predict(profile.workload)
        known = np.isfinite(measured) & (expected > 0)
        return float(measured[known].sum() / expected[known].sum()) if known.any() else 1.0

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""
        return [add_up(self._refine_kernels(each), self._refine_gaps(each)) for each in workloads]

    def _refine_kernels(self, workload: Workload) -> Floats:
        like, _ = apply_factors(self.factors, workload, self._expect(workload))
        return np.array([self.measured.get(o, s) for o, s in zip(workload.operators, like.tolist(), strict=True)])

    def _refine_gaps(self, workload: Workload) -> Floats:
        """The measured gaps at each position of the same network; else expected gaps, scaled."""
        usual = self.model.gaps_.predict(workload) * self.gap_ratio
        names = _pair_names(workload)
        measured = np.array([gaps for pairs, gaps in self.pairs if pairs == names]).reshape(-1, len(names))
        known = np.isfinite(measured)
        mean = np.where(known, measured, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        return np.where(known.any(axis=0), mean, usual)


def _find_measured(profiles: Sequence[MeasuredStep]) -> dict[Operator, float]:
    found: dict[Operator, list[float]] = defaultdict(list)
    for profile in profiles:
        times = read_times(profile)
        for position, seconds in zip(times.positions.tolist(), times.kernel_s.tolist(), strict=True):
            found[profile.workload.operators[position]].append(seconds)
    return {operator: float(np.mean(values)) for operator, values in found.items()}
