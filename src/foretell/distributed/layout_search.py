"""The layouts by which GPUs can share a training step: the time and the memory of each, and which is best."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from foretell.core.devices import Device
from foretell.core.errors import Mistake, SpecError
from foretell.core.layouts import Layout
from foretell.core.memory import MemoryTrace
from foretell.core.prediction import Estimate
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.distributed.layout_candidates import LayoutCandidates
from foretell.distributed.layout_memory import LayoutMemory
from foretell.distributed.parallel_predictor import ParallelPredictor
from foretell.distributed.parallel_results import ParallelStep
from foretell.distributed.step_dimensions import resize_batch
from foretell.memory.forecast import forecast
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
        self._memory = LayoutMemory(step.memory)

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
        candidates = list(self._candidates.list_all(topology, gpus))
        usable = topology.device.usable_memory_bytes or math.inf
        fitting = [layout for layout in candidates if self._memory.find_least(layout) <= usable]
        timed = self._time_all(topology, fitting, batch, micro_batch)
        choices = self._list_fitting(topology, timed, most)
        if choices:
            return choices
        smallest = self._time_one_by_one(topology, sorted(candidates, key=self._memory.find_least), batch, micro_batch)
        for step in chain(sorted(timed, key=self._rank_need), smallest):
            with suppress(SpecError):  # of a model whose memory cannot be divided so
                return [self._check_memory(topology, step)]
        if micro_batch is not None and batch > 0 and batch % gpus == 0:
            _check_micro_batch(micro_batch, batch // gpus)
        expected = f"a batch that {gpus} GPUs can share, such as {gpus}"
        raise SpecError("the layout", [Mistake(place="batch", found=str(batch), expected=expected)])

    def _time_all(
        self, topology: Topology, layouts: Sequence[Layout], batch: int, micro_batch: int | None
    ) -> list[ParallelStep]:
        """The steps of the layouts that divide the batch, the fastest first."""
        return sorted(self._time_one_by_one(topology, layouts, batch, micro_batch), key=_rank)

    def _time_one_by_one(
        self, topology: Topology, layouts: Sequence[Layout], batch: int, micro_batch: int | None
    ) -> Iterator[ParallelStep]:
        """The steps of each layout that divides the batch, those with fewest examples at once first."""
        for layout in layouts:
            with suppress(SpecError):
                yield from sorted(self._time_sizes(topology, layout, batch, micro_batch), key=self._rank_need)

    def _list_fitting(self, topology: Topology, timed: Sequence[ParallelStep], most: int) -> list[LayoutChoice]:
        """The fastest that fit, each layout once."""
        fitting: list[LayoutChoice] = []
        sizes = _SizesThatFit(timed)
        for step in timed:
            if sizes.can_fit(step):
                choice = self._find_fitting(topology, step)
                sizes.note(step, fits=choice is not None)
                fitting += [choice] if choice else []
            if len(fitting) == most:
                break
        return fitting

    def _find_fitting(self, topology: Topology, step: ParallelStep) -> LayoutChoice | None:
        """None if it does not fit, or if the memory of the model cannot be divided so."""
        usable = topology.device.usable_memory_bytes or math.inf
        with suppress(SpecError):
            if self._memory.find_live_bytes(step) <= usable:
                choice = self._check_memory(topology, step)
                return choice if choice.fits else None
        return None

    def _rank_need(self, step: ParallelStep) -> tuple[float, int]:
        """What a GPU holds at least, and then examples at once."""
        return self._memory.find_least(step.layout), step.workload.batch

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

    def _check_memory(self, topology: Topology, step: ParallelStep) -> LayoutChoice:
        device = topology.device
        usage = self._memory.measure(step) if device.memory_bytes > 0 else None
        if usage is None:
            return LayoutChoice(step=step)
        found = forecast(usage, device, level=self.level)
        risk = found.find_risk(device.usable_memory_bytes)
        return LayoutChoice(step=step, needed=found.needed, risk=risk, fits=risk <= self.risk)


class _SizesThatFit:
    """Of each layout, the numbers of examples at once that may still fit, and are not slower than one that does."""

    def __init__(self, timed: Sequence[ParallelStep]) -> None:
        self._limits: dict[Layout, int] = {}
        for step in timed:
            shape = _find_shape(step)
            self._limits[shape] = max(self._limits.get(shape, 0), step.workload.batch)

    def can_fit(self, step: ParallelStep) -> bool:
        return step.workload.batch <= self._limits[_find_shape(step)]

    def note(self, step: ParallelStep, *, fits: bool) -> None:
        """Others are slower if it fits; as many examples or more do not fit if it does not."""
        self._limits[_find_shape(step)] = 0 if fits else step.workload.batch - 1


def _find_shape(step: ParallelStep) -> Layout:
    return replace(step.layout, micro_batches=0)


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
