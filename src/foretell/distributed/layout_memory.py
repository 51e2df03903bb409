"""The memory of each GPU by the layouts of one recorded step; what layouts have in common is found once."""

from fractions import Fraction
from typing import TypeAlias

from foretell.core.layouts import Layout
from foretell.core.memory import MemoryTrace
from foretell.distributed.parallel_results import ParallelStep
from foretell.memory.batch_shares import hold_gradients, resize_activations
from foretell.memory.layout_shards import apply_layout
from foretell.memory.least_memory import LeastMemory
from foretell.memory.pipeline_stages import find_live_peak
from foretell.memory.usage import MemoryUsage, measure_usage

_Key: TypeAlias = tuple[Layout, int, bool]


class LayoutMemory:
    """Memory by layouts, from fast bounds to what the allocator reserves. Without a trace, nothing is known."""

    def __init__(self, trace: MemoryTrace | None) -> None:
        self._trace = trace
        self._states = LeastMemory(trace)
        self._usages: dict[_Key, MemoryUsage] = {}
        self._live: dict[_Key, int] = {}

    def find_least(self, layout: Layout) -> float:
        """Bytes of weights and states of the optimizer, which are there all the time."""
        return self._states.find_least(layout)

    def find_live_bytes(self, step: ParallelStep) -> int:
        """The blocks that live at once, which the allocator needs at least.

        Raises:
            SpecError: The memory of the model cannot be divided so.
        """
        if self._trace is None:
            return 0
        key = _find_key(step)
        if key not in self._live:
            self._live[key] = find_live_peak(_share(self._trace, step))
        return self._live[key]

    def measure(self, step: ParallelStep) -> MemoryUsage | None:
        """What a GPU uses, whatever its device; None without a trace.

        Raises:
            SpecError: The memory of the model cannot be divided so.
        """
        if self._trace is None:
            return None
        key = _find_key(step)
        if key not in self._usages:
            self._usages[key] = measure_usage(_share(self._trace, step))
        return self._usages[key]


def _share(trace: MemoryTrace, step: ParallelStep) -> MemoryTrace:
    shared = apply_layout(resize_activations(trace, Fraction(step.workload.batch, trace.batch)), step.layout)
    return hold_gradients(shared) if step.micro_batches > 1 else shared


def _find_key(step: ParallelStep) -> _Key:
    """What the memory of a step depends on, besides the device."""
    return step.layout, step.workload.batch, step.micro_batches > 1
