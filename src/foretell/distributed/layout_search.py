"""The layouts by which GPUs can share a training step: the time and the memory of each, and which is best."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from foretell.core.devices import Device
from foretell.core.layouts import Layout
from foretell.core.memory import MemoryTrace
from foretell.core.prediction import Estimate
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.distributed.parallel_predictor import ParallelPredictor
from foretell.distributed.parallel_results import ParallelStep
from foretell.steps.step_predictor import StepPredictor


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One batch of a training step on one GPU, as it was read: its operators, and its blocks of memory if known."""

    workload: Workload
    memory: MemoryTrace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChoice:
    """A layout with its predicted step, and whether it fits into the memory of each GPU."""

    step: ParallelStep
    needed: Estimate | None = None  # bytes of the GPU that holds most; None where the memory of the step is unknown
    risk: float = 0.0  # the chance that it does not fit
    fits: bool = True


class LayoutSearch:
    """Predicts a recorded step by any layout on any GPUs, and searches the best layouts.

    ``batch`` is always that of all GPUs in one step: it is divided among the copies of the model, and into batches
    that are accumulated where one of them would not fit.
    """

    def __init__(
        self,
        step: RecordedStep,
        *,
        find_predictor: Callable[[Device], StepPredictor],
        risk: float = 0.05,
        level: float = 0.9,
    ) -> None:
        self.step, self.risk, self.level = step, risk, level
        self._find_predictor = find_predictor

    def predict(self, topology: Topology, layout: Layout, *, batch: int) -> LayoutChoice:
        """One layout.

        Raises:
            SpecError: The layout does not divide the model or the batch.
        """
        predictor = ParallelPredictor(self._find_predictor(topology.device), topology)
        return LayoutChoice(step=predictor.predict(self.step.workload, [layout], level=self.level)[0])

    def rank(self, topology: Topology, *, gpus: int, batch: int) -> list[LayoutChoice]:
        """The layouts of so many GPUs: those that fit first, the fastest of them first."""
        found = [self.predict(topology, layout, batch=batch) for layout in _list_layouts(gpus)]
        return sorted(found, key=lambda choice: (not choice.fits, choice.step.step.value))


def _list_layouts(gpus: int) -> Iterator[Layout]:
    yield Layout(gpus=gpus, data_parallel="ddp" if gpus > 1 else "")
