"""What PyTorch's CUDA caching allocator is configured with: the options of PYTORCH_ALLOC_CONF that change its blocks.

The options and their limits are those of PyTorch 2: https://pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from foretell.core.errors import Mistake, SpecError

MIB = 2**20
MIN_LARGE_REQUEST = 10 * MIB  # from here on a request has a segment of its own
_INTERVALS = 16  # sizes from 1 MiB to 64 GiB, by powers of two, can each be rounded in their own way
_OPTION = re.compile(r"\s*([^,:\[\]]*?)\s*:\s*(\[[^\]]*\]|[^,:\[\]]*?)\s*(?:,|$)")
_WITHOUT_EFFECT = frozenset(
    {
        "graph_capture_record_stream_reuse",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
    }
)  # on which memory is reserved; so are all options of pinned memory, which is the host's


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorSettings:
    """How the caching allocator works, in bytes; the defaults are PyTorch's, on a device without end.

    ``capacity`` is what the driver can give to this process: the device's memory without the CUDA context and other
    processes. ``memory_limit`` is what ``torch.cuda.set_per_process_memory_fraction`` allows; garbage is collected only
    if it is set, as in PyTorch (https://github.com/pytorch/pytorch/pull/76648).
    ``roundup_power2_divisions`` is one number for all sizes, or 16 of them: up to 2 MiB, up to 4 MiB, ... from 32 GiB.
    """

    expandable_segments: bool = False
    max_split_size: int | None = None
    max_non_split_rounding: int | None = None
    large_segment_size: int = 20 * MIB
    roundup_power2_divisions: int | tuple[int, ...] | None = None
    garbage_collection_threshold: float | None = None
    capacity: int | None = None
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        """Check the values as PyTorch does.

        Raises:
            SpecError: PyTorch would refuse a value.
        """
        mistakes = tuple(self._find_mistakes())
        if mistakes:
            raise SpecError("allocator settings", mistakes)

    @classmethod
    def parse(cls, text: str, *, capacity: int | None = None, device_memory: int | None = None) -> "AllocatorSettings":
        """The settings of a value of ``PYTORCH_ALLOC_CONF`` or ``PYTORCH_CUDA_ALLOC_CONF``.

        Options that do not change what is reserved on the device are accepted and not used. ``device_memory`` is the
        total memory of the device, which ``per_process_memory_fraction`` is a part of.

        Raises:
            SpecError: An option is unknown, or a value is not one of the option's.
        """
        values: dict[str, Any] = {"capacity": capacity}
        mistakes = []
        for name, value in _split_options(text):
            try:
                values |= _parse_option(name, value, device_memory=device_memory)
            except _ValueMistake as exc:
                found = repr(value) if value else "nothing"
                mistakes.append(Mistake(place=name or "option", found=found, expected=exc.expected))
        if mistakes:
            raise SpecError(f"allocator settings {text!r}", mistakes)
        return cls(**values)

    @property
    def division_intervals(self) -> tuple[int, ...] | None:
        """The divisions between powers of two for each of the 16 intervals of sizes; None if nothing is rounded so."""
        divisions = self.roundup_power2_divisions
        intervals = (divisions,) * _INTERVALS if isinstance(divisions, int) else divisions
        return intervals if intervals and max(intervals) > 1 else None

    def _find_mistakes(self) -> Iterator[Mistake]:
        least = self.large_segment_size
        if least <= MIN_LARGE_REQUEST:
            yield Mistake(place="large_segment_size", found=f"{least:,} bytes", expected="more than 10 MiB")
        for name in ("max_split_size", "max_non_split_rounding"):
            size = getattr(self, name)
            if size is not None and size < least:
                expected = f"at least a large segment, {least / MIB:g} MiB"
                yield Mistake(place=name, found=f"{size:,} bytes", expected=expected)
        threshold = self.garbage_collection_threshold
        if threshold is not None and not 0 < threshold < 1:
            expected = "a fraction above 0 and below 1"
            yield Mistake(place="garbage_collection_threshold", found=repr(threshold), expected=expected)
        for name in ("capacity", "memory_limit"):
            size = getattr(self, name)
            if size is not None and size < 0:
                yield Mistake(place=name, found=f"{size:,} bytes", expected="a number of bytes, or None for no limit")
        yield from self._find_division_mistakes()

    def _find_division_mistakes(self) -> Iterator[Mistake]:
        divisions = self.roundup_power2_divisions
        numbers = divisions if isinstance(divisions, tuple) else (divisions or 0,) * _INTERVALS
        if len(numbers) != _INTERVALS or any(number < 0 or number.bit_count() > 1 for number in numbers):
            expected = f"a power of two, or {_INTERVALS} powers of two or zeros"
            yield Mistake(place="roundup_power2_divisions", found=repr(divisions), expected=expected)


class _ValueMistake(Exception):  # noqa: N818 - becomes a Mistake
    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected


def _split_options(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while text[position:].strip():
        option = _OPTION.match(text, position)
        if option is None:
            yield text[position:].strip(), ""
            return
        yield option[1], option[2]
        position = option.end()


def _parse_option(name: str, value: str, *, device_memory: int | None) -> dict[str, Any]:
    if name in _WITHOUT_EFFECT or name.startswith("pinned_"):
        return {}
    if name == "backend":
        _require(value == "native", "'native': cudaMallocAsync leaves the blocks to the driver, which is not replayed")
        return {}
    if name == "throw_on_cudamalloc_oom":
        _require(value == "False", "False: what is refused before the device is asked is not replayed")
        return {}
    if name == "per_process_memory_fraction":
        fraction = _parse_fraction(value)
        if fraction == 1:
            return {}  # the whole memory is no limit: PyTorch sets none
        if device_memory is None:
            raise _ValueMistake("the device's memory to take the fraction of; give device_memory, or memory_limit")
        return {"memory_limit": int(fraction * device_memory)}
    if name not in _OPTIONS:
        raise _ValueMistake(f"one of the options {', '.join(sorted({*_OPTIONS, *_WITHOUT_EFFECT}))}, each NAME:VALUE")
    field, parse_value = _OPTIONS[name]
    return {field: parse_value(value)}


def _require(condition: bool, expected: str) -> None:
    if not condition:
        raise _ValueMistake(expected)


def _parse_flag(value: str) -> bool:
    _require(value in {"True", "False"}, "True or False")
    return value == "True"


def _parse_mebibytes(value: str) -> int:
    _require(value.isdecimal(), "a whole number of MiB")
    return int(value) * MIB


def _parse_fraction(value: str) -> float:
    try:
        fraction = float(value)
    except ValueError:
        fraction = math.nan
    _require(0 <= fraction <= 1, "a fraction from 0 to 1")
    return fraction


def _parse_divisions(value: str) -> int | tuple[int, ...]:
    if not value.startswith("["):
        return _parse_power_of_two(value)
    divisions = [0] * _INTERVALS
    last = None
    for entry in value[1:-1].split(","):
        bound, _, number = entry.partition(":")
        count = 0 if number.strip() == "0" else _parse_power_of_two(number.strip())
        if bound.strip() == ">":
            first = 1 if last is None else last + 1
            divisions[first:] = [count] * (_INTERVALS - first)
            continue
        index = min(_parse_power_of_two(bound.strip()).bit_length() - 1, _INTERVALS - 1)
        if last is None:
            divisions[:index] = [count] * index
        divisions[index] = count
        last = index
    return tuple(divisions)


def _parse_power_of_two(value: str) -> int:
    expected = "a power of two, or a list such as [256:1,512:2,1024:4,>:8] of sizes in MiB and powers of two"
    _require(value.isdecimal() and int(value).bit_count() == 1, expected)
    return int(value)


_OPTIONS: dict[str, tuple[str, Callable[[str], object]]] = {
    "expandable_segments": ("expandable_segments", _parse_flag),
    "garbage_collection_threshold": ("garbage_collection_threshold", _parse_fraction),
    "large_segment_size_mb": ("large_segment_size", _parse_mebibytes),
    "max_non_split_rounding_mb": ("max_non_split_rounding", _parse_mebibytes),
    "max_split_size_mb": ("max_split_size", _parse_mebibytes),
    "roundup_power2_divisions": ("roundup_power2_divisions", _parse_divisions),
}
