"""The default model of GPUs: a step replayed on two time lines, the launches of the host and the work of the device."""

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

_DEEP_S = 200e-6  # a device this far behind never waits for its host: gaps are unrecorded work
_SHORTEST_GAP_S = 1e-9  # shorter gaps are rounding errors
_LEAST_SHARE = 0.3  # of a measured time, for its largest task


class ReplayModel(StepModel):
    """Predicts the time of each operator on the device and of each launch on the host, and replays both."""

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
        alone = [(tasks[0], seconds) for tasks, seconds in rows if len(tasks) == 1]
        self._fit_tasks(alone)
        self._fit_tasks([*alone, *(self._take_rest(tasks, seconds) for tasks, seconds in rows if len(tasks) > 1)])
        return self

    def _fit_tasks(self, rows: Sequence[tuple[DeviceTask, float]]) -> None:
        times: dict[DeviceTask, list[float]] = defaultdict(list)
        for task, seconds in rows:
            times[task].append(seconds)
        self.kernels_.fit(list(times), np.array([np.median(values) for values in times.values()]))

    def _take_rest(self, tasks: Sequence[DeviceTask], seconds: float) -> tuple[DeviceTask, float]:
        """The largest task, with the time that the other tasks leave."""
        expected = self.kernels_.predict(tasks)
        largest = int(np.argmax(expected))
        return tasks[largest], max(seconds - float(expected.sum() - expected[largest]), _LEAST_SHARE * seconds)

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        return [self._replay(self.expect(workload)) for workload in workloads]

    def _replay(self, expected: ExpectedTimes) -> StepTimes:
        return replay(expected.kernel_s, expected.host, self.hosts_.latency_s_)

    def refine(self, profiles: Sequence[MeasuredStep]) -> "RefinedReplay":
        """The model of the profiled network, also at other sizes."""
        return RefinedReplay(self, [compare_profile(profile, self.expect(profile.workload)) for profile in profiles])

    def transfer(self, device: Device, steps: Sequence[MeasuredStep]) -> "ReplayModel":
        """The model of another device, from its figures and the steps measured on it, if any."""
        other = ReplayModel(device, seed=self.seed)
        other.kernels_, other.hosts_ = self.kernels_.transfer(device), self.hosts_
        if steps:
            factors = [compare_profile(step, other.expect(step.workload)) for step in steps]
            other.kernels_.shift(_gather_levels(steps, factors))
            other.hosts_ = self.hosts_.transfer(steps)
        return other

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The fitted model as JSON values and arrays."""
        record = {"device": asdict(self.device), "levels": self.kernels_.levels_, "host": self.hosts_.to_record()}
        return record, self.kernels_.to_arrays()

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The model of a state."""
        model = cls(read_device(record["device"]))
        model.kernels_ = KernelModel.from_arrays(model.device, arrays, record["levels"])
        model.hosts_ = HostModel.from_record(record["host"])
        return model

    def expect(self, workload: Workload) -> ExpectedTimes:
        """The expected times of device and host for each operator."""
        number_of = {operator: number for number, operator in enumerate(dict.fromkeys(workload.operators))}
        tasks = [split_operator(operator) for operator in number_of]
        distinct = {task: number for number, task in enumerate(dict.fromkeys(task for some in tasks for task in some))}
        needed = np.zeros(len(number_of))
        if distinct:
            owner = np.array([number for number, some in enumerate(tasks) for _ in some])
            which = np.array([distinct[task] for some in tasks for task in some])
            np.add.at(needed, owner, self.kernels_.predict(list(distinct))[which])
        order = np.array([number_of[operator] for operator in workload.operators], dtype=int)
        return ExpectedTimes(kernel_s=needed[order], host=self.hosts_.predict(workload))


class RefinedReplay:
    """A replay with the factors of profiles of one network."""

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
    steps: Sequence[MeasuredStep], factors: Sequence[ProfileFactors]
) -> list[tuple[DeviceTask, float, float]]:
    """For each recorded operator, its largest task, its log ratio, and its weight."""
    found = []
    for step, one in zip(steps, factors, strict=True):
        largest = {
            operator: max(tasks, key=lambda task: task.flops * task.repeats + task.bytes_moved)
            for operator in dict.fromkeys(step.workload.operators)
            if (tasks := split_operator(operator))
        }
        found += [
            (largest[operator], float(off), float(seconds))
            for operator, off, seconds in zip(step.workload.operators, one.kernel, one.expected_s, strict=True)
            if operator in largest and np.isfinite(off)
        ]
    return found


def replay(kernel_s: Floats, host: HostTimes, latency_s: float) -> StepTimes:
    """The second of two consecutive steps: the first one sets how far the device is behind."""
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
        gap_s=np.where(gaps < _SHORTEST_GAP_S, 0.0, gaps),
    )


def _collect(steps: Sequence[MeasuredStep]) -> list[tuple[tuple[DeviceTask, ...], float]]:
    """Tasks that were timed together, with the median of their times.

    Recorded operators have a time of their own. Unrecorded operators have the time of the gap they are in, if the
    device was far enough behind to do nothing else there.
    """
    times: dict[tuple[Operator, ...], list[float]] = defaultdict(list)
    for step in steps:
        for together, seconds in _time_together(step):
            times[together].append(seconds)
    found = []
    for together, values in times.items():
        tasks = tuple(task for operator in together for task in split_operator(operator))
        if tasks:
            found.append((tasks, float(np.median(values))))
    return found


def _time_together(step: MeasuredStep) -> Iterator[tuple[tuple[Operator, ...], float]]:
    """The operators of a step, alone or those of one gap together, with their times."""
    operators = step.workload.operators
    recorded = np.flatnonzero(np.isfinite(step.start_s)).tolist()
    busy = np.minimum(step.kernel_s, step.span_s)
    end = step.start_s + step.span_s
    for i, j in itertools.pairwise([*recorded, -1]):
        yield (operators[i],), float(busy[i])
        if j > i + 1 and step.start_s[j] - step.launch_s[j] > _DEEP_S:
            yield operators[i + 1 : j], max(float(step.start_s[j] - end[i]), 1e-6)
