"""The memory that a step uses on one device: its peak, what holds it then, and its course over the step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from foretell.core.memory import Integers, MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase
from foretell.memory.allocator_settings import AllocatorSettings
from foretell.memory.caching_allocator import OutOfMemory, replay
from foretell.memory.step_events import StepEvents, repeat_steps

STEPS = 3  # after which the allocator has found its form
_BOTH = 2
_ROUNDING = 512  # bytes of which every block is a multiple


class Holder(NamedTuple):
    """What an operator of a layer holds at the peak."""

    operator: str
    layer: str
    kind: MemoryKind
    bytes_: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryUsage:
    """What PyTorch's allocator gives to a step (allocated), and what it takes from the device for that (reserved)."""

    trace: MemoryTrace
    allocated_bytes: int
    reserved_bytes: int
    parts: dict[MemoryKind, int]  # of the allocated bytes, at their peak
    rest_bytes: int  # of blocks that are larger than what was asked for, because the rest is too small to be split off
    holders: tuple[Holder, ...]  # at the peak, the largest first
    operator: str  # that ran at the peak
    layer: str
    phase: StepPhase
    allocated_curve: Integers  # of the last step, or of both that were recorded, after each event
    reserved_curve: Integers
    phases: tuple[tuple[int, StepPhase], ...]  # first event of each, in the curves
    out_of_memory: OutOfMemory | None = None

    @property
    def unused_bytes(self) -> int:
        """Bytes that the allocator reserves beyond the peak of what is allocated: its fragmentation."""
        return self.reserved_bytes - self.allocated_bytes


def measure_usage(trace: MemoryTrace, *, settings: AllocatorSettings | None = None, steps: int = STEPS) -> MemoryUsage:
    """Replay several steps with the allocator of PyTorch; two if the second is not like all later ones."""
    if trace.second == len(trace.events):  # a script took one step only
        steps = _BOTH
    repeated = repeat_steps(trace, steps)
    initial = repeated.find_initial()
    events = np.concatenate([initial + 1, repeated.events])
    sizes = trace.sizes[repeated.blocks]
    used = replay(events, sizes, settings)
    peak = used.peak_allocated_event if used.out_of_memory is None else used.out_of_memory.event - 1
    live = used.live_blocks(peak)
    rounded = -(-sizes[live] // _ROUNDING) * _ROUNDING
    recorded = repeated.blocks[live]
    place, phase = _find_moment(trace, repeated, peak - len(initial))
    first = trace.second if steps > _BOTH else 0  # event of the recording with which the curves begin
    begin = min(len(initial) + len(repeated.events) - (len(trace.events) - first), len(used.events))
    parts = _sum_kinds(trace.kinds[recorded], rounded)
    return MemoryUsage(
        trace=trace,
        allocated_bytes=used.peak_allocated_bytes,
        reserved_bytes=used.peak_reserved_bytes,
        parts=parts,
        rest_bytes=used.peak_allocated_bytes - sum(parts.values()),
        holders=_rank_holders(trace, recorded, rounded),
        operator=place[0],
        layer=place[1],
        phase=phase,
        allocated_curve=used.allocated_bytes[begin:],
        reserved_curve=used.reserved_bytes[begin:],
        phases=tuple((event - first, each) for event, each in trace.phases if event >= first),
        out_of_memory=used.out_of_memory,
    )


def _sum_kinds(kinds: Integers, sizes: Integers) -> dict[MemoryKind, int]:
    sums = np.bincount(kinds, weights=sizes, minlength=len(MemoryKind))
    return {kind: int(sums[kind]) for kind in MemoryKind if sums[kind]}


def _rank_holders(trace: MemoryTrace, blocks: Integers, sizes: Integers) -> tuple[Holder, ...]:
    found: dict[tuple[int, int], list[int]] = {}
    for block, size in zip(blocks.tolist(), sizes.tolist(), strict=True):
        held = found.setdefault((int(trace.owners[block]), int(trace.kinds[block])), [0, 0])
        held[0] += size
        held[1] += 1
    holders = [
        Holder(*trace.owner_names[owner], MemoryKind(kind), size, count)
        for (owner, kind), (size, count) in found.items()
    ]
    return tuple(sorted(holders, key=lambda each: -each.bytes_))


def _find_moment(trace: MemoryTrace, steps: StepEvents, event: int) -> tuple[tuple[str, str], StepPhase]:
    """What ran at an event of repeated steps, and in which phase."""
    if event < 0:
        return ("", ""), StepPhase.FORWARD
    length = len(trace.events) - trace.second
    recorded = event if event < len(trace.events) else trace.second + (event - trace.second) % length
    return trace.owner_names[int(steps.places[event])], _find_phase(trace.phases, recorded)


def _find_phase(phases: Sequence[tuple[int, StepPhase]], event: int) -> StepPhase:
    found = StepPhase.FORWARD
    for begin, phase in phases:
        if begin <= event:
            found = phase
    return found
