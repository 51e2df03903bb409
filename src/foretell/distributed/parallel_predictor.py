"""Predicts training steps that several GPUs share: the operators of one GPU, and what they wait for."""

from collections.abc import Sequence

from foretell.core.layouts import Layout
from foretell.core.prediction import Estimate
from foretell.core.topology import LayoutGroups, Topology
from foretell.core.workload import StepPhase, Workload
from foretell.distributed.collective_times import Collective, CollectiveTimes
from foretell.distributed.parallel_results import ParallelStep
from foretell.steps.step_predictor import StepPredictor


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

    def predict(
        self, workload: Workload, layouts: Sequence[Layout], *, accumulation: int = 1, level: float = 0.9
    ) -> list[ParallelStep]:
        """The step by each layout, in order. A step has ``accumulation`` batches for each copy of the model.

        In a pipeline, the batches of a step are the layout's ``accumulated``, if that is more.

        Raises:
            SpecError: A layout does not divide the model.
        """
        return [self._predict(workload, layout, accumulation, level) for layout in layouts]

    def _predict(self, workload: Workload, layout: Layout, accumulation: int, level: float) -> ParallelStep:
        alone = self.predictor.predict(workload, level=level)
        batches = max(accumulation, layout.accumulated)
        shared = layout.model_parallel
        stages = layout.pipeline_parallel
        once = sum(alone.phases[phase] for phase in (StepPhase.FORWARD, StepPhase.BACKWARD)) / shared
        bubble = once * (stages - 1) / layout.interleave
        groups = LayoutGroups.place(layout, self.topology)
        sent = sum(gradient.bytes_ for gradient in workload.gradients) / (layout.tensor_parallel * stages)
        reduced = self.collectives.predict(Collective.ALL_REDUCE, sent, groups.sharding, self.topology)
        exposed = max(0.0, reduced - alone.phases[StepPhase.BACKWARD] / shared)
        compute = once * batches + alone.phases[StepPhase.UPDATE] / shared
        whole = compute + bubble + exposed
        factor = whole / alone.iteration.value
        return ParallelStep(
            workload=workload,
            layout=layout,
            topology=self.topology,
            step=Estimate(
                value=whole,
                low=alone.iteration.low * factor,
                high=alone.iteration.high * factor,
                level=level,
            ),
            parts={"compute": compute, "tensor": 0.0, "data": exposed, "bubble": bubble, "host": 0.0},
            sent_bytes={"tensor": 0.0, "data": sent, "pipeline": 0.0},
            micro_batches=batches,
        )
