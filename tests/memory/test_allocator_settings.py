import pytest

from foretell.core.errors import SpecError
from foretell.memory.allocator_settings import MIB, AllocatorSettings


def test_options_are_read_as_pytorch_reads_them() -> None:
    text = (
        "expandable_segments:True, max_split_size_mb:128,max_non_split_rounding_mb:30,garbage_collection_threshold:0.8"
    )
    assert AllocatorSettings.parse(text, capacity=10) == AllocatorSettings(
        expandable_segments=True,
        max_split_size=128 * MIB,
        max_non_split_rounding=30 * MIB,
        garbage_collection_threshold=0.8,
        capacity=10,
    )


@pytest.mark.parametrize(
    "text", ["", " ", "backend:native", "pinned_use_background_threads:True,release_lock_on_cudamalloc:True"]
)
def test_options_without_effect_leave_the_defaults(text: str) -> None:
    assert AllocatorSettings.parse(text) == AllocatorSettings()


def test_one_number_of_divisions_is_for_all_sizes() -> None:
    assert AllocatorSettings.parse("roundup_power2_divisions:4").division_intervals == (4,) * 16


@pytest.mark.parametrize(
    ("text", "intervals"),
    [
        ("[64:8,256:4,1024:4,>:1]", (8,) * 7 + (0, 4, 0, 4) + (1,) * 5),
        ("[256:1,512:2,1024:4,>:8]", (1,) * 9 + (2, 4) + (8,) * 5),
        ("[>:2]", (0,) + (2,) * 15),  # without an interval before it, PyTorch leaves the first out
        ("[1:2,2:4]", (2, 4) + (0,) * 14),
        ("[65536:2]", (2,) * 16),  # in MiB: beyond the last interval, which starts at 32 GiB
    ],
)
def test_a_list_of_divisions_is_by_sizes_in_mib(text: str, intervals: tuple[int, ...]) -> None:
    settings = AllocatorSettings.parse(f"roundup_power2_divisions:{text},expandable_segments:False")
    assert settings.division_intervals == intervals


def test_divisions_that_change_nothing_are_none() -> None:
    assert AllocatorSettings.parse("roundup_power2_divisions:1").division_intervals is None


def test_a_memory_fraction_is_of_the_memory_of_the_device() -> None:
    settings = AllocatorSettings.parse("per_process_memory_fraction:0.5", device_memory=80 * MIB)
    assert settings.memory_limit == 40 * MIB
    assert AllocatorSettings.parse("per_process_memory_fraction:1.0") == AllocatorSettings()
    with pytest.raises(SpecError, match=r"found '0\.5'; expected the device's memory"):
        AllocatorSettings.parse("per_process_memory_fraction:0.5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_split_size:128", "max_split_size: found '128'; expected one of the options expandable_segments, "),
        ("max_split_size_mb", "max_split_size_mb: found nothing; expected one of the options|expected a whole number"),
        ("max_split_size_mb:1.5", "max_split_size_mb: found '1.5'; expected a whole number of MiB"),
        ("expandable_segments:true", "expandable_segments: found 'true'; expected True or False"),
        ("garbage_collection_threshold:80%", "found '80%'; expected a fraction from 0 to 1"),
        ("roundup_power2_divisions:3", "found '3'; expected a power of two, or a list such as"),
        ("roundup_power2_divisions:[256:3]", "expected a power of two, or a list such as"),
        ("roundup_power2_divisions:[100:4]", "expected a power of two, or a list such as"),
        ("roundup_power2_divisions:[]", "expected a power of two, or a list such as"),
        ("backend:cudaMallocAsync", "backend: found 'cudaMallocAsync'; expected 'native'"),
        ("throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom: found 'True'; expected False"),
        ("max_split_size_mb:10", "max_split_size: found 10,485,760 bytes; expected at least a large segment, 20 MiB"),
        ("large_segment_size_mb:10", "large_segment_size: found 10,485,760 bytes; expected more than 10 MiB"),
        ("large_segment_size_mb:40,max_split_size_mb:30", "expected at least a large segment, 40 MiB"),
        ("garbage_collection_threshold:1.0", "found 1.0; expected a fraction above 0 and below 1"),
    ],
)
def test_a_mistake_says_what_was_found_and_expected(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        AllocatorSettings.parse(text)


def test_all_mistakes_are_listed_at_once() -> None:
    with pytest.raises(SpecError, match="2 mistakes") as caught:
        AllocatorSettings.parse("expandable_segments:1,max_split_size_mb:many,pinned_num_register_threads:8")
    assert [mistake.place for mistake in caught.value.mistakes] == ["expandable_segments", "max_split_size_mb"]


@pytest.mark.parametrize(
    "values",
    [{"capacity": -1}, {"memory_limit": -1}, {"roundup_power2_divisions": 3}, {"roundup_power2_divisions": (2, 4)}],
)
def test_values_are_checked_without_a_text_as_well(values: dict[str, int]) -> None:
    with pytest.raises(SpecError, match=f"{next(iter(values))}: found"):
        AllocatorSettings(**values)  # type: ignore[arg-type]
