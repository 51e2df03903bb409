"""Resources over time, and the cycles of bursts and idle times in them."""

from dataclasses import dataclass
from enum import StrEnum

from foretell.core.workload import Floats


class Resource(StrEnum):
    """A resource that is sampled over time."""

    COMPUTE = "compute"  # of the GPU, or of CPU cores without one: 1 is a whole one
    MEMORY = "memory"  # of the GPU's memory interface: 1 is all of the time; a CPU has no such counter
    TRANSMIT = "transmit"  # bytes a second
    RECEIVE = "receive"  # bytes a second


class Metric(StrEnum):
    """What is predicted of a cycle."""

    BURST = "burst_s"
    IDLE = "idle_s"
    AMOUNT = "burst_amount"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """The bursts and idle times of one resource: means over all whole cycles."""

    burst_s: float
    idle_s: float
    burst_amount: float  # mean rate in bursts
    idle_amount: float
    period_s: float
    bursts: int  # that were found
    chance: float  # that a series without a cycle is as regular

    @property
    def share(self) -> float:
        """The share of the time in bursts."""
        return self.burst_s / (self.burst_s + self.idle_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A resource over time: ``values[n]`` is the mean rate from ``times_s[n]`` to ``times_s[n + 1]``."""

    times_s: Floats  # one more than values
    values: Floats

    @property
    def total(self) -> float:
        """The integral over time: core-seconds, bytes."""
        return float(self.values @ (self.times_s[1:] - self.times_s[:-1]))

    @property
    def mean(self) -> float:
        """The mean rate."""
        return self.total / float(self.times_s[-1] - self.times_s[0])
