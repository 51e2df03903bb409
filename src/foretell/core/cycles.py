"""What distributed training consumes: settings, cycles of bursts and idles, and what is told of them beforehand."""

from dataclasses import dataclass
from enum import StrEnum

from foretell.core.workload import Floats


class Resource(StrEnum):
    """What is consumed over time."""

    COMPUTE = "compute"  # of the GPU, or of CPU cores where there is none: 1 is a whole one
    MEMORY = "memory"  # of the GPU's memory interface: 1 is all of the time; nothing stands in for it on a CPU
    TRANSMIT = "transmit"  # bytes a second
    RECEIVE = "receive"  # bytes a second


class Metric(StrEnum):
    """What is told of a resource's cycle."""

    BURST = "burst_s"
    IDLE = "idle_s"
    AMOUNT = "burst_amount"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """The bursts and idles of one resource: means over the whole cycles that were seen."""

    burst_s: float
    idle_s: float
    burst_amount: float  # mean rate in bursts
    idle_amount: float
    period_s: float
    bursts: int  # that were seen
    chance: float  # that a series without any cycle looks as regular

    @property
    def share(self) -> float:
        """Of the time that is in bursts."""
        return self.burst_s / (self.burst_s + self.idle_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A resource over time: ``values[n]`` is the mean rate from ``times_s[n]`` to ``times_s[n + 1]``."""

    times_s: Floats  # one more than values
    values: Floats

    @property
    def total(self) -> float:
        """The rate times how long it lasted, added up: core-seconds, bytes."""
        return float(self.values @ (self.times_s[1:] - self.times_s[:-1]))

    @property
    def mean(self) -> float:
        """The rate over all of the time."""
        return self.total / float(self.times_s[-1] - self.times_s[0])
