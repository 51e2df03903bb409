"""Predicted training steps that several GPUs share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from foretell.core.layouts import Layout
from foretell.core.prediction import Estimate
from foretell.core.topology import Topology
from foretell.core.warning import PredictionWarning
from foretell.core.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStep:
    """A predicted step: forward and backward for every batch of every copy, and the update.

    ``parts`` are seconds of the step on the GPU that is busiest; their sum is the step: ``compute``, ``tensor``
    (exposed communication inside of layers: tensor, context and expert parallel), ``data`` (exposed communication of
    gradients and weights), ``bubble`` (waiting in the pipeline) and ``host``.
    """

    workload: Workload  # one batch on one GPU, before it is shared
    layout: Layout
    topology: Topology
    step: Estimate
    parts: Mapping[str, float] = field(default_factory=dict)
    sent_bytes: Mapping[str, float] = field(default_factory=dict)  # of one GPU in a step, by tensor, data and pipeline
    micro_batches: int = 1  # of each copy in a step
    host_s: float = 0.0  # that the host of a GPU needs for a batch, whether the GPU waits for it or not
    mfu: float | None = None
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def gpus(self) -> int:
        return self.layout.gpus

    @property
    def examples(self) -> int:
        """Of all copies in one step."""
        return self.workload.batch * self.micro_batches * self.layout.copies

    @property
    def examples_per_s(self) -> float:
        return self.examples / self.step.value

    @property
    def main_limit(self) -> str:
        """The part that takes most of what is not computing if that is a quarter or more; else compute."""
        waiting = {name: seconds for name, seconds in self.parts.items() if name != "compute"}
        total = sum(self.parts.values()) or 1.0
        if sum(waiting.values()) < _MUCH * total:
            return "compute"
        return max(waiting, key=lambda name: waiting[name])


_MUCH = 0.25
