"""Results: predicted steps, known and learned devices, and the parts of a step by their cost."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

import numpy as np

from foretell.core.devices import Device
from foretell.core.warning import PredictionWarning
from foretell.core.workload import Floats, MeasuredStep, Operator, StepEstimate, StepPhase, Workload
from foretell.measure.other_load import OtherLoad
from foretell.steps import DEFAULT_METHODS


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """A predicted training step on a device. ``warnings`` are the limits of the prediction."""

    workload: Workload
    device: str
    estimate: StepEstimate
    method: str = "replay"
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def examples_per_s(self) -> float:
        """Examples per second."""
        return self.workload.batch * _count_batches(self.workload) / self.estimate.iteration.value

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second, where the examples are sequences of them."""
        tokens = count_tokens(self.workload)
        return tokens * _count_batches(self.workload) / self.estimate.iteration.value if tokens else None

    @property
    def precision(self) -> str:
        """The precision of the step."""
        return self.workload.settings.get("precision", "fp32")


def _count_batches(workload: Workload) -> int:
    return int(workload.settings.get("accumulation", "1"))


def count_tokens(workload: Workload) -> int:
    """Tokens of one batch: those of the first embedding of whole sequences; 0 if there is none."""
    for operator in workload.operators:
        if operator.phase is not StepPhase.FORWARD:
            break
        if operator.kind == "embedding" and len(operator.output) == 3 and operator.output[0] == workload.batch:
            return operator.output[0] * operator.output[1]
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutDevice:
    """A device that could not be predicted, and why."""

    device: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPredictions(Sequence[StepPrediction]):
    """Predictions in the order in which they are shown, and devices of the request that were left out."""

    predictions: tuple[StepPrediction, ...]
    left_out: tuple[LeftOutDevice, ...] = ()

    @overload
    def __getitem__(self, place: int) -> StepPrediction: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[StepPrediction, ...]: ...
    def __getitem__(self, place: int | slice) -> StepPrediction | tuple[StepPrediction, ...]:
        return self.predictions[place]

    def __len__(self) -> int:
        return len(self.predictions)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDevice:
    """A device, and the source of its times: ``shipped``, ``learned`` or ``calibrated`` here, or none.

    ``evidence`` is what its matrix products are predicted from in each precision: ``measured``, ``similar`` or
    ``figures``.
    """

    device: Device
    times: str = ""
    evidence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedDevice:
    """A device whose model was fitted, and what it was fitted on."""

    device: Device
    method: str
    networks: int
    profiles: int  # of the user's own models
    seconds: float  # spent on measuring
    path: Path
    load: OtherLoad | None = None  # of other processes while it was measured, on average; unknown for profiles
    disturbed: int = 0  # networks during which the machine was busy
    disturbed_used: bool = False  # because there were too few others

    @property
    def is_default(self) -> bool:
        """Whether predictions use it without naming the method."""
        return self.method in DEFAULT_METHODS


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorGroup:
    """Equal operators of a step, with their total time."""

    operator: Operator
    layers: tuple[str, ...]  # of each operator
    seconds: float
    gap_s: float


def group_operators(workload: Workload, kernel_s: Floats, gap_s: Floats) -> list[OperatorGroup]:
    """Groups of equal operators, the most costly first; unrecorded times count as zero."""
    positions: dict[Operator, list[int]] = defaultdict(list)
    for position, operator in enumerate(workload.operators):
        positions[operator].append(position)
    layers = list_layers(workload)
    groups = [
        OperatorGroup(
            operator=operator,
            layers=tuple(layers[position] for position in found),
            seconds=float(np.nansum(kernel_s[found])),
            gap_s=float(np.nansum(gap_s[found])),
        )
        for operator, found in positions.items()
    ]
    return sorted(groups, key=lambda group: group.seconds, reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTotals:
    """The sums of some operators."""

    operator_count: int
    kernels: int
    flops: float
    bytes_moved: float


def total_operators(operators: Sequence[Operator]) -> OperatorTotals:
    """The sums of these operators."""
    return OperatorTotals(
        operator_count=len(operators),
        kernels=sum(operator.kernels for operator in operators),
        flops=sum(operator.flops for operator in operators),
        bytes_moved=sum(operator.bytes_moved for operator in operators),
    )


def total_phases(workload: Workload) -> dict[StepPhase, OperatorTotals]:
    """The sums of each phase."""
    return {
        phase: total_operators([operator for operator in workload.operators if operator.phase is phase])
        for phase in StepPhase
    }


def rank_kinds(workload: Workload) -> list[tuple[str, OperatorTotals]]:
    """The sums of each kind of operator, those with most operations first."""
    kinds: dict[str, list[Operator]] = defaultdict(list)
    for operator in workload.operators:
        kinds[operator.kind].append(operator)
    totals = [(kind, total_operators(operators)) for kind, operators in kinds.items()]
    return sorted(totals, key=lambda pair: pair[1].flops, reverse=True)


def list_layers(workload: Workload) -> tuple[str, ...]:
    """The layer of each operator; empty if unknown."""
    return workload.layers or ("",) * len(workload.operators)


def find_phases(step: MeasuredStep) -> dict[StepPhase, float]:
    """Seconds of each phase: from the start of each of its operators to the start of the next one."""
    recorded = np.flatnonzero(~np.isnan(step.start_s))
    phases = dict.fromkeys(StepPhase, 0.0)
    following = np.append(step.start_s[recorded][1:], step.iteration_s)
    for position, seconds in zip(recorded.tolist(), (following - step.start_s[recorded]).tolist(), strict=True):
        phases[step.workload.operators[position].phase] += seconds
    return phases


def find_gaps(step: MeasuredStep) -> Floats:
    """Seconds from the end of each operator to the start of the next; NaN where it was not recorded."""
    gaps = np.full(len(step.start_s), np.nan)
    recorded = np.flatnonzero(~np.isnan(step.start_s))
    if len(recorded):
        following = np.append(step.start_s[recorded][1:], step.iteration_s)
        gaps[recorded] = np.maximum(following - step.start_s[recorded] - step.span_s[recorded], 0.0)
    return gaps
