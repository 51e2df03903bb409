"""Our default: a step replayed on two time lines, the host's that launches and the device's that works."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from foretell.entities.device import Device
from foretell.entities.workload import Floats, MeasuredStep, Operator, Workload
from foretell.models.operators._base import StepModel, StepTimes
from foretell.models.operators.hosts import HostModel, HostTimes
from foretell.models.operators.kernels import KernelModel
from foretell.models.operators.parts import Part, split

_DEEP_S = 200e-6  # a device that far behind its host never waits for it: gaps are work that was not recorded
_LEAST_SHARE = 0.3  # of a measured time, for the part that is learned from what is left of it


class ReplayModel(StepModel):
    """Learns what the device needs for each operator and the host for each launch, and lets both run."""

    def __init__(self, device: Device, *, seed: int = 0) -> None:
        self.device = device
        self.seed = seed

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        self.hosts_ = HostModel().fit(steps)
        rows = _collect(steps)
        self.kernels_ = KernelModel(self.device, seed=self.seed)
        alone = [(parts[0], seconds) for parts, seconds in rows if len(parts) == 1]
        self._learn(alone)
        self._learn([*alone, *(self._take_rest(parts, seconds) for parts, seconds in rows if len(parts) > 1)])
        return self

    def _learn(self, rows: Sequence[tuple[Part, float]]) -> None:
        times: dict[Part, list[float]] = defaultdict(list)
        for part, seconds in rows:
            times[part].append(seconds)
        self.kernels_.fit(list(times), np.array([np.median(values) for values in times.values()]))

    def _take_rest(self, parts: Sequence[Part], seconds: float) -> tuple[Part, float]:
        """The largest part, with what the others leave of the time."""
        expected = self.kernels_.predict(parts)
        largest = int(np.argmax(expected))
        return parts[largest], max(seconds - float(expected.sum() - expected[largest]), _LEAST_SHARE * seconds)

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        known = self._predict_distinct({op for workload in workloads for op in workload.operators})
        return [
            replay(np.array([known[op] for op in workload.operators]), self.hosts_.predict(workload), self.hosts_.latency_s_)
            for workload in workloads
        ]

    def _predict_distinct(self, operators: set[Operator]) -> dict[Operator, float]:
        """Each distinct part is asked for once."""
        parts = {operator: split(operator) for operator in operators}
        distinct = list(dict.fromkeys(part for some in parts.values() for part in some))
        seconds = dict(zip(distinct, self.kernels_.predict(distinct), strict=True)) if distinct else {}
        return {operator: float(sum(seconds[part] for part in some)) for operator, some in parts.items()}


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
    return StepTimes(iteration_s=float(end[-1] - begin[0]) if count else 0.0, kernel_s=kernel_s, gap_s=np.maximum(gaps, 0.0))


@dataclass(slots=True)
class _Sums:
    """Times of what is done together, by what it is."""

    times: dict[tuple[Operator, ...], list[float]]


def _collect(steps: Sequence[MeasuredStep]) -> list[tuple[tuple[Part, ...], float]]:
    """Parts that were timed together, with the median of their times.

    A recorded operator tells its own. Operators without a record are told by the gap they stand in, if the device had
    work enough to do nothing else there.
    """
    times: dict[tuple[Operator, ...], list[float]] = defaultdict(list)
    for step in steps:
        operators = step.workload.operators
        recorded = np.flatnonzero(np.isfinite(step.start_s))
        busy = np.minimum(step.kernel_s, step.span_s)
        end = step.start_s + step.span_s
        for place, i in enumerate(recorded.tolist()):
            times[(operators[i],)].append(busy[i])
            if place + 1 == len(recorded):
                continue
            j = int(recorded[place + 1])
            if j > i + 1 and step.start_s[j] - step.launch_s[j] > _DEEP_S:
                times[operators[i + 1 : j]].append(max(step.start_s[j] - end[i], 1e-6))
    found = []
    for together, values in times.items():
        parts = tuple(part for operator in together for part in split(operator))
        if parts:
            found.append((parts, float(np.median(values))))
    return found
