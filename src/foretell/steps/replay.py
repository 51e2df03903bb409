"""Our default: a step replayed on two time lines, the host's that launches and the device's that works."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.devices import Device, read_device
from foretell.core.workload import Floats, MeasuredStep, Operator, Workload
from foretell.steps._base import StepModel, StepTimes
from foretell.steps.device_tasks import DeviceTask, split_operator
from foretell.steps.host_times import HostModel, HostTimes
from foretell.steps.kernel_times import KernelModel
from foretell.steps.profile_factors import ExpectedTimes, ProfileFactors, apply_factors, compare_profile

_DEEP_S = 200e-6  # a device that far behind its host never waits for it: gaps are work that was not recorded
_LEAST_GAP_S = 1e-9  # less is rounding
_LEAST_SHARE = 0.3  # of a measured time, for the part that is learned from what is left of it


class ReplayModel(StepModel):
    """Learns what the device needs for each operator and the host for each launch, and lets both run."""

    kind: ClassVar[str] = "replay"

    def __init__(self, device: Device, *, seed: int = 0) -> None:
        self.device = device
        self.seed = seed

    @classmethod
    def build(cls, device: Device, *, seed: int = 0) -> Self:
        return cls(device, seed=seed)

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        self.hosts_ = HostModel().fit(steps)
        rows = _collect(steps)
        self.kernels_ = KernelModel(self.device, seed=self.seed)
        alone = [(parts[0], seconds) for parts, seconds in rows if len(parts) == 1]
        self._learn(alone)
        self._learn([*alone, *(self._take_rest(parts, seconds) for parts, seconds in rows if len(parts) > 1)])
        return self

    def _learn(self, rows: Sequence[tuple[DeviceTask, float]]) -> None:
        times: dict[DeviceTask, list[float]] = defaultdict(list)
        for part, seconds in rows:
            times[part].append(seconds)
        self.kernels_.fit(list(times), np.array([np.median(values) for values in times.values()]))

    def _take_rest(self, parts: Sequence[DeviceTask], seconds: float) -> tuple[DeviceTask, float]:
        """The largest part, with what the others leave of the time."""
        expected = self.kernels_.predict(parts)
        largest = int(np.argmax(expected))
        return parts[largest], max(seconds - float(expected.sum() - expected[largest]), _LEAST_SHARE * seconds)

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        return [self._replay(self.expect(workload)) for workload in workloads]

    def _replay(self, expected: ExpectedTimes) -> StepTimes:
        return replay(expected.kernel_s, expected.host, self.hosts_.latency_s_)

    def refine(self, profiles: Sequence[MeasuredStep]) -> "RefinedReplay":
        """The model for the network that was profiled, also at other sizes than those."""
        return RefinedReplay(self, [compare_profile(profile, self.expect(profile.workload)) for profile in profiles])

    def transfer(self, device: Device, steps: Sequence[MeasuredStep]) -> "ReplayModel":
        """The same for another device, by its figures, and by steps that were measured on it, if any."""
        other = ReplayModel(device, seed=self.seed)
        other.kernels_, other.hosts_ = self.kernels_.move(device), self.hosts_
        if steps:
            shown = [compare_profile(step, other.expect(step.workload)) for step in steps]
            other.kernels_.shift(_gather_levels(steps, shown))
            other.hosts_ = self.hosts_.move(steps)
        return other

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What was learned, as plain values and as arrays."""
        record = {"device": asdict(self.device), "levels": self.kernels_.levels_, "host": self.hosts_.to_record()}
        return record, self.kernels_.to_arrays()

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The same model again."""
        model = cls(read_device(record["device"]))
        model.kernels_ = KernelModel.from_arrays(model.device, arrays, record["levels"])
        model.hosts_ = HostModel.from_record(record["host"])
        return model

    def expect(self, workload: Workload) -> ExpectedTimes:
        """What device and host need for each operator."""
        place = {operator: number for number, operator in enumerate(dict.fromkeys(workload.operators))}
        parts = [split_operator(operator) for operator in place]
        distinct = {part: number for number, part in enumerate(dict.fromkeys(part for some in parts for part in some))}
        needed = np.zeros(len(place))
        if distinct:
            owner = np.array([number for number, some in enumerate(parts) for _ in some])
            which = np.array([distinct[part] for some in parts for part in some])
            np.add.at(needed, owner, self.kernels_.predict(list(distinct))[which])
        order = np.array([place[operator] for operator in workload.operators], dtype=int)
        return ExpectedTimes(kernel_s=needed[order], host=self.hosts_.predict(workload))


class RefinedReplay:
    """A replay with the factors that profiles of one network showed."""

    def __init__(self, model: ReplayModel, factors: Sequence[ProfileFactors]) -> None:
        self.model = model
        self.factors = factors

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""
        latency_s = self.model.hosts_.latency_s_
        return [
            replay(*apply_factors(self.factors, workload, self.model.expect(workload)), latency_s)
            for workload in workloads
        ]


def _gather_levels(
    steps: Sequence[MeasuredStep], shown: Sequence[ProfileFactors]
) -> list[tuple[DeviceTask, float, float]]:
    """Of each recorded operator its largest part, the logarithm by which it was off, and its weight."""
    found = []
    for step, one in zip(steps, shown, strict=True):
        largest = {
            operator: max(parts, key=lambda part: part.flops * part.repeats + part.bytes_moved)
            for operator in dict.fromkeys(step.workload.operators)
            if (parts := split_operator(operator))
        }
        found += [
            (largest[operator], float(off), float(seconds))
            for operator, off, seconds in zip(step.workload.operators, one.kernel, one.expected_s, strict=True)
            if operator in largest and np.isfinite(off)
        ]
    return found


def replay(kernel_s: Floats, host: HostTimes, latency_s: float) -> StepTimes:
    """Two steps one after the other, of which the second counts: the first one leaves the device behind or not."""
    count = len(kernel_s)
    kernels, steps, within = kernel_s.tolist(), host.step_s.tolist(), host.within_s.tolist()
    waits, after = host.waits.tolist(), host.after_wait_s.tolist()
    now = free = 0.0
    starts, ends = [0.0] * count, [0.0] * count
    for _ in range(2):
        for n in range(count):
            if waits[n]:
                now = max(now + max(steps[n] - after[n], 0.0), free) + after[n]
            else:
                now += steps[n]
            start = max(free, now + latency_s)
            free = max(start, now + latency_s + within[n]) + kernels[n]
            starts[n], ends[n] = start, free
    begin, end = np.array(starts), np.array(ends)
    gaps = np.append(begin[1:] - begin[:-1], end[-1] - begin[-1]) - kernel_s if count else np.array([])
    return StepTimes(
        iteration_s=float(end[-1] - begin[0]) if count else 0.0,
        kernel_s=kernel_s,
        gap_s=np.where(gaps < _LEAST_GAP_S, 0.0, gaps),
    )


def _collect(steps: Sequence[MeasuredStep]) -> list[tuple[tuple[DeviceTask, ...], float]]:
    """Parts that were timed together, with the median of their times.

    A recorded operator tells its own. Operators without a record are told by the gap they stand in, if the device had
    work enough to do nothing else there.
    """
    times: dict[tuple[Operator, ...], list[float]] = defaultdict(list)
    for step in steps:
        for together, seconds in _time_together(step):
            times[together].append(seconds)
    found = []
    for together, values in times.items():
        parts = tuple(part for operator in together for part in split_operator(operator))
        if parts:
            found.append((parts, float(np.median(values))))
    return found


def _time_together(step: MeasuredStep) -> Iterator[tuple[tuple[Operator, ...], float]]:
    """A step's operators, alone or as many as stand in a gap, with their times."""
    operators = step.workload.operators
    recorded = np.flatnonzero(np.isfinite(step.start_s)).tolist()
    busy = np.minimum(step.kernel_s, step.span_s)
    end = step.start_s + step.span_s
    for i, j in itertools.pairwise([*recorded, -1]):
        yield (operators[i],), float(busy[i])
        if j > i + 1 and step.start_s[j] - step.launch_s[j] > _DEEP_S:
            yield operators[i + 1 : j], max(float(step.start_s[j] - end[i]), 1e-6)
