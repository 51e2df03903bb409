"""What PyTorch's CUDA caching allocator reserves for a sequence of allocations, by its own rules, without a GPU.

The rules are those of c10/cuda/CUDACachingAllocator.cpp in PyTorch 2, for one stream and the default memory pool. Not
replayed: other streams (each has blocks of its own), private pools of CUDA graphs, and callbacks that free memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from sys import maxsize

import numpy as np

from foretell.core.errors import DeviceMemoryError
from foretell.core.memory import Integers
from foretell.core.units import render_bytes
from foretell.memory.allocator_settings import MIB, AllocatorSettings
from foretell.memory.block_pools import (
    MAX_SMALL_REQUEST,
    MIN_BLOCK,
    AddressSpace,
    AgingBlockPool,
    BlockPool,
    ExpandablePool,
)

EMPTY_CACHE = 0
MAX_REQUEST = 2**45  # bytes: more than any device has, and far from the end of our addresses


class CachingAllocator:
    """Allocates and frees blocks as PyTorch does, and counts as ``torch.cuda.memory_stats`` does.

    The public attributes are the counts: current values, their peaks, and numbers of calls. ``allocated_bytes`` are
    the sizes of the blocks in use, ``inactive_split_bytes`` the free bytes in segments with blocks in use, which cannot
    be returned to the device (0 for expandable segments, as in PyTorch), ``device_allocations`` the calls of cudaMalloc
    or cuMemMap, and ``retries`` the times that all that could be was released before a last attempt.
    """

    def __init__(self, settings: AllocatorSettings | None = None) -> None:
        self.settings = settings or AllocatorSettings()
        self.allocated_bytes = self.peak_allocated_bytes = 0
        self.requested_bytes = self.peak_requested_bytes = 0
        self.reserved_bytes = self.peak_reserved_bytes = 0
        self.peak_inactive_split_bytes = 0
        self.device_allocations = self.device_frees = self.retries = 0
        addresses = AddressSpace()
        self._collects = (
            self.settings.garbage_collection_threshold is not None
            and self.settings.memory_limit is not None
            and not self.settings.expandable_segments
        )
        small_pool = ExpandablePool if self.settings.expandable_segments else BlockPool
        large_pool = AgingBlockPool if self._collects else small_pool
        self._small = small_pool(self.settings, addresses, small=True)
        self._large = large_pool(self.settings, addresses, small=False)
        self._divisions = self.settings.division_intervals
        self._live: dict[int, tuple[BlockPool, int, int]] = {}

    def allocate(self, requested_bytes: int) -> int:
        """The address of a block of at least as many bytes; 0 for no bytes, which take no block.

        Raises:
            DeviceMemoryError: The device has no memory left for it, also after all that could be was released.
        """
        if requested_bytes <= 0:
            return _check_empty(requested_bytes)
        if self._divisions is None:
            size = (requested_bytes + MIN_BLOCK - 1) & -MIN_BLOCK
        else:
            size = _round_up(requested_bytes, self._divisions)
        pool = self._small if size <= MAX_SMALL_REQUEST else self._large
        position = pool.find(size)
        if position < 0:
            position = self._grow(pool, size, requested_bytes)
        address, size = pool.take(position, size)
        self._live[address] = (pool, size, requested_bytes)
        self.allocated_bytes += size
        self.requested_bytes += requested_bytes
        if self.allocated_bytes > self.peak_allocated_bytes:
            self.peak_allocated_bytes = self.allocated_bytes
        if self.requested_bytes > self.peak_requested_bytes:
            self.peak_requested_bytes = self.requested_bytes
        self._keep_inactive_peak()
        return address

    def free(self, address: int) -> None:
        """Give a block back to the cache; nothing for the address 0.

        Raises:
            KeyError: No block in use has this address.
        """
        if not address:
            return
        pool, size, requested_bytes = self._live.pop(address)
        pool.give_back(address, size)
        self.allocated_bytes -= size
        self.requested_bytes -= requested_bytes
        self._keep_inactive_peak()

    def empty_cache(self) -> None:
        """Return to the device all that no block in use needs, as ``torch.cuda.empty_cache`` does."""
        for pool in (self._large, self._small):
            for size in pool.release():
                self._count_release(size)

    @property
    def inactive_split_bytes(self) -> int:
        """Free bytes that fragmentation keeps reserved."""
        if self.settings.expandable_segments:
            return 0
        return self.reserved_bytes - self.allocated_bytes - self._small.idle_bytes - self._large.idle_bytes

    def live_blocks(self) -> Mapping[int, tuple[int, int]]:
        """The blocks in use by their address: the size of the block, and what was requested."""
        return {address: (size, requested) for address, (_, size, requested) in self._live.items()}

    def _keep_inactive_peak(self) -> None:
        inactive = self.inactive_split_bytes
        if inactive > self.peak_inactive_split_bytes:
            self.peak_inactive_split_bytes = inactive

    def _grow(self, pool: BlockPool, size: int, requested_bytes: int) -> int:
        """The position of a free block after the device gave memory for it; what is cached is released if need be."""
        if self._collects:
            self._collect_garbage()
        position = self._ask_device(pool, size)
        if position < 0:
            enough, released = pool.release_oversize(size)
            for released_size in released:
                self._count_release(released_size)
            position = self._ask_device(pool, size) if enough else -1
        if position < 0:
            self.empty_cache()
            self.retries += 1
            position = self._ask_device(pool, size)
        if position < 0:
            raise DeviceMemoryError(
                _describe_shortage(self, pool.segment_size(size)),
                requested_bytes=requested_bytes,
                allocated_bytes=self.allocated_bytes,
                reserved_bytes=self.reserved_bytes,
            )
        return position

    def _ask_device(self, pool: BlockPool, size: int) -> int:
        limit, capacity = self.settings.memory_limit, self.settings.capacity
        if limit is not None and self.reserved_bytes + pool.segment_size(size) > limit:
            return -1
        available = maxsize if capacity is None else capacity - self.reserved_bytes
        position, reserved = pool.grow(size, available)
        self.reserved_bytes += sum(reserved)
        self.device_allocations += len(reserved)
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return position

    def _collect_garbage(self) -> None:
        threshold, limit = self.settings.garbage_collection_threshold, self.settings.memory_limit
        assert threshold is not None
        assert limit is not None
        assert isinstance(self._large, AgingBlockPool)
        for size in self._large.collect(self.reserved_bytes - int(threshold * limit)):
            self._count_release(size)

    def _count_release(self, size: int) -> None:
        self.reserved_bytes -= size
        self.device_frees += 1


def _check_empty(requested_bytes: int) -> int:
    if requested_bytes < 0:
        raise ValueError(f"an allocation of {requested_bytes} bytes; expected 0 or more")
    return 0


def _round_up(requested_bytes: int, divisions: tuple[int, ...]) -> int:
    """A size rounded up to the next of some equal parts between two powers of two, or to 512 bytes if that is more."""
    exponent = requested_bytes.bit_length() - 1
    parts = divisions[min(max(exponent - MIB.bit_length() + 1, 0), len(divisions) - 1)]
    step = MIN_BLOCK
    if parts > 1 and requested_bytes > MIN_BLOCK * parts:
        step = 2**exponent // parts
    return -(-requested_bytes // step) * step


def _describe_shortage(allocator: CachingAllocator, tried_bytes: int) -> str:
    settings = allocator.settings
    bounds = [bound for bound in (settings.capacity, settings.memory_limit) if bound is not None]
    unused = allocator.reserved_bytes - allocator.allocated_bytes
    fragmented = not settings.expandable_segments and allocator.allocated_bytes + tried_bytes <= min(bounds)
    hint = "try expandable_segments:True, or " if fragmented else "take "
    reserved = f"{render_bytes(allocator.reserved_bytes)} reserved ({render_bytes(unused)} of it unused)"
    return (
        f"out of device memory: {render_bytes(tried_bytes)} more than the {reserved} "
        f"do not fit into {render_bytes(min(bounds))}; {hint}"
        "a smaller batch, or a device with more memory"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """The allocation that did not fit, and what was in use then."""

    event: int
    block: int
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocatorUsage:
    """What a replay used: the curves after each event, up to the last one that fitted, and the peaks.

    A peak's event is the first at which it was reached, -1 if there is none. The peak of the reserved bytes can be
    above its curve: what a failed attempt maps and releases again counts, as in ``torch.cuda.max_memory_reserved``.
    """

    events: Integers
    allocated_bytes: Integers
    requested_bytes: Integers
    reserved_bytes: Integers
    peak_allocated_bytes: int
    peak_allocated_event: int
    peak_requested_bytes: int
    peak_requested_event: int
    peak_reserved_bytes: int
    peak_reserved_event: int
    peak_inactive_split_bytes: int
    device_allocations: int
    device_frees: int
    retries: int
    out_of_memory: OutOfMemory | None

    def live_blocks(self, event: int) -> Integers:
        """The numbers of the blocks in use after an event, in ascending order."""
        return _find_live(self.events[: event + 1])


def replay(events: Integers, sizes: Integers, settings: AllocatorSettings | None = None) -> AllocatorUsage:
    """What the allocator uses for a sequence of events.

    ``n + 1`` allocates block n, of ``sizes[n]`` bytes, ``-(n + 1)`` frees it, and 0 empties the cache. A block can be
    allocated again after it was freed. The replay ends at an allocation that does not fit.

    Raises:
        ValueError: A block is allocated twice, freed while it is not in use, or has no size.
    """
    events, sizes = np.asarray(events, dtype=np.int64), np.asarray(sizes, dtype=np.int64)
    _check_events(events, sizes)
    allocator = CachingAllocator(settings)
    allocate, free = allocator.allocate, allocator.free
    requested = sizes.tolist()
    addresses = [0] * len(requested)
    allocated: list[int] = []
    reserved: list[int] = []
    peak_reserved, peak_reserved_event = 0, -1
    shortage = None
    for number, event in enumerate(events.tolist()):
        if event > 0:
            try:
                addresses[event - 1] = allocate(requested[event - 1])
            except DeviceMemoryError as exc:
                shortage = _describe_failure(exc, event=number, block=event - 1)
        elif event < 0:
            free(addresses[-event - 1])
        else:
            allocator.empty_cache()
        if allocator.peak_reserved_bytes > peak_reserved:
            peak_reserved, peak_reserved_event = allocator.peak_reserved_bytes, number
        if shortage is not None:
            break
        allocated.append(allocator.allocated_bytes)
        reserved.append(allocator.reserved_bytes)
    made = events[: len(allocated)]
    curves = [np.array(allocated, dtype=np.int64), _sum_requested(made, sizes)]
    return AllocatorUsage(
        events=made,
        allocated_bytes=curves[0],
        requested_bytes=curves[1],
        reserved_bytes=np.array(reserved, dtype=np.int64),
        peak_allocated_bytes=allocator.peak_allocated_bytes,
        peak_allocated_event=_find_peak(curves[0]),
        peak_requested_bytes=allocator.peak_requested_bytes,
        peak_requested_event=_find_peak(curves[1]),
        peak_reserved_bytes=allocator.peak_reserved_bytes,
        peak_reserved_event=peak_reserved_event,
        peak_inactive_split_bytes=allocator.peak_inactive_split_bytes,
        device_allocations=allocator.device_allocations,
        device_frees=allocator.device_frees,
        retries=allocator.retries,
        out_of_memory=shortage,
    )


def _check_events(events: Integers, sizes: Integers) -> None:
    wrong = (sizes < 0) | (sizes > MAX_REQUEST)
    if wrong.any():
        block = int(wrong.argmax())
        raise ValueError(f"block {block} has {int(sizes[block])} bytes; expected 0 to {MAX_REQUEST}")
    blocks = np.abs(events)
    if len(blocks) and blocks.max() > len(sizes):
        raise ValueError(f"an event of block {int(blocks.max()) - 1}; there are sizes of {len(sizes)} blocks")
    order = np.argsort(blocks, kind="stable")
    order = order[blocks[order] > 0]
    allocates = events[order] > 0
    first = np.diff(blocks[order], prepend=0) != 0
    wrong = np.where(first, ~allocates, allocates == np.roll(allocates, 1))
    if wrong.any():
        event = int(order[wrong].min())
        done = "allocated while it is in use" if events[event] > 0 else "freed while it is not in use"
        raise ValueError(f"event {event}: block {int(blocks[event]) - 1} is {done}")


def _sum_requested(events: Integers, sizes: Integers) -> Integers:
    padded = np.concatenate([np.zeros(1, dtype=np.int64), sizes])
    return np.cumsum(np.sign(events) * padded[np.abs(events)])


def _find_peak(curve: Integers) -> int:
    return int(curve.argmax()) if len(curve) and curve.max() > 0 else -1


def _find_live(events: Integers) -> Integers:
    allocated, allocations = np.unique(events[events > 0], return_counts=True)
    freed, frees = np.unique(-events[events < 0], return_counts=True)
    live = allocations.copy()
    live[np.searchsorted(allocated, freed)] -= frees
    return allocated[live > 0] - 1


def _describe_failure(error: DeviceMemoryError, *, event: int, block: int) -> OutOfMemory:
    return OutOfMemory(
        event=event,
        block=block,
        requested_bytes=error.requested_bytes,
        allocated_bytes=error.allocated_bytes,
        reserved_bytes=error.reserved_bytes,
        reason=str(error),
    )
