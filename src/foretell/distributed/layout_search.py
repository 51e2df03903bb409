"""The layouts by which GPUs can share a training step: the time and the memory of each, and which is best."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

from foretell.core.devices import Device
from foretell.core.errors import Mistake, SpecError
from foretell.core.layouts import Layout
from foretell.core.memory import MemoryTrace
from foretell.core.prediction import Estimate
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.distributed.layout_candidates import LayoutCandidates
from foretell.distributed.parallel_predictor import ParallelPredictor
from foretell.distributed.parallel_results import ParallelStep
from foretell.distributed.step_dimensions import resize_batch
from foretell.memory.batch_shares import hold_gradients, resize_activations
from foretell.memory.forecast import MemoryForecast, forecast
from foretell.memory.layout_shards import apply_layout
from foretell.memory.usage import measure_usage
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
        self._candidates = LayoutCandidates(step.workload)
        self._workloads = {step.workload.batch: step.workload}
        self._predictors: dict[Topology, ParallelPredictor] = {}
        self._forecasts: dict[tuple[Layout, int, bool, Device], MemoryForecast] = {}

    def predict(
        self, topology: Topology, layout: Layout, *, batch: int, micro_batch: int | None = None
    ) -> LayoutChoice:
        """One layout, with those batches at once that are fastest of those that fit.

        Raises:
            SpecError: The layout does not divide the model or the batch.
        """
        timed = self._time_sizes(topology, layout, batch, micro_batch)
        choices = (self._check_memory(topology, step) for step in timed)
        found = []
        for choice in choices:
            found.append(choice)
            if choice.fits:
                return choice
        return min(found, key=lambda each: each.needed.value if each.needed else 0.0)

    def rank(
        self, topology: Topology, *, gpus: int, batch: int, micro_batch: int | None = None, most: int = 10
    ) -> list[LayoutChoice]:
        """The fastest layouts of so many GPUs that fit, at most ``most``; if none fits, that which needs least.

        Raises:
            SpecError: No layout divides the batch.
        """
        timed: list[ParallelStep] = []
        for layout in self._candidates.list_all(topology, gpus):
            with suppress(SpecError):
                timed += self._time_sizes(topology, layout, batch, micro_batch)
        if not timed:
            expected = f"a batch that {gpus} GPUs can share, such as {gpus}"
            raise SpecError("the layout", [Mistake(place="batch", found=str(batch), expected=expected)])
        return self._choose(topology, sorted(timed, key=_rank), most)

    def _choose(self, topology: Topology, timed: Sequence[ParallelStep], most: int) -> list[LayoutChoice]:
        fitting: list[LayoutChoice] = []
        least: LayoutChoice | None = None
        known: set[Layout] = set()
        for step in timed:
            shape = replace(step.layout, micro_batches=0)
            if shape in known:
                continue  # with other batches at once, the layout is faster
            choice = self._check_memory(topology, step)
            if choice.fits:
                known.add(shape)
                fitting.append(choice)
            elif least is None or (choice.needed and least.needed and choice.needed.value < least.needed.value):
                least = choice
            if len(fitting) == most:
                break
        return fitting or ([least] if least else [])

    # Times

    def _time_sizes(
        self, topology: Topology, layout: Layout, batch: int, micro_batch: int | None
    ) -> list[ParallelStep]:
        """The step with each number of examples at once, the fastest first."""
        own = self._divide_batch(layout, batch)
        if micro_batch is not None:
            sizes = [_check_micro_batch(micro_batch, own)]
        elif layout.micro_batches:
            sizes = [_check_count(layout, own)]
        else:
            sizes = _list_sizes(layout, own)
        return sorted((self._time(topology, layout, own, size) for size in sizes), key=_rank)

    def _time(self, topology: Topology, layout: Layout, own: int, size: int) -> ParallelStep:
        batches = own // size
        if layout.pipeline_parallel > 1:
            layout = replace(layout, micro_batches=batches)
        predictor = self._find(topology)
        return predictor.predict(self._resize(size), [layout], accumulation=batches, level=self.level)[0]

    def _divide_batch(self, layout: Layout, batch: int) -> int:
        """Examples of each copy of the model."""
        if batch < 1 or batch % layout.copies:
            expected = f"a multiple of {layout.copies}, the copies of the model by {layout} on {layout.gpus} GPUs"
            raise SpecError("the layout", [Mistake(place="batch", found=str(batch), expected=expected)])
        return batch // layout.copies

    def _find(self, topology: Topology) -> ParallelPredictor:
        if topology not in self._predictors:
            self._predictors[topology] = ParallelPredictor(self._find_predictor(topology.device), topology)
        return self._predictors[topology]

    def _resize(self, size: int) -> Workload:
        if size not in self._workloads:
            self._workloads[size] = resize_batch(self.step.workload, size)
        return self._workloads[size]

    # Memory

    def _check_memory(self, topology: Topology, step: ParallelStep) -> LayoutChoice:
        device = topology.device
        if self.step.memory is None or device.memory_bytes <= 0:
            return LayoutChoice(step=step)
        key = step.layout, step.workload.batch, step.micro_batches > 1, device
        if key not in self._forecasts:
            self._forecasts[key] = self._forecast(self.step.memory, device, step)
        found = self._forecasts[key]
        risk = found.find_risk(device.usable_memory_bytes)
        return LayoutChoice(step=step, needed=found.needed, risk=risk, fits=risk <= self.risk)

    def _forecast(self, trace: MemoryTrace, device: Device, step: ParallelStep) -> MemoryForecast:
        shared = apply_layout(resize_activations(trace, Fraction(step.workload.batch, trace.batch)), step.layout)
        if step.micro_batches > 1:
            shared = hold_gradients(shared)
        return forecast(measure_usage(shared), device, level=self.level)


def _rank(step: ParallelStep) -> float:
    return step.step.value / step.examples


def _list_sizes(layout: Layout, own: int) -> list[int]:
    """Examples at once, by powers of two. A pipeline needs as many batches as stages, or it waits most of the time."""
    divisors = [each for each in range(1, own + 1) if own % each == 0]
    sizes = sorted({max(each for each in divisors if each <= 2**power) for power in range(own.bit_length() + 1)})
    stages = layout.pipeline_parallel
    whole = [each for each in sizes if layout.interleave == 1 or (own // each) % stages == 0]
    busy = [each for each in whole if own // each >= stages]
    if not whole:
        raise _refuse_interleave(layout, own)
    return busy or whole[:1]


def _refuse_interleave(layout: Layout, own: int) -> SpecError:
    expected = f"a multiple of the {layout.pipeline_parallel} stages, which interleave={layout.interleave} needs"
    return SpecError("the layout", [Mistake(place="batch", found=f"{own} for each copy", expected=expected)])


def _check_micro_batch(size: int, own: int) -> int:
    if size < 1 or own % size:
        expected = f"a divisor of {own}, the examples of each copy of the model in a step"
        raise SpecError("the layout", [Mistake(place="micro-batch", found=str(size), expected=expected)])
    return size


def _check_count(layout: Layout, own: int) -> int:
    if own % layout.micro_batches:
        expected = f"a divisor of {own}, the examples of each copy of the model in a step"
        raise SpecError("the layout", [Mistake(place="micro", found=str(layout.micro_batches), expected=expected)])
    return own // layout.micro_batches
