"""Peaks of memory that were measured on a GPU, by which predictions of the same model are corrected."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretell.core.errors import Mistake, SpecError
from foretell.memory.usage import MemoryUsage
from foretell.workloads.measurement_files import ALLOCATED, RESERVED, Profile

_REMEDY = "a profile of 'foretell workload profile' on a machine with a GPU, which measures its memory as well"
_SIZE = re.compile(r"[0-9]{1,15}")  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPeaks:
    """What PyTorch's allocator gave and took at most."""

    batch: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRatios:
    """What was measured, as multiples of what was predicted."""

    allocated: float = 1.0
    reserved: float = 1.0

    def correct(self, usage: MemoryUsage) -> MemoryUsage:
        """The usage of another step of the same model."""
        allocated = round(self.allocated * usage.allocated_bytes)
        reserved = max(allocated, round(self.reserved * usage.reserved_bytes))
        return replace(usage, allocated_bytes=allocated, reserved_bytes=reserved)


def read_peaks(profiles: Sequence[Profile]) -> MeasuredPeaks | None:
    """The peaks of the profile with the largest batch, None without a profile.

    Raises:
        SpecError: A profile has no measured memory.
    """
    found = []
    for profile in profiles:
        sizes = [profile.facts.get(name, "") for name in (ALLOCATED, RESERVED)]
        allocated, reserved = (int(size) if _SIZE.fullmatch(size) else 0 for size in sizes)
        if not 0 < allocated <= reserved:
            name = f"{profile.step.workload.name} on {profile.step.device}"
            raise SpecError("options", [Mistake(place="profile", found=name, expected=_REMEDY)])
        batch = profile.step.workload.batch
        found.append(MeasuredPeaks(batch=batch, allocated_bytes=allocated, reserved_bytes=reserved))
    return max(found, key=lambda each: each.batch, default=None)


def compare_peaks(measured: MeasuredPeaks, predicted: MemoryUsage) -> PeakRatios:
    """The ratios at the batch that was measured."""
    return PeakRatios(
        allocated=measured.allocated_bytes / predicted.allocated_bytes,
        reserved=measured.reserved_bytes / predicted.reserved_bytes,
    )
