"""The allocator's rules, each by a case worked out by hand from PyTorch's documentation and source."""

from dataclasses import replace
from itertools import pairwise, takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.core.errors import DeviceMemoryError
from foretell.memory.allocator_settings import MIB, AllocatorSettings
from foretell.memory.caching_allocator import EMPTY_CACHE, AllocatorUsage, CachingAllocator, replay

KIB = 2**10


def make_allocator(text: str = "", *, capacity: int | None = None, memory_limit: int | None = None) -> CachingAllocator:
    return CachingAllocator(replace(AllocatorSettings.parse(text), capacity=capacity, memory_limit=memory_limit))


# Sizes


@pytest.mark.parametrize(("requested", "allocated"), [(1, 512), (512, 512), (513, 1024), (MIB - 1, MIB)])
def test_sizes_are_rounded_to_512_bytes(requested: int, allocated: int) -> None:
    allocator = make_allocator()
    allocator.allocate(requested)
    assert (allocator.requested_bytes, allocator.allocated_bytes) == (requested, allocated)


def test_nothing_takes_no_block() -> None:
    allocator = make_allocator()
    address = allocator.allocate(0)
    allocator.free(address)
    assert address == 0
    assert allocator.peak_reserved_bytes == allocator.peak_allocated_bytes == 0


