"""How much other processes use the cores of this process while it measures, and how much longer that makes things."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from foretell.measure.machine import read_busy_s

_BUSY_CORES = 0.3  # as for the benchmark of a machine: above it, measurements suffer...
_BUSY_SHARE = 0.05  # ...but on a large node some of its cores may be in use
_MUCH = 0.1  # longer by this share


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLoad:
    """What other processes used while something was measured: cores on average, of those that it may use."""

    busy_cores: float
    cores: int
    threads: int  # of what was measured

    @property
    def is_busy(self) -> bool:
        """Whether it was more than measurements should have."""
        return self.busy_cores > max(_BUSY_CORES, _BUSY_SHARE * self.cores)

    @property
    def too_long(self) -> float:
        """By what share measured times may be too long: cores that were missing for each of its own threads."""
        missing = max(0.0, self.busy_cores - (self.cores - self.threads))
        return missing / self.threads if self.is_busy else 0.0

    @property
    def is_disturbing(self) -> bool:
        """Whether measured times may be too long by more than a tenth."""
        return self.too_long > _MUCH


class LoadMeter:
    """Measures the load by other processes between ``with`` and its end, in :attr:`load`.

    What this process does is not counted; what processes that it started do is, so measure in the process that works.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __enter__(self) -> Self:
        self._cores = len(os.sched_getaffinity(0))
        self._began = self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock, busy, own = (now - then for now, then in zip(self._read(), self._began, strict=True))
        cores = max(0.0, busy - own) / max(clock, 1e-3)
        self.load = OtherLoad(busy_cores=min(cores, self._cores), cores=self._cores, threads=self._threads)

    def _read(self) -> tuple[float, float, float]:
        return time.perf_counter(), read_busy_s(), time.process_time()


def summarize_load(loads: Sequence[OtherLoad]) -> OtherLoad | None:
    """The mean of several; none without any."""
    if not loads:
        return None
    mean = sum(load.busy_cores for load in loads) / len(loads)
    return OtherLoad(busy_cores=mean, cores=loads[-1].cores, threads=loads[-1].threads)


def describe_load(load: OtherLoad) -> str:
    """The load, and what it does to measured times."""
    return (
        f"Other processes used {load.busy_cores:.1f} of {load.cores} cores while it was measured: "
        f"times may be up to {load.too_long:.0%} too long."
    )
