"""What was seen of a job while it ran: its resources over time, the cycles in them, and what else was busy."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from foretell.entities.consumption import Cycle, Resource, Series


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleSearch:
    """What was made of a series: a cycle and where its bursts are, or why there is none."""

    cycle: Cycle | None
    why: str = ""
    bursts: tuple[tuple[float, float], ...] = ()  # from when to when, in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What else kept the CPUs busy that a job may use, in cores on average; ``by`` names the busiest others."""

    others: float = 0.0
    stolen: float = 0.0  # by other virtual machines
    cores: int = 1  # that the job may use
    by: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a sampler saw of some processes and their descendants, in seconds from ``started_s`` on.

    ``started_s`` is by ``time.perf_counter``, which all processes of a machine share. ``notes`` are plain sentences:
    what the figures leave open.
    """

    started_s: float
    interval_s: float
    series: Mapping[Resource, Series]  # compute is that of GPUs where they are used, else of CPU cores
    cpu: Series  # cores
    gpu_memory: Series | None = None  # bytes
    load: Load = field(default_factory=Load)
    processes: int = 0  # the most at one moment
    gpus: int = 0
    sampling_cpu_s: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def elapsed_s(self) -> float:
        """For how long it was looked at."""
        return float(self.cpu.times_s[-1])