@pytest.mark.parametrize(
    ("divisions", "requested", "allocated"),
    [
        (4, 1200, 1536),  # not above 4 x 512 bytes: rounded to 512 bytes
        (4, 2048, 2048),
        (4, 2049, 2560),  # 2048, 2560, 3072, 3584
        (4, 5 * MIB + 1, 6 * MIB),  # 4, 5, 6, 7 MiB
        (8, 5 * MIB + 1, 5 * MIB + MIB // 2),
        (4, 16 * MIB, 16 * MIB),
        (4, 15 * MIB, 16 * MIB),
        (1, 5 * MIB + 1, 5 * MIB + 512),
    ],
)
def test_sizes_are_rounded_to_divisions_between_powers_of_two(divisions: int, requested: int, allocated: int) -> None:
    allocator = make_allocator(f"roundup_power2_divisions:{divisions},expandable_segments:True")
    allocator.allocate(requested)
    assert allocator.allocated_bytes == allocated


@pytest.mark.parametrize(
    ("requested", "allocated"),
    [
        (5 * MIB + 1, 5 * MIB + 512),  # below the first interval as in it: 1, nothing
        (300 * MIB, 300 * MIB),
        (513 * MIB, 768 * MIB),  # 2
        (1025 * MIB, 1280 * MIB),  # 4
        (2049 * MIB, 2304 * MIB),  # >: 8
        (9 * 1024 * MIB + 1, 10 * 1024 * MIB),
    ],
)
def test_each_interval_of_sizes_has_its_divisions(requested: int, allocated: int) -> None:
    allocator = make_allocator("roundup_power2_divisions:[256:1,512:2,1024:4,>:8],expandable_segments:True")
    allocator.allocate(requested)
    assert allocator.allocated_bytes == allocated


# Segments


@pytest.mark.parametrize(
    ("requested", "reserved"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (31 * MIB, 32 * MIB),
    ],
)
def test_segments_by_the_size_of_the_request(requested: int, reserved: int) -> None:
    allocator = make_allocator()
    allocator.allocate(requested)
    assert (allocator.reserved_bytes, allocator.device_allocations) == (reserved, 1)


def test_the_size_of_large_segments_is_a_setting() -> None:
    allocator = make_allocator("large_segment_size_mb:40")
    allocator.allocate(2 * MIB)
    assert allocator.reserved_bytes == 40 * MIB


def test_small_and_large_requests_do_not_share_segments() -> None:
    allocator = make_allocator()
    allocator.free(allocator.allocate(20 * MIB))
    allocator.allocate(1)
    assert allocator.reserved_bytes == 22 * MIB
    allocator.allocate(2 * MIB)
    assert allocator.reserved_bytes == 22 * MIB


# Best fit and splits


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = make_allocator()
    large, medium = allocator.allocate(40 * MIB), allocator.allocate(30 * MIB)
    allocator.free(large)
    allocator.free(medium)
    assert allocator.allocate(29 * MIB + 512 * KIB) == medium
    assert allocator.allocate(31 * MIB) == large
    assert allocator.device_allocations == 2


def test_the_lowest_address_is_taken_among_equal_blocks() -> None:
    allocator = make_allocator()
    addresses = [allocator.allocate(512) for _ in range(8)]
    for index in (5, 1, 3):
        allocator.free(addresses[index])
    assert [allocator.allocate(512) for _ in range(3)] == [addresses[index] for index in (1, 3, 5)]


def test_small_blocks_are_split_down_to_512_bytes() -> None:
    allocator = make_allocator()
    first = allocator.allocate(MIB)
    second = allocator.allocate(MIB - 512)
    third = allocator.allocate(512)
    assert (second - first, third - second) == (MIB, MIB - 512)
    assert allocator.reserved_bytes == 2 * MIB


@pytest.mark.parametrize(("rest", "allocated"), [(MIB, 20 * MIB), (MIB + 512, 19 * MIB - 512)])
def test_large_blocks_are_split_if_more_than_1_mib_is_left(rest: int, allocated: int) -> None:
    allocator = make_allocator()
    allocator.free(allocator.allocate(20 * MIB))
    allocator.allocate(20 * MIB - rest)
    assert allocator.allocated_bytes == allocated


def test_neighbours_merge_when_freed() -> None:
    allocator = make_allocator()
    blocks = [allocator.allocate(5 * MIB) for _ in range(4)]
    for index in (0, 2, 1):  # alone, behind one in use, between two free ones
        allocator.free(blocks[index])
    assert allocator.allocate(15 * MIB) == blocks[0]
    assert allocator.device_allocations == 1


def test_segments_do_not_merge() -> None:
    allocator = make_allocator()
    for block in [allocator.allocate(20 * MIB) for _ in range(2)]:
        allocator.free(block)
    allocator.allocate(40 * MIB)
    assert allocator.reserved_bytes == 80 * MIB


def test_inactive_split_bytes_are_free_and_cannot_be_returned() -> None:
    allocator = make_allocator()
    kept = allocator.allocate(2 * MIB)
    freed = allocator.allocate(3 * MIB)
    assert allocator.inactive_split_bytes == 15 * MIB
    allocator.free(freed)
    assert allocator.inactive_split_bytes == 18 * MIB
    allocator.free(kept)
    assert (allocator.inactive_split_bytes, allocator.peak_inactive_split_bytes) == (0, 18 * MIB)


# max_split_size


def test_oversize_blocks_are_neither_split_nor_used_for_less() -> None:
    allocator = make_allocator("max_split_size_mb:64")
    allocator.free(allocator.allocate(100 * MIB))
    allocator.allocate(40 * MIB)
    assert allocator.reserved_bytes == 140 * MIB
    allocator.allocate(90 * MIB)  # not less than max_split_size: the block is taken whole
    assert (allocator.reserved_bytes, allocator.allocated_bytes) == (140 * MIB, 140 * MIB)


@pytest.mark.parametrize(("cached", "reserved"), [(118, 118), (120, 220)])
def test_oversize_requests_take_blocks_at_most_20_mib_larger(cached: int, reserved: int) -> None:
    allocator = make_allocator("max_split_size_mb:64")
    allocator.free(allocator.allocate(cached * MIB))
    allocator.allocate(100 * MIB)
    assert allocator.reserved_bytes == reserved * MIB


def test_how_much_larger_oversize_blocks_may_be_is_a_setting() -> None:
    allocator = make_allocator("max_split_size_mb:64,max_non_split_rounding_mb:40")
    allocator.free(allocator.allocate(120 * MIB))
    allocator.allocate(100 * MIB)
    assert allocator.reserved_bytes == 120 * MIB


def test_one_oversize_block_is_released_if_it_is_enough() -> None:
    allocator = make_allocator("max_split_size_mb:64", capacity=500 * MIB)
    for block in [allocator.allocate(size * MIB) for size in (100, 150, 200)]:
        allocator.free(block)
    allocator.allocate(120 * MIB)  # too small for the block of 150 MiB by max_non_split_rounding
    assert (allocator.reserved_bytes, allocator.device_frees, allocator.retries) == (420 * MIB, 1, 0)


def test_the_largest_oversize_blocks_are_released_until_it_is_enough() -> None:
    allocator = make_allocator("max_split_size_mb:64", capacity=500 * MIB)
    for block in [allocator.allocate(size * MIB) for size in (80, 150, 200)]:
        allocator.free(block)
    allocator.allocate(300 * MIB)
    assert (allocator.reserved_bytes, allocator.device_frees, allocator.retries) == (380 * MIB, 2, 0)


# Release, garbage collection, out of memory


def test_the_cache_is_released_before_memory_is_out() -> None:
    allocator = make_allocator(capacity=100 * MIB)
    allocator.allocate(2 * MIB)
    allocator.free(allocator.allocate(60 * MIB))
    allocator.free(allocator.allocate(1))
    allocator.allocate(80 * MIB)  # the 60 MiB and the small segment are released, not the one with 2 MiB in use
    assert (allocator.reserved_bytes, allocator.retries, allocator.device_frees) == (100 * MIB, 1, 2)


def test_oversize_blocks_that_are_not_enough_are_followed_by_the_rest_of_the_cache() -> None:
    allocator = make_allocator("max_split_size_mb:64", capacity=300 * MIB)
    for block in [allocator.allocate(size * MIB) for size in (50, 100, 120)]:
        allocator.free(block)
    allocator.allocate(260 * MIB)
    assert (allocator.reserved_bytes, allocator.retries, allocator.device_frees) == (260 * MIB, 1, 3)


def test_oversize_blocks_are_not_enough_if_smaller_than_the_request() -> None:
    allocator = make_allocator("max_split_size_mb:64", capacity=250 * MIB)
    allocator.allocate(50 * MIB)
    allocator.free(allocator.allocate(100 * MIB))
    allocator.allocate(150 * MIB)  # there was room for it after the first release, but it was not tried
    assert (allocator.reserved_bytes, allocator.retries) == (200 * MIB, 1)


@pytest.mark.parametrize(
    "settings", [AllocatorSettings(capacity=100 * MIB), AllocatorSettings(memory_limit=100 * MIB)], ids=str
)
def test_out_of_memory_is_an_error_that_leaves_what_was_allocated(settings: AllocatorSettings) -> None:
    allocator = CachingAllocator(settings)
    kept = allocator.allocate(60 * MIB)
    with pytest.raises(DeviceMemoryError, match=r"42 MB more than the 60 MB .* into 100 MB; take") as caught:
        allocator.allocate(40 * MIB + 1)
    assert (caught.value.requested_bytes, caught.value.reserved_bytes) == (40 * MIB + 1, 60 * MIB)
    assert allocator.retries == 1
    allocator.free(kept)
    allocator.allocate(100 * MIB)
    assert allocator.reserved_bytes == 100 * MIB


def test_expandable_segments_are_advised_where_they_would_fit() -> None:
    allocator = make_allocator(capacity=100 * MIB)
    blocks = [allocator.allocate(5 * MIB) for _ in range(20)]
    for block in blocks[1::2]:
        allocator.free(block)
    with pytest.raises(DeviceMemoryError, match="try expandable_segments:True"):
        allocator.allocate(20 * MIB)


def test_emptying_the_cache_keeps_segments_with_blocks_in_use() -> None:
    allocator = make_allocator()
    kept, freed = allocator.allocate(2 * MIB), allocator.allocate(30 * MIB)
    allocator.free(allocator.allocate(2 * MIB))
    allocator.free(freed)
    allocator.empty_cache()
    assert (allocator.reserved_bytes, allocator.device_frees) == (20 * MIB, 1)
    allocator.free(kept)
    allocator.empty_cache()
    assert (allocator.reserved_bytes, allocator.device_frees) == (0, 2)


def age_segments(allocator: CachingAllocator) -> None:
    """Leave 300 MiB in use, and free segments of 100 MiB, given back first, and of 200 MiB."""
    blocks = [allocator.allocate(size * MIB) for size in (100, 200, 300)]
    allocator.free(blocks[0])
    allocator.free(blocks[2])
    allocator.allocate(300 * MIB)
    allocator.free(blocks[1])


@pytest.mark.parametrize(
    ("threshold", "reserved"),
    [
        (0.6, 600 + 250),  # not above the threshold
        (0.5, 600 + 250 - 100),  # 100 MiB above: the segment older than the mean of the two
        (0.4, 600 + 250 - 300),  # 200 MiB above: the other one as well
    ],
)
def test_garbage_is_collected_by_age_above_the_threshold(threshold: float, reserved: int) -> None:
    allocator = make_allocator(f"garbage_collection_threshold:{threshold}", memory_limit=1000 * MIB)
    age_segments(allocator)
    allocator.allocate(250 * MIB)
    assert allocator.reserved_bytes == reserved * MIB


def test_garbage_of_one_age_is_collected_together() -> None:
    allocator = make_allocator("garbage_collection_threshold:0.2", memory_limit=1000 * MIB)
    for block in [allocator.allocate(size * MIB) for size in (100, 200)]:
        allocator.free(block)
    allocator.allocate(250 * MIB)  # 100 MiB would be enough
    assert (allocator.reserved_bytes, allocator.device_frees) == (250 * MIB, 2)


def test_garbage_is_collected_only_with_a_memory_limit() -> None:
    allocator = make_allocator("garbage_collection_threshold:0.1", capacity=1000 * MIB)
    age_segments(allocator)
    allocator.allocate(250 * MIB)
    assert allocator.reserved_bytes == 850 * MIB


# Expandable segments


def test_expandable_segments_grow_by_pages() -> None:
    allocator = make_allocator("expandable_segments:True")
    allocator.allocate(1)
    assert allocator.reserved_bytes == 2 * MIB
    allocator.allocate(2 * MIB)
    assert allocator.reserved_bytes == 22 * MIB
    allocator.allocate(30 * MIB)  # 18 MiB of it in the first page of 20 MiB
    assert (allocator.reserved_bytes, allocator.device_allocations) == (42 * MIB, 3)
    assert allocator.inactive_split_bytes == 0


def test_pages_of_expandable_segments_are_as_large_as_large_segments() -> None:
    allocator = make_allocator("expandable_segments:True,large_segment_size_mb:32")
    allocator.allocate(33 * MIB)
    assert allocator.reserved_bytes == 64 * MIB


def test_large_blocks_of_expandable_segments_are_split_down_to_512_bytes() -> None:
    allocator = make_allocator("expandable_segments:True")
    allocator.allocate(20 * MIB - 512)
    assert allocator.allocated_bytes == 20 * MIB - 512


def test_blocks_that_cannot_grow_are_preferred() -> None:
    allocator = make_allocator("expandable_segments:True")
    first = allocator.allocate(4 * MIB)
    allocator.allocate(13 * MIB)
    allocator.free(first)
    assert allocator.allocate(3 * MIB) == first  # not the last 3 MiB of the page


def test_whole_pages_are_unmapped_and_the_lowest_are_mapped_again() -> None:
    allocator = make_allocator("expandable_segments:True")
    blocks = [allocator.allocate(size * MIB) for size in (20, 20, 10, 40)]
    assert allocator.reserved_bytes == 100 * MIB
    allocator.free(blocks[0])
    allocator.free(blocks[3])
    allocator.empty_cache()  # of the last 50 MiB the first 10 share a page with a block in use
    assert allocator.reserved_bytes == 40 * MIB
    assert allocator.allocate(30 * MIB) == blocks[3]
    assert allocator.reserved_bytes == 60 * MIB
    assert allocator.allocate(20 * MIB) == blocks[0]
    assert allocator.reserved_bytes == 80 * MIB


def test_what_is_left_of_a_page_stays_free() -> None:
    allocator = make_allocator("expandable_segments:True")
    blocks = [allocator.allocate(size * MIB) for size in (10, 40, 10)]
    allocator.free(blocks[1])
    allocator.empty_cache()  # of 10 to 50 MiB the second page
    assert allocator.reserved_bytes == 40 * MIB
    assert {allocator.allocate(10 * MIB) - blocks[0] for _ in range(2)} == {10 * MIB, 40 * MIB}
    assert allocator.reserved_bytes == 40 * MIB


def test_unmapped_neighbours_merge() -> None:
    allocator = make_allocator("expandable_segments:True")
    blocks = [allocator.allocate(20 * MIB) for _ in range(4)]
    for index in (0, 2, 1):
        allocator.free(blocks[index])
        allocator.empty_cache()
    assert allocator.allocate(60 * MIB) == blocks[0]
    assert allocator.reserved_bytes == 80 * MIB


def fragment_segment(allocator: CachingAllocator) -> list[int]:
    """Blocks of 20 MiB in use with as many unmapped addresses before each."""
    blocks = [allocator.allocate(20 * MIB) for _ in range(16)]
    for block in blocks[::2]:
        allocator.free(block)
    allocator.empty_cache()
    return blocks


def test_an_expandable_segment_has_an_eighth_more_addresses_than_the_device_memory() -> None:
    allocator = make_allocator("expandable_segments:True", capacity=320 * MIB)
    blocks = fragment_segment(allocator)
    assert allocator.allocate(40 * MIB) == blocks[0] + 320 * MIB
    assert allocator.allocate(40 * MIB) >= blocks[0] + 360 * MIB


def test_the_addresses_of_an_empty_segment_are_given_up() -> None:
    allocator = make_allocator("expandable_segments:True", capacity=320 * MIB)
    blocks = fragment_segment(allocator)
    second = allocator.allocate(60 * MIB)
    for block in blocks[1::2]:
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.allocate(60 * MIB) == second + 60 * MIB


def test_blocks_of_expandable_segments_are_split_whatever_their_size() -> None:
    allocator = make_allocator("expandable_segments:True,max_split_size_mb:20")
    allocator.allocate(25 * MIB)
    assert allocator.allocated_bytes == 25 * MIB


def test_oversize_blocks_of_expandable_segments_are_kept_for_large_requests() -> None:
    allocator = make_allocator("expandable_segments:True,max_split_size_mb:64")
    first = allocator.allocate(100 * MIB)
    allocator.allocate(20 * MIB)
    allocator.free(first)
    allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == 140 * MIB


def test_expandable_segments_release_their_pages_only_together() -> None:
    allocator = make_allocator("expandable_segments:True,max_split_size_mb:64", capacity=150 * MIB)
    first = allocator.allocate(100 * MIB)
    allocator.allocate(10 * MIB)
    allocator.free(first)
    allocator.allocate(110 * MIB)
    assert (allocator.reserved_bytes, allocator.retries) == (140 * MIB, 1)


def test_expandable_segments_are_bound_by_whole_pages() -> None:
    allocator = make_allocator("expandable_segments:True", capacity=50 * MIB)
    allocator.allocate(30 * MIB)
    with pytest.raises(DeviceMemoryError):
        allocator.allocate(15 * MIB)
    allocator.allocate(10 * MIB)
    assert allocator.reserved_bytes == 40 * MIB


def test_a_memory_limit_is_compared_with_the_request_not_with_its_pages() -> None:
    allocator = make_allocator("expandable_segments:True", memory_limit=45 * MIB)
    allocator.allocate(20 * MIB)
    allocator.allocate(22 * MIB)
    assert allocator.reserved_bytes == 60 * MIB


def test_pages_of_a_failed_attempt_count_in_the_peak() -> None:
    allocator = make_allocator("expandable_segments:True", capacity=100 * MIB)
    blocks = [allocator.allocate(size) for size in (1, 20 * MIB, 20 * MIB, 20 * MIB)]
    for block in blocks[2:]:
        allocator.free(block)
    allocator.free(allocator.allocate(40 * MIB))
    allocator.free(blocks[1])
    allocator.allocate(20 * MIB)
    allocator.empty_cache()
    assert (allocator.reserved_bytes, allocator.peak_reserved_bytes) == (22 * MIB, 62 * MIB)


def test_expandable_segments_use_the_memory_that_fragmentation_takes() -> None:
    """The case that PyTorch's note on expandable segments describes: requests that grow a little each time."""
    sizes = [size * MIB for size in range(20, 60, 2)]
    fixed, expandable = make_allocator(), make_allocator("expandable_segments:True")
    for allocator in (fixed, expandable):
        for size in sizes:
            allocator.free(allocator.allocate(size))
    assert fixed.reserved_bytes == sum(sizes)
    assert expandable.reserved_bytes == 60 * MIB


# Replay


def replay_list(events: list[int], sizes: list[int], settings: AllocatorSettings | None = None) -> AllocatorUsage:
    return replay(np.array(events, dtype=np.int64), np.array(sizes, dtype=np.int64), settings)


def test_a_replay_has_curves_peaks_and_their_events() -> None:
    usage = replay_list([1, 2, -1, 3, -2, EMPTY_CACHE, 1], [30 * MIB, 5 * MIB + 1, 20 * MIB])
    size = 5 * MIB + 512
    assert usage.allocated_bytes.tolist() == [
        30 * MIB, 30 * MIB + size, size, 20 * MIB + size, 20 * MIB, 20 * MIB, 50 * MIB,
    ]  # fmt: skip
    assert usage.reserved_bytes.tolist() == [MIB * reserved for reserved in (30, 50, 50, 50, 50, 30, 60)]
    assert (usage.peak_allocated_bytes, usage.peak_allocated_event) == (50 * MIB, 6)
    assert (usage.peak_requested_bytes, usage.peak_requested_event) == (50 * MIB, 6)
    assert (usage.peak_reserved_bytes, usage.peak_reserved_event) == (60 * MIB, 6)
    assert (usage.device_allocations, usage.device_frees) == (3, 1)
    assert usage.live_blocks(3).tolist() == [1, 2]
    assert usage.live_blocks(6).tolist() == [0, 2]


def test_a_replay_ends_where_memory_is_out() -> None:
    usage = replay_list([1, 2, 3, -1], [40 * MIB, 40 * MIB, 30 * MIB], AllocatorSettings(capacity=100 * MIB))
    assert usage.out_of_memory is not None
    assert (usage.out_of_memory.event, usage.out_of_memory.block) == (2, 2)
    assert usage.out_of_memory.requested_bytes == 30 * MIB
    assert usage.reserved_bytes.tolist() == [40 * MIB, 80 * MIB]
    assert usage.live_blocks(5).tolist() == [0, 1]


def test_a_replay_of_nothing_has_no_peak() -> None:
    usage = replay_list([], [])
    assert (usage.peak_reserved_bytes, usage.peak_reserved_event, usage.peak_allocated_event) == (0, -1, -1)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([1, 2, 1], "event 2: block 0 is allocated while it is in use"),
        ([1, -2, 2], "event 1: block 1 is freed while it is not in use"),
        ([1, -1, 2, -1], "event 3: block 0 is freed while it is not in use"),
        ([3], "an event of block 2; there are sizes of 2 blocks"),
    ],
)
def test_events_that_cannot_be_are_refused(events: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replay_list(events, [1, 1])


@pytest.mark.parametrize("size", [-1, 2**46])
def test_sizes_that_cannot_be_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"block 1 has {size} bytes; expected 0 to"):
        replay_list([1], [1, size])
    with pytest.raises(ValueError, match=r"-1 bytes; expected 0"):
        make_allocator().allocate(-1)


