"""An observed job: its resources over time, the cycles in them, and the load of other processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from foretell.core.warning import PredictionWarning
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


_MOST_OTHERS, _MOST_STOLEN = 0.1, 0.02  # of the cores: with more, times are not reliable


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleSearch:
    """The cycle of a series and its bursts, or why there is none."""

    cycle: Cycle | None
    why: str = ""
    bursts: tuple[tuple[float, float], ...] = ()  # from when to when, in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Other load on the CPUs that a job may use, in cores on average; ``by`` names the busiest processes."""

    others: float = 0.0
    stolen: float = 0.0  # by other virtual machines
    cores: int = 1  # that the job may use
    by: Mapping[str, float] = field(default_factory=dict)

    @property
    def disturbs(self) -> bool:
        """Whether the load may have affected the measurement."""
        return self.others > _MOST_OTHERS * self.cores or self.stolen > _MOST_STOLEN * self.cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Samples of some processes and their descendants, in seconds from ``started_s`` on.

    ``started_s`` is by ``time.perf_counter``, which all processes of a machine share. ``warnings`` say what the figures
    leave open.
    """

    started_s: float
    interval_s: float
    series: Mapping[Resource, Series]  # compute is that of GPUs where they are used, else of CPU cores
    cpu: Series  # cores
    gpu_memory: Series | None = None  # bytes
    load: Load = field(default_factory=Load)
    processes: int = 0  # the most at one moment
    gpus: int = 0
    grain_s: float = 0.0  # CPU time may be counted with this delay
    sampling_cpu_s: float = 0.0
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def elapsed_s(self) -> float:
        """The length of the recording."""
        return float(self.cpu.times_s[-1])

    @property
    def gpu_busy(self) -> Series | None:
        """GPU utilisation, if any GPU was used."""
        return self.series[Resource.COMPUTE] if self.gpus else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An observed job: its resources over time, their cycles, the stored run and the file.

    ``exit_code`` is that of the command, if it was started here (negative: a signal's number). ``warnings`` say what
    the figures leave open.
    """

    subject: str  # a command line, or which processes or job
    recorded: Recorded
    cycles: Mapping[Resource, CycleSearch]
    exit_code: int | None = None
    warnings: tuple[PredictionWarning, ...] = ()
    run_id: str = ""
    path: str = ""

    @property
    def period_s(self) -> float | None:
        """Of an iteration: that of the network, else of another resource; ``None`` without a cycle."""
        order = (Resource.TRANSMIT, Resource.RECEIVE, Resource.COMPUTE, Resource.MEMORY)
        found = (self.cycles[each].cycle for each in order if each in self.cycles)
        return next((cycle.period_s for cycle in found if cycle is not None), None)
