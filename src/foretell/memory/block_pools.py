"""The blocks that a caching allocator keeps for reuse: found by best fit, split when taken, merged when given back.

An address is a number of bytes in a space of our own, in which no two segments touch: where two free blocks touch, they
are of one segment and may merge. cudaMalloc chooses other addresses, which matters only between free blocks of the
same size in different segments: the lowest address is taken, here the oldest segment.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from sys import maxsize

from foretell.memory.allocator_settings import MIB, MIN_LARGE_REQUEST, AllocatorSettings

MIN_BLOCK = 512
MAX_SMALL_REQUEST = MIB
_SMALL_SEGMENT = 2 * MIB
_LARGE_ROUNDING = 2 * MIB
_UNLIMITED_SPAN = 2**50  # the address range of an expandable segment on a device without end
_ADDRESS_BITS = 80
_ADDRESS = 2**_ADDRESS_BITS - 1


class AddressSpace:
    """Where the next segment is placed."""

    def __init__(self) -> None:
        self._next = 0

    def reserve(self, size: int, *, alignment: int) -> int:
        """The start of a new range; never 0, which is the address of an allocation of nothing."""
        start = (self._next // alignment + 1) * alignment
        self._next = start + size
        return start


class BlockPool:
    """The free blocks of small or of large requests, in segments of one cudaMalloc each.

    ``free`` is ordered by size and then by address, each block one number: the size in the upper bits.
    """

    def __init__(self, settings: AllocatorSettings, addresses: AddressSpace, *, small: bool) -> None:
        self.settings = settings
        self.addresses = addresses
        self.small = small
        self.free: list[int] = []
        self.size_at: dict[int, int] = {}  # the free blocks by their start
        self.start_before: dict[int, int] = {}  # and by their end
        self.segments: dict[int, int] = {}
        self.idle_bytes = 0  # in segments without a block in use: what is free, and not split
        self.max_split_size = settings.max_split_size or maxsize
        self.max_rounding = settings.max_non_split_rounding or settings.large_segment_size
        self.min_rest = MIN_BLOCK if small else MAX_SMALL_REQUEST + 1
        self.split_below = maxsize if small else self.max_split_size

    def find(self, size: int) -> int:
        """The position in ``free`` of the smallest block that fits, or -1."""
        position = bisect_left(self.free, size << _ADDRESS_BITS)
        if position == len(self.free) or (self.max_split_size < maxsize and not self._allows(position, size)):
            return -1
        return position

    def _allows(self, position: int, size: int) -> bool:
        """Whether a block is neither kept for larger requests nor too large to be taken whole."""
        available = self.free[position] >> _ADDRESS_BITS
        if size < self.max_split_size:
            return available < self.max_split_size
        return available < size + self.max_rounding

    def take(self, position: int, size: int) -> tuple[int, int]:
        """The start and the size of a block that is now in use; what is left of it stays free if it is worth that."""
        key = self.free.pop(position)
        start, available = key & _ADDRESS, key >> _ADDRESS_BITS
        end = start + available
        if self.segments.get(start) == available:
            self.idle_bytes -= available
        del self.size_at[start]
        rest = available - size
        if rest < self.min_rest or size >= self.split_below:
            del self.start_before[end]
            return start, available
        middle = start + size
        self.size_at[middle] = rest
        self.start_before[end] = middle
        insort(self.free, rest << _ADDRESS_BITS | middle)
        return start, size

    def give_back(self, start: int, size: int) -> int:
        """Add a block to the free ones, merged with its free neighbours; the start of what it became."""
        end = start + size
        before = self.start_before.pop(start, None)
        if before is not None:
            self._delist(before, self.size_at[before])
            start = before
        after = self.size_at.pop(end, None)
        if after is not None:
            self._delist(end, after)
            end += after
        size = end - start
        self.size_at[start] = size
        self.start_before[end] = start
        insort(self.free, size << _ADDRESS_BITS | start)
        if self.segments.get(start) == size:
            self.idle_bytes += size
        return start

    def _delist(self, start: int, size: int) -> None:
        del self.free[bisect_left(self.free, size << _ADDRESS_BITS | start)]

    def position_of(self, start: int) -> int:
        """The position in ``free`` of the free block that starts there."""
        return bisect_left(self.free, self.size_at[start] << _ADDRESS_BITS | start)

    def segment_size(self, size: int) -> int:
        """How much a request asks of the device if no free block fits."""
        if self.small:
            return _SMALL_SEGMENT
        if size < MIN_LARGE_REQUEST:
            return self.settings.large_segment_size
        return -(-size // _LARGE_ROUNDING) * _LARGE_ROUNDING

    def grow(self, size: int, available: int) -> tuple[int, list[int]]:
        """Ask the device for memory: the position of a free block for the request, or -1, and what was reserved."""
        reserved = self.segment_size(size)
        if reserved > available:
            return -1, []
        start = self.addresses.reserve(reserved, alignment=_SMALL_SEGMENT)
        self.segments[start] = reserved
        self.give_back(start, reserved)
        return self.position_of(start), [reserved]

    def release(self) -> Iterator[int]:
        """Return to the device what no block in use needs: the sizes."""
        for key in self._idle_segments():
            yield self._release_segment(key)

    def _idle_segments(self) -> list[int]:
        return [key for key in self.free if self.segments.get(key & _ADDRESS) == key >> _ADDRESS_BITS]

    def _release_segment(self, key: int) -> int:
        start, size = key & _ADDRESS, key >> _ADDRESS_BITS
        self.idle_bytes -= size
        del self.segments[start]
        self._remove(start, size)
        return size

    def _remove(self, start: int, size: int) -> None:
        self._delist(start, size)
        del self.size_at[start]
        del self.start_before[start + size]

    def release_oversize(self, size: int) -> tuple[bool, list[int]]:
        """Return as much in blocks of ``max_split_size`` or more as a request needs: if it is enough, and the sizes.

        Blocks of this size are never split, so they are segments.
        """
        if self.max_split_size == maxsize:
            return False, []
        position = bisect_left(self.free, size << _ADDRESS_BITS)
        if position < len(self.free):
            return True, [self._release_segment(self.free[position])]
        released: list[int] = []
        while sum(released) < size and self.free and self.free[-1] >> _ADDRESS_BITS >= self.max_split_size:
            released.append(self._release_segment(self.free[-1]))
        return sum(released) >= size, released


class AgingBlockPool(BlockPool):
    """A pool that knows how many requests ago each free segment was given back, to release the oldest ones."""

    def __init__(self, settings: AllocatorSettings, addresses: AddressSpace, *, small: bool) -> None:
        super().__init__(settings, addresses, small=small)
        self._requests = 0
        self._given_back_at: dict[int, int] = {}

    def find(self, size: int) -> int:
        self._requests += 1
        return super().find(size)

    def give_back(self, start: int, size: int) -> int:
        start = super().give_back(start, size)
        self._given_back_at[start] = self._requests
        return start

    def collect(self, target: int) -> Iterator[int]:
        """Return idle segments older than the mean to the device, and again, until the target is reached: the sizes."""
        ages = {key: self._requests - self._given_back_at[key & _ADDRESS] for key in self._idle_segments()}
        collected = 0
        while ages and collected < target:
            mean_age = sum(ages.values()) / len(ages)
            for key in [key for key, age in ages.items() if age >= mean_age]:
                del ages[key]
                collected += key >> _ADDRESS_BITS
                yield self._release_segment(key)


class ExpandablePool(BlockPool):
    """A pool in segments that grow: ranges of addresses, with memory mapped page by page where it is needed."""

    def __init__(self, settings: AllocatorSettings, addresses: AddressSpace, *, small: bool) -> None:
        super().__init__(settings, addresses, small=small)
        self.min_rest = MIN_BLOCK
        self.split_below = maxsize
        self._page = _SMALL_SEGMENT if small else settings.large_segment_size
        self._spans: dict[int, int] = {}
        self._unmapped: list[int] = []  # starts of the ranges without memory
        self._unmapped_size: dict[int, int] = {}
        self._unmapped_before: dict[int, int] = {}

    def find(self, size: int) -> int:
        position = bisect_left(self.free, size << _ADDRESS_BITS)
        if position == len(self.free):
            return -1
        # A block before unmapped addresses counts as large as it can grow, so that it is kept for what needs that.
        while position + 1 < len(self.free) and self._growable(position + 1) < self._growable(position):
            position += 1
        return position if self._allows(position, size) else -1

    def _growable(self, position: int) -> int:
        key = self.free[position]
        size = key >> _ADDRESS_BITS
        return size + self._unmapped_size.get((key & _ADDRESS) + size, 0)

    def grow(self, size: int, available: int) -> tuple[int, list[int]]:
        start = self._find_addresses(size)
        reserved: list[int] = []
        while self.size_at.get(start, 0) < size:
            has = self.size_at.get(start, 0)
            mapped = self._map(start + has, size - has, available - sum(reserved))
            if not mapped:
                return -1, reserved
            reserved.append(mapped)
        return self.position_of(start), reserved

    def _find_addresses(self, size: int) -> int:
        """The lowest start of free and unmapped addresses for a request; of a new segment if there are none."""
        for unmapped in self._unmapped:
            start = self.start_before.get(unmapped, unmapped)
            if self._has_room(start, size):
                return start
        capacity = self.settings.capacity
        # As in PyTorch, an eighth more addresses than memory, to map it behind blocks in use.
        span = _UNLIMITED_SPAN if capacity is None else -(-(capacity + capacity // 8) // self._page) * self._page
        start = self.addresses.reserve(span, alignment=self._page)
        self._spans[start] = span
        self._add_unmapped(start, span)
        return start

    def _has_room(self, start: int, size: int) -> bool:
        end = start
        while end - start < size:
            step = self.size_at.get(end) or self._unmapped_size.get(end)
            if step is None:
                return False
            end += step
        return True

    def _map(self, start: int, size: int, available: int) -> int:
        """Map whole pages from the start of an unmapped range, at most all of it: the bytes, 0 if none are left."""
        unmapped = self._unmapped_size[start]
        mapped = -(-min(size, unmapped) // self._page) * self._page
        if mapped > available:
            return 0
        self._remove_unmapped(start)
        if mapped < unmapped:
            self._add_unmapped(start + mapped, unmapped - mapped)
        self.give_back(start, mapped)
        return mapped

    def _add_unmapped(self, start: int, size: int) -> None:
        self._unmapped_size[start] = size
        self._unmapped_before[start + size] = start
        insort(self._unmapped, start)

    def _remove_unmapped(self, start: int) -> int:
        size = self._unmapped_size.pop(start)
        del self._unmapped_before[start + size]
        del self._unmapped[bisect_left(self._unmapped, start)]
        return size

    def release(self) -> Iterator[int]:
        """Unmap the pages that are free as a whole: the sizes."""
        for key in list(self.free):
            start, size = key & _ADDRESS, key >> _ADDRESS_BITS
            first = -(-start // self._page) * self._page
            last = (start + size) // self._page * self._page
            if first >= last:
                continue
            self._remove(start, size)
            if first > start:
                self.give_back(start, first - start)
            if last < start + size:
                self.give_back(last, start + size - last)
            self._unmap(first, last)
            yield last - first

    def _unmap(self, first: int, last: int) -> None:
        before = self._unmapped_before.get(first)
        if before is not None:
            self._remove_unmapped(before)
            first = before
        if last in self._unmapped_size:
            last += self._remove_unmapped(last)
        if self._spans.get(first) == last - first:
            del self._spans[first]
        else:
            self._add_unmapped(first, last - first)

    def release_oversize(self, size: int) -> tuple[bool, list[int]]:
        """Blocks of expandable segments are not returned as a whole."""
        return False, []
