"""Where a training could run at a site: each allocation with its best layout, and what cannot work."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from foretell.advice.cpu_training import find_cpu_nodes
from foretell.advice.memory_remedies import list_memory_remedies, list_state_remedies
from foretell.advice.training_job import JobTime, TrainingJob
from foretell.advice.training_nodes import (
    CannotTrainError,
    GpuNodes,
    build_allocation,
    count_loaders,
    find_gpu_nodes,
    list_core_allocations,
    request_memory,
    scale_host,
)
from foretell.advice.training_plan import RecordedTraining
from foretell.core.devices import Device
from foretell.core.errors import NotFoundError, SpecError
from foretell.core.layouts import Layout, parse_layout
from foretell.core.memory import MemoryKind
from foretell.core.prediction import Estimate
from foretell.core.run import Allocation
from foretell.core.site import NodeType, Site
from foretell.core.topology import Topology
from foretell.core.units import render_bytes
from foretell.core.warning import PredictionWarning
from foretell.distributed.layout_search import LayoutChoice, LayoutSearch, RecordedStep
from foretell.memory.allocator_settings import AllocatorSettings
from foretell.memory.usage import measure_usage
from foretell.steps.step_predictor import StepPredictor, build_figure_predictor, find_step_predictor
from foretell.workloads.scripts.script_facts import estimate_host_bytes

_HOST = (0.8, 1.5)  # of the memory of a process that was measured here
OTHERS = 1  # layouts that are kept in addition to the best one
_RANKED = 4  # layouts of which the simplest is preferred
_CLOSE = 1.05  # times as long as the fastest: a simpler layout is not worth less


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An allocation that holds the training, with its fastest layout, or a simpler one that is about as fast."""

    node: NodeType
    allocation: Allocation
    choice: LayoutChoice
    others: tuple[LayoutChoice, ...]  # that fit as well, the fastest first
    step: Estimate  # from the code, and from runs where there are some
    time: JobTime
    batch: int  # examples of a step
    host: Estimate  # bytes of each node
    memory_bytes: int  # to request of each node
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def gpus(self) -> int:
        return self.allocation.gpus * self.allocation.nodes

    def with_step(self, step: Estimate, job: TrainingJob) -> "Candidate":
        """The same with another time of its step."""
        copies, loaders = self.choice.step.layout.copies, count_loaders(self.allocation, job)
        time = job.predict(step, gpus=max(1, self.gpus), copies=copies, workers=loaders)
        return replace(self, step=step, time=time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """An allocation on which the training does not work, why, and the least change with which it would."""

    site: str
    allocation: Allocation
    reason: str
    change: str = ""
    lacking_bytes: int = 0  # of each GPU
    elapsed_s: float = 0.0  # that is expected, where it is longer than a job may be
    remedies: tuple[str, ...] = ()  # what lowers the memory that is needed
    divides: bool = True  # whether so many GPUs can share the training at all


class Layouts(Protocol):
    """Predicts one recorded step by the layouts of GPUs; a :class:`LayoutSearch` does."""

    def predict(self, topology: Topology, layout: Layout, *, batch: int) -> LayoutChoice:
        """One layout, with so many examples on all GPUs."""
        ...

    def rank(self, topology: Topology, *, gpus: int, batch: int, most: int) -> list[LayoutChoice]:
        """The fastest layouts of so many GPUs that fit, at most so many; without one, that which needs least."""
        ...


def build_layouts(recorded: RecordedTraining, *, risk: float, level: float, learned: Path | None) -> Layouts:
    """The layouts of a recorded step, on devices that were learned or are known by their figures."""

    @cache
    def find_predictor(device: Device) -> StepPredictor:
        try:
            return find_step_predictor(device.name, learned=learned)
        except NotFoundError:
            return build_figure_predictor(device)

    step = RecordedStep(workload=recorded.workload, memory=recorded.memory)
    return LayoutSearch(step, find_predictor=find_predictor, risk=risk, level=level)


class CandidateSearch:
    """Tries every allocation of a site with every layout. One recorded step serves all of them."""

    def __init__(
        self,
        job: TrainingJob,
        recorded: RecordedTraining,
        layouts: Layouts,
        *,
        layout: str | None = None,
        level: float = 0.9,
        learned: Path | None = None,
        cpu: str | None = None,
    ) -> None:
        """``layout`` is the only one that is tried, ``"one"`` where the training cannot use several GPUs."""
        self.job, self.recorded, self.layout = job, recorded, layout
        self._layouts, self._level, self._learned, self._cpu = layouts, level, learned, cpu
        self._least_bytes = _measure_states(recorded) if layout is None else 0  # a named one may offload them

    def search(self, site: Site, on_progress: Callable[[str], None]) -> Iterator[Candidate | Obstacle]:
        """Every allocation of a site."""
        for node in site.node_types:
            on_progress(f"Comparing {node.name} of {site.name}…")
            try:
                yield from self._search_gpus(site, node) if node.gpus else self._search_cores(site, node)
            except (CannotTrainError, NotFoundError) as exc:
                whole = Allocation(cores=node.cores, gpus=node.gpus, partition=node.partition, node_type=node.name)
                yield Obstacle(site=site.name, allocation=whole, reason=str(exc))

    def _search_gpus(self, site: Site, node: NodeType) -> Iterator[Candidate | Obstacle]:
        facts = self.recorded.facts
        if facts is not None and not facts.gpu:
            raise CannotTrainError("the script asks for no GPU")
        nodes = find_gpu_nodes(node, precision=self.recorded.workload.settings.get("precision", "fp32"))
        for count, gpus in nodes.list_counts():
            if self.layout == "one" and count * gpus > 1:
                continue
            allocation = build_allocation(node, self.job, nodes=count, gpus=gpus)
            yield self._try(site, nodes, allocation)

    def _try(self, site: Site, nodes: GpuNodes, allocation: Allocation) -> Candidate | Obstacle:
        """The fastest layout of so many GPUs that fits, or a simpler one."""
        gpus = allocation.gpus * allocation.nodes
        if self._least_bytes / gpus > nodes.device.usable_memory_bytes:
            return self._describe_states(site, nodes.device, allocation)
        try:
            found = self._rank_layouts(nodes.topology, gpus)
        except SpecError as exc:
            return self._describe_undivided(site, allocation, exc)
        fitting = put_simple_first([choice for choice in found if choice.fits])
        if not fitting:
            remedies = tuple(list_memory_remedies(self.recorded, nodes.device))
            return replace(describe_misfit(site, nodes.device, allocation, found), remedies=remedies)
        warnings = (*fitting[0].step.warnings, *nodes.find_warnings(nodes=allocation.nodes, gpus=allocation.gpus))
        return self._build(nodes.node, allocation, fitting, warnings)

    def _describe_states(self, site: Site, device: Device, allocation: Allocation) -> Obstacle:
        """That what is trained does not even fit if the GPUs divide all of it."""
        least, usable = self._least_bytes / (allocation.gpus * allocation.nodes), device.usable_memory_bytes
        reason = (
            f"needs more than {render_bytes(least)} of the {render_bytes(usable)} of each {device.name} by any layout, "
            "for weights, gradients and optimizer states alone"
        )
        lacking = int(least) - usable + 1
        remedies = tuple(list_state_remedies(self.recorded, device))
        return Obstacle(site=site.name, allocation=allocation, reason=reason, lacking_bytes=lacking, remedies=remedies)

    def _rank_layouts(self, topology: Topology, gpus: int) -> list[LayoutChoice]:
        batch = self.job.count_batch(gpus) // self.recorded.in_step
        if self.layout is None:
            return self._layouts.rank(topology, gpus=gpus, batch=batch, most=_RANKED)
        layout = Layout() if gpus == 1 and self.layout in _ONE_COPY_EACH else parse_layout(self.layout, gpus=gpus)
        return [self._layouts.predict(topology, layout, batch=batch)]

    def _describe_undivided(self, site: Site, allocation: Allocation, exc: SpecError) -> Obstacle:
        """That a layout divides the model or the batch among so many GPUs nowhere."""
        gpus = allocation.gpus * allocation.nodes
        places = {mistake.place for mistake in exc.mistakes}
        if self.layout is not None and places & {"gpus", "layout"}:
            reason = f"so many cannot be shared by {self.layout}"
        elif "batch" in places or (self.layout is None and self.job.count_batch(gpus) % gpus):
            reason = f"so many cannot share the {self.job.count_batch(gpus):,} examples of a step"
        else:
            reason = "; ".join(f"{each.found}, but expected is {each.expected}" for each in exc.mistakes)
        return Obstacle(site=site.name, allocation=allocation, reason=reason, divides=False)

    def _search_cores(self, site: Site, node: NodeType) -> Iterator[Candidate | Obstacle]:
        nodes = find_cpu_nodes(node, learned=self._learned, device=self._cpu)
        for allocation in list_core_allocations(node):
            choice = nodes.predict(self.recorded.workload, cores=allocation.cores, level=self._level)
            yield self._build(node, allocation, [choice], choice.step.warnings)

    def _build(
        self,
        node: NodeType,
        allocation: Allocation,
        choices: Sequence[LayoutChoice],
        warnings: tuple[PredictionWarning, ...],
    ) -> Candidate:
        choice, gpus = choices[0], allocation.gpus * allocation.nodes
        step, layout = choice.step.step, choice.step.layout
        loaders = count_loaders(allocation, self.job)
        host = scale_host(self.job, allocation) if gpus else self._find_host_of_cores()
        return Candidate(
            node=node,
            allocation=allocation,
            choice=choice,
            others=tuple(choices[1 : OTHERS + 1]),
            step=step,
            time=self.job.predict(step, gpus=max(1, gpus), copies=layout.copies, workers=loaders),
            batch=self.job.count_batch(max(1, gpus)),
            host=host,
            memory_bytes=request_memory(node, allocation, host),
            warnings=warnings,
        )

    def _find_host_of_cores(self) -> Estimate:
        """Bytes of the host where the step's tensors are there as well."""
        facts, memory = self.recorded.facts, self.recorded.memory
        measured = estimate_host_bytes(facts) if facts is not None else None  # without the libraries of CUDA
        host = self.job.host
        if measured is not None:
            low, high = _HOST
            host = Estimate(value=measured, low=low * measured, high=high * measured, level=self._level)
        if memory is None:
            return host
        peak = measure_usage(memory, settings=AllocatorSettings.parse("")).allocated_bytes
        return Estimate(value=host.value + peak, low=host.low + peak, high=host.high + peak, level=host.level)


def _measure_states(recorded: RecordedTraining) -> int:
    """Bytes that all GPUs together hold at least, when the optimizer runs: weights, gradients and its states."""
    memory = recorded.memory
    if memory is None:
        return 0
    gradients = sum(gradient.bytes_ for gradient in recorded.workload.gradients)
    return memory.measure(MemoryKind.WEIGHTS) + memory.measure(MemoryKind.OPTIMIZER) + gradients


def put_simple_first(choices: Sequence[LayoutChoice]) -> list[LayoutChoice]:
    """The simplest layout of those that are about as fast as the fastest, then the others."""
    if not choices:
        return []
    most = _CLOSE * min(choice.step.step.value for choice in choices)
    close = [choice for choice in choices if choice.step.step.value <= most]
    simplest = min(close, key=lambda choice: _count_words(choice.step.layout))
    return [simplest, *(choice for choice in choices if choice is not simplest)]


def _count_words(layout: Layout) -> int:
    """What a training must do besides copying its model (DistributedDataParallel)."""
    inside = (layout.tensor_parallel, layout.pipeline_parallel, layout.context_parallel, layout.expert_parallel)
    divided = layout.data_parallel not in ("", "ddp")
    return divided + 2 * sum(size > 1 for size in inside) + (layout.interleave > 1)


_ONE_COPY_EACH = ("one", "ddp", "fsdp", "zero1", "zero2", "zero3")


def describe_misfit(site: Site, device: Device, allocation: Allocation, choices: Sequence[LayoutChoice]) -> Obstacle:
    """That no layout fits the GPUs, by the one that lacks least."""
    known = [choice for choice in choices if choice.needed is not None]
    if not known:
        return Obstacle(site=site.name, allocation=allocation, reason="no layout divides the training among them")
    least = min(known, key=lambda choice: choice.needed.high if choice.needed else 0.0)
    assert least.needed is not None
    usable = device.usable_memory_bytes
    reason = (
        f"needs {render_bytes(least.needed.value)} (up to {render_bytes(least.needed.high)}) of the "
        f"{render_bytes(usable)} of each {device.name}, at best by {least.step.layout}"
    )
    lacking = max(1, int(least.needed.high) - usable)
    return Obstacle(site=site.name, allocation=allocation, reason=reason, lacking_bytes=lacking)