# Laws

SIZES = st.one_of(
    st.integers(0, 4 * KIB), st.integers(1, 3 * MIB), st.integers(9 * MIB, 12 * MIB), st.integers(1, 60 * MIB)
)
SETTINGS = st.builds(
    AllocatorSettings,
    expandable_segments=st.booleans(),
    max_split_size=st.sampled_from([None, 20 * MIB, 40 * MIB]),
    roundup_power2_divisions=st.sampled_from([None, 2, 8]),
    garbage_collection_threshold=st.sampled_from([None, 0.3]),
    capacity=st.sampled_from([None, 120 * MIB]),
    memory_limit=st.sampled_from([None, 150 * MIB]),
)


@st.composite
def sequences(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Events of blocks allocated in order and freed in any, with the cache emptied in between."""
    sizes = draw(st.lists(SIZES, min_size=1, max_size=40))
    events: list[int] = []
    live: list[int] = []
    for number in range(1, len(sizes) + 1):
        events.append(number)
        live.append(number)
        for _ in range(draw(st.integers(0, min(2, len(live))))):
            events.append(-live.pop(draw(st.integers(0, len(live) - 1))))
        if draw(st.integers(0, 15)) == 0:
            events.append(EMPTY_CACHE)
    return events, sizes


def apply(allocator: CachingAllocator, event: int, sizes: list[int], addresses: dict[int, int]) -> None:
    if event > 0:
        addresses[event] = allocator.allocate(sizes[event - 1])
    elif event < 0:
        allocator.free(addresses.pop(-event))
    else:
        allocator.empty_cache()


@given(sequences(), SETTINGS)
def test_laws_of_every_allocator(sequence: tuple[list[int], list[int]], settings: AllocatorSettings) -> None:
    events, sizes = sequence
    allocator = CachingAllocator(settings)
    addresses: dict[int, int] = {}
    reserved = []
    for event in events:
        try:
            apply(allocator, event, sizes, addresses)
        except DeviceMemoryError:
            break
        reserved.append(allocator.reserved_bytes)
        live = sorted((start, size, requested) for start, (size, requested) in allocator.live_blocks().items())
        assert all(start + size <= following for (start, size, _), (following, _, _) in pairwise(live))
        assert all(size >= requested > 0 for _, size, requested in live)
        assert sum(size for _, size, _ in live) == allocator.allocated_bytes
        assert 0 <= allocator.requested_bytes <= allocator.allocated_bytes <= allocator.reserved_bytes
        assert 0 <= allocator.inactive_split_bytes <= allocator.reserved_bytes - allocator.allocated_bytes
        assert settings.capacity is None or allocator.reserved_bytes <= settings.capacity
    usage = replay_list(events, sizes, settings)
    assert usage.reserved_bytes.tolist() == reserved
    assert (usage.out_of_memory is None) == (len(reserved) == len(events))
    for address in list(allocator.live_blocks()):
        allocator.free(address)
    allocator.empty_cache()
    assert allocator.reserved_bytes == allocator.allocated_bytes == allocator.inactive_split_bytes == 0


class SegmentLists:
    """The rules without settings, once more and as simply as they can be written: lists of [size, used] in segments."""

    def __init__(self) -> None:
        self.segments: list[tuple[bool, list[list[int]]]] = []

    @property
    def reserved_bytes(self) -> int:
        return sum(size for _, blocks in self.segments for size, _ in blocks)

    @property
    def allocated_bytes(self) -> int:
        return sum(size for _, blocks in self.segments for size, used in blocks if used)

    def allocate(self, number: int, requested: int) -> None:
        size = -(-requested // 512) * 512
        small = size <= MIB
        fitting = [
            (block[0], segment, place)
            for segment, (is_small, blocks) in enumerate(self.segments)
            for place, block in enumerate(blocks)
            if is_small == small and not block[1] and block[0] >= size
        ]
        if not fitting:
            new = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            self.segments.append((small, [[new, 0]]))
            fitting = [(new, len(self.segments) - 1, 0)]
        available, segment, place = min(fitting)
        rest = available - size
        split = rest >= 512 if small else rest > MIB
        self.segments[segment][1][place : place + 1] = [[size, number], [rest, 0]] if split else [[available, number]]

    def free(self, number: int) -> None:
        for _, blocks in self.segments:
            for block in blocks:
                block[1] = 0 if block[1] == number else block[1]
            place = 0
            while place + 1 < len(blocks):
                if blocks[place][1] == blocks[place + 1][1] == 0:
                    blocks[place][0] += blocks.pop(place + 1)[0]
                else:
                    place += 1

    def empty_cache(self) -> None:
        self.segments = [(small, blocks) for small, blocks in self.segments if any(used for _, used in blocks)]


class BlockLists:
    """Expandable segments once more, as simply as they can be written: two lists of [size, used], -1 if not mapped."""

    def __init__(self) -> None:
        self.pools = {True: [[2**50, -1]], False: [[2**50, -1]]}

    @property
    def reserved_bytes(self) -> int:
        return sum(size for blocks in self.pools.values() for size, used in blocks if used >= 0)

    @property
    def allocated_bytes(self) -> int:
        return sum(size for blocks in self.pools.values() for size, used in blocks if used > 0)

    def allocate(self, number: int, requested: int) -> None:
        size = -(-requested // 512) * 512
        blocks = self.pools[size <= MIB]
        fitting = sorted((block[0], place) for place, block in enumerate(blocks) if block[1] == 0 and block[0] >= size)
        if fitting:
            grown = [has + (blocks[place + 1][0] if blocks[place + 1][1] < 0 else 0) for has, place in fitting]
            place = next(fitting[at][1] for at in range(len(fitting)) if grown[at] <= (*grown, 2**60)[at + 1])
        else:
            place = self.map(blocks, size, page=2 * MIB if size <= MIB else 20 * MIB)
        rest = blocks[place][0] - size
        blocks[place : place + 1] = [[size, number], [rest, 0]] if rest else [[size, number]]

    def map(self, blocks: list[list[int]], size: int, *, page: int) -> int:
        starts = [at - 1 if at and blocks[at - 1][1] == 0 else at for at, block in enumerate(blocks) if block[1] < 0]
        for place in starts:
            room = [block[0] for block in takewhile(lambda block: block[1] <= 0, blocks[place:])]
            if sum(room) >= size:
                break
        while blocks[place][1] < 0 or blocks[place][0] < size:
            at = place if blocks[place][1] < 0 else place + 1
            missing = size - (blocks[place][0] if at > place else 0)
            mapped = min(-(-missing // page) * page, blocks[at][0])
            blocks[at : at + 1] = [[mapped, 0], [blocks[at][0] - mapped, -1]]
            self.merge(blocks)
        return place

    def free(self, number: int) -> None:
        for blocks in self.pools.values():
            for block in blocks:
                block[1] = 0 if block[1] == number else block[1]
            self.merge(blocks)

    def empty_cache(self) -> None:
        for small, blocks in self.pools.items():
            page = 2 * MIB if small else 20 * MIB
            cut, start = [], 0
            for size, used in blocks:
                first, last = -(-start // page) * page, (start + size) // page * page
                if used == 0 and first < last:
                    cut += [[first - start, 0], [last - first, -1], [start + size - last, 0]]
                else:
                    cut.append([size, used])
                start += size
            self.merge(cut)
            self.pools[small] = cut

    def merge(self, blocks: list[list[int]]) -> None:
        blocks[:] = [block for block in blocks if block[0]]
        for place in range(len(blocks) - 1, 0, -1):
            if blocks[place][1] == blocks[place - 1][1] <= 0:
                blocks[place - 1][0] += blocks.pop(place)[0]


@pytest.mark.parametrize("expandable", [False, True])
@given(sequence=sequences())
def test_the_same_rules_written_another_way_reserve_the_same(
    sequence: tuple[list[int], list[int]], *, expandable: bool
) -> None:
    events, sizes = sequence
    usage = replay_list(events, sizes, AllocatorSettings(expandable_segments=expandable))
    simple = BlockLists() if expandable else SegmentLists()
    for number, event in enumerate(events):
        if event > 0 and sizes[event - 1]:
            simple.allocate(event, sizes[event - 1])
        elif event < 0:
            simple.free(-event)
        elif event == 0:
            simple.empty_cache()
        assert simple.allocated_bytes == usage.allocated_bytes[number]
        assert simple.reserved_bytes == usage.reserved_bytes[number]
