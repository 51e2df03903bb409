"""What is told of a training step and of the devices it may run on."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretell.core.devices import Device
from foretell.core.warning import PredictionWarning
from foretell.core.workload import Floats, MeasuredStep, Operator, StepEstimate, StepPhase, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """A training step on a device, before it runs. ``warnings`` say what the prediction leaves open."""

    workload: Workload
    device: str
    estimate: StepEstimate
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def examples_per_s(self) -> float:
        """Of the training data."""
        accumulated = int(self.workload.settings.get("accumulation", "1"))
        return self.workload.batch * accumulated / self.estimate.iteration.value


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDevice:
    """A device, and where its times come from: ``shipped``, ``learned`` here, or nowhere."""

    device: Device
    times: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedDevice:
    """A device that was measured, and what its times were learned from."""

    device: Device
    networks: int
    profiles: int  # of users' own models
    seconds: float  # that measuring took
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorGroup:
    """Equal operators of a step, with the time of all."""

    operator: Operator
    layers: tuple[str, ...]  # of each
    seconds: float
    gap_s: float


def group_operators(workload: Workload, kernel_s: Floats, gap_s: Floats) -> list[OperatorGroup]:
    """Equal operators together, those that take longest first; times that nobody recorded count as none."""
    places: dict[Operator, list[int]] = defaultdict(list)
    for place, operator in enumerate(workload.operators):
        places[operator].append(place)
    layers = list_layers(workload)
    groups = [
        OperatorGroup(
            operator=operator,
            layers=tuple(layers[place] for place in found),
            seconds=float(np.nansum(kernel_s[found])),
            gap_s=float(np.nansum(gap_s[found])),
        )
        for operator, found in places.items()
    ]
    return sorted(groups, key=lambda group: group.seconds, reverse=True)


def list_layers(workload: Workload) -> tuple[str, ...]:
    """The layer of each operator; none where nobody told."""
    return workload.layers or ("",) * len(workload.operators)


def find_phases(step: MeasuredStep) -> dict[StepPhase, float]:
    """Seconds of each phase: from the begin of its operators to that of the next ones."""
    seen = np.flatnonzero(~np.isnan(step.start_s))
    phases = dict.fromkeys(StepPhase, 0.0)
    following = np.append(step.start_s[seen][1:], step.iteration_s)
    for place, seconds in zip(seen.tolist(), (following - step.start_s[seen]).tolist(), strict=True):
        phases[step.workload.operators[place].phase] += seconds
    return phases


def find_gaps(step: MeasuredStep) -> Floats:
    """Seconds after each operator until the next one begins; not a number where it was not recorded."""
    gaps = np.full(len(step.start_s), np.nan)
    seen = np.flatnonzero(~np.isnan(step.start_s))
    if len(seen):
        following = np.append(step.start_s[seen][1:], step.iteration_s)
        gaps[seen] = np.maximum(following - step.start_s[seen] - step.span_s[seen], 0.0)
    return gaps
