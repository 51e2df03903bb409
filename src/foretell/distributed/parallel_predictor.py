"""Predicts training steps that several GPUs share: the operators of one GPU, and what they wait for."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from foretell.core.layouts import Layout
from foretell.core.prediction import Estimate
from foretell.core.topology import Group, LayoutGroups, Topology
from foretell.core.workload import Floats, StepEstimate, Workload
from foretell.distributed.collective_times import Collective, CollectiveTimes
from foretell.distributed.data_exchanges import FULL_SHARDING
from foretell.distributed.parallel_results import ParallelStep
from foretell.distributed.shared_steps import SharedStep, share_step
from foretell.distributed.step_schedule import OperatorSeconds, StepSchedule
from foretell.distributed.step_units import UPDATE
from foretell.steps.kernels.launch_times import expect_launches
from foretell.steps.kernels.step_intervals import scale_normal
from foretell.steps.step_predictor import StepPredictor

_READS_AND_WRITES = 3  # of gradients that are added to those of the batches before
_STREAMED = 0.85  # of the bandwidth of memory, by kernels that only read and write
_HIDDEN = 0.9  # of the time of an operator, behind which an exchange is hidden that runs at the same time
# Of computing: what GPUs that train together lose by waiting for the slowest of them and by exchanges that run at the
# same time. Each of 2 to 16 GPUs has 91 to 95 % of the rate of one in the tables of DeepLearningExamples, and 99 %
# without this: ``python -m benchmarks advise --only examples``.
_TOGETHER = 0.06
_EXCHANGE_LOG = 0.25  # half width of the 90 % interval of exposed communication, of the logarithm
_WAITING_LOG = 0.10  # the same of what GPUs wait for each other
_EXPERTS_LOG = 0.35  # of models with experts: their loads are uneven, and the hosts that route tokens differ most


class ParallelPredictor:
    """Predicts how long several GPUs of one kind need for a step, by any layout.

    The workload is one batch (a micro-batch) on one GPU, captured without accumulation and as if it had the whole
    model: layouts divide it.
    """

    def __init__(
        self, predictor: StepPredictor, topology: Topology, *, collectives: CollectiveTimes | None = None
    ) -> None:
        self.predictor = predictor
        self.topology = topology
        self.collectives = collectives or CollectiveTimes()
        self._shared: dict[tuple[float, ...], _OneGpu] = {}

    def predict(
        self, workload: Workload, layouts: Sequence[Layout], *, accumulation: int = 1, level: float = 0.9
    ) -> list[ParallelStep]:
        """The step by each layout, in order. A step has ``accumulation`` batches for each copy of the model.

        In a pipeline, the batches of a step are the layout's ``accumulated``, if that is more.

        Raises:
            SpecError: A layout does not divide the model, or its pipeline the batches.
        """
        return [self._predict(workload, layout, accumulation, level) for layout in layouts]

    def _predict(self, workload: Workload, layout: Layout, accumulation: int, level: float) -> ParallelStep:
        if layout.pipeline_parallel > 1 and accumulation > layout.accumulated:
            layout = replace(layout, micro_batches=accumulation)
        known = self._share(workload, layout, level)
        step = replace(known.step, layout=layout)
        groups = LayoutGroups.place(layout, self.topology)
        schedule = StepSchedule(step, self._find_seconds(step, known.estimate, groups), groups, self._exchange)
        batches = max(accumulation, layout.accumulated)
        return _Assembly(self, step, known, schedule, batches).build(level)

    def _share(self, workload: Workload, layout: Layout, level: float) -> "_OneGpu":
        """The operators of one GPU and their times; layouts that divide operators in the same way have the same."""
        key = id(workload), level, *_find_division(layout)  # what is known of a workload keeps it, and so its id
        if key not in self._shared:
            step = share_step(workload, layout)
            self._shared[key] = _OneGpu(
                workload=workload,
                step=step,
                estimate=self.predictor.predict(step.workload, level=level),
                host_s=expect_launches(step.workload).total_s,
                useful=_find_useful_share(workload),
            )
        return self._shared[key]

    def _find_seconds(self, step: SharedStep, alone: StepEstimate, groups: LayoutGroups) -> OperatorSeconds:
        exchanges = np.zeros(len(step.workload.operators))
        hidden: dict[int, float] = {}
        for each in step.exchanges:
            seconds = self._exchange(each.operation, each.bytes_, getattr(groups, each.group))
            if each.overlaps:
                left = hidden.setdefault(each.place, _HIDDEN * float(alone.kernel_s[each.place]))
                hidden[each.place] = max(0.0, left - seconds)
                seconds = max(0.0, seconds - left)
            exchanges[each.place] += seconds
        return OperatorSeconds(
            device=alone.kernel_s * _find_cast_shares(step),
            host=alone.gap_s,
            exchange=exchanges,
            accumulating=self._find_adding(step),
        )

    def _find_adding(self, step: SharedStep) -> float:
        """Seconds to add the gradients of a batch, for each part of the model; none if the step adds them itself."""
        if step.workload.settings.get("accumulation", "1") != "1":
            return 0.0
        parts = step.layout.pipeline_parallel * step.layout.interleave
        bytes_ = sum(gradient.dense + gradient.experts for gradient in step.gradients) / parts
        return _READS_AND_WRITES * bytes_ / (_STREAMED * self.topology.device.bandwidth_bytes)

    def _exchange(self, operation: Collective, bytes_: float, group: Group) -> float:
        return self.collectives.predict(operation, bytes_, group, self.topology)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OneGpu:
    """What one GPU does of a step, and how long it takes."""

    workload: Workload  # before it was divided
    step: SharedStep
    estimate: StepEstimate
    host_s: float
    useful: float  # share of the operations of products that are not computed again
    _pipelines: dict[tuple[Hashable, ...], float] = field(default_factory=dict)

    def measure_pipeline(self, schedule: StepSchedule, batches: int) -> float:
        """Seconds without the exchanges of copies, so that layouts which differ only in those have them once."""
        layout = schedule.layout
        key = layout.pipeline_parallel, layout.interleave, batches, schedule.send_s, _count_casting(layout)
        if key not in self._pipelines:
            self._pipelines[key] = schedule.measure(batches, exchanges=False)
        return self._pipelines[key]


def _find_useful_share(workload: Workload) -> float:
    again = sum(each.product_flops for each in workload.operators if each.get("recomputed", 0))
    return 1 - again / max(workload.product_flops, 1.0)


def _find_division(layout: Layout) -> tuple[int, ...]:
    """By what operators are divided: layouts with the same numbers have the same operators on each GPU."""
    shared = layout.tensor_parallel, layout.context_parallel, layout.expert_parallel
    return *shared, int(layout.sequence_parallel), int(layout.overlaps_tensors)


def _find_cast_shares(step: SharedStep) -> Floats:
    shares = np.ones(len(step.workload.operators))
    casts = [operator.kind == "to" and operator.parameters > 0 for operator in step.workload.operators]
    shares[casts] = 1 / _count_casting(step.layout)
    return shares


def _count_casting(layout: Layout) -> int:
    """GPUs that cast a weight: with full sharding, each casts its part before they are gathered."""
    return layout.sharding_gpus if layout.data_parallel in FULL_SHARDING else 1


class _Assembly:
    """Joins what a step consists of."""

    def __init__(
        self, owner: ParallelPredictor, step: SharedStep, known: _OneGpu, schedule: StepSchedule, batches: int
    ) -> None:
        self._owner, self._step, self._known, self._schedule, self._batches = owner, step, known, schedule, batches

    def build(self, level: float) -> ParallelStep:
        step, schedule, batches = self._step, self._schedule, self._batches
        stage, busy = schedule.find_slowest(batches)
        whole = schedule.measure(batches)
        without = self._known.measure_pipeline(schedule, batches) if step.layout.pipeline_parallel > 1 else busy
        updated, gathered = self._find_update()
        seconds = self._sum(stage)
        parts = {
            "compute": batches * seconds["device"] + updated,
            "host": batches * seconds["host"],
            "tensor": batches * seconds["exchange"],
            "data": max(0.0, whole - without) + gathered + self._find_waiting(seconds),
            "bubble": max(0.0, without - busy),
        }
        parts["compute"] += max(0.0, busy - batches * sum(seconds.values()))  # gradients that are added
        total = sum(parts.values())
        return ParallelStep(
            workload=self._known.workload,
            layout=step.layout,
            topology=self._owner.topology,
            step=self._bound(total, parts, level),
            parts=parts,
            sent_bytes=self._count_sent(stage),
            micro_batches=batches,
            host_s=self._known.host_s / step.layout.pipeline_parallel,
            mfu=self._find_use(total),
        )

    def _find_waiting(self, seconds: dict[str, float]) -> float:
        """Seconds in which copies of the model wait for the slowest of them."""
        layout = self._step.layout
        alone = layout.copies * layout.context_parallel == 1
        return 0.0 if alone else _TOGETHER * self._batches * (seconds["device"] + seconds["host"])

    def _sum(self, stage: int) -> dict[str, float]:
        """Seconds of a batch on a stage."""
        found = self._schedule.seconds
        columns = {"device": found.device, "host": found.host, "exchange": found.exchange}
        return {name: self._schedule.sum_stage(stage, values) for name, values in columns.items()}

    def _find_update(self) -> tuple[float, float]:
        """Seconds of the update on the stage with most parameters, and of what is gathered after it."""
        step = self._step
        update: Floats = (self._known.estimate.kernel_s + self._known.estimate.gap_s)[step.units.pass_of == UPDATE]
        exchanges = self._schedule.exchanges
        stages = [self._schedule.list_states(stage) for stage in range(step.layout.pipeline_parallel)]
        share = max(exchanges.find_share(states) for states in stages) / max(1.0, step.whole_parameters)
        return float(update.sum()) * min(1.0, share), max(map(exchanges.gather_after_update, stages))

    def _count_sent(self, stage: int) -> dict[str, float]:
        """Bytes that one GPU gives to exchanges in a step."""
        inside = sum(each.bytes_ for each in self._step.exchanges) / self._step.layout.pipeline_parallel
        states = self._schedule.list_states(stage)
        copies = self._step.layout.copies * self._step.layout.context_parallel
        data = sum((each.dense + each.experts) * each.item_bytes for each in states) if copies > 1 else 0.0
        stages = self._step.layout.pipeline_parallel
        sent = 2.0 * self._step.result_bytes * self._batches if stages > 1 else 0.0
        return {"tensor": inside * self._batches, "data": data, "pipeline": sent}

    def _find_use(self, total: float) -> float | None:
        """Model FLOPs utilization: that of the operators alone, without what is computed again, over the whole step."""
        alone = self._known.estimate
        if alone.mfu is None:
            return None
        once = alone.mfu * alone.iteration.value * self._known.useful / self._step.layout.pipeline_parallel
        return once * self._batches / total

    def _bound(self, total: float, parts: dict[str, float], level: float) -> Estimate:
        """Errors of computing, communication and waiting; those of computing are the model's and the device's."""
        alone = self._known.estimate.iteration
        computing = (parts["compute"] + parts["host"] + parts["bubble"]) / total
        exchanged = (parts["tensor"] + parts["data"]) / total
        routed = _EXPERTS_LOG if any(each.experts for each in self._step.states) else 0.0
        waiting = _WAITING_LOG if self._step.layout.gpus > 1 else 0.0
        others = scale_normal(level) * math.hypot(_EXCHANGE_LOG * exchanged, waiting, routed)
        down = math.hypot(computing * math.log(alone.value / max(alone.low, 1e-12)), others)
        up = math.hypot(computing * math.log(alone.high / alone.value), others)
        return Estimate(value=total, low=total * math.exp(-down), high=total * math.exp(up), level=level)
