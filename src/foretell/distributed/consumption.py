"""What distributed training consumes: settings, cycles of bursts and idles, and what is told of them beforehand."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from foretell.core.cycles import Cycle, Metric, Resource
from foretell.core.prediction import Estimate
from foretell.core.warning import PredictionWarning
from foretell.core.workload import Floats, Workload


class Strategy(StrEnum):
    """How the workers of one training share what they learn."""

    ALLREDUCE = "allreduce"
    SERVERS = "ps"  # parameter servers


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a network is trained by several workers; each worker and server has a node and a link of its own.

    A worker holds the batch of the workload. ``link_bytes_per_s`` is what a node sends and, at the same time, receives.
    """

    strategy: Strategy = Strategy.ALLREDUCE
    workers: int = 2
    servers: int = 0
    synchronous: bool = True  # of parameter servers: whether workers wait for each other
    link_bytes_per_s: float | None = None  # nobody named one
    device: str = ""
    share: float = 1.0  # of a core that each worker has, where the device is a CPU core

    @property
    def communicates(self) -> bool:
        """Whether workers have anybody to talk to."""
        return self.workers > 1 or self.strategy is Strategy.SERVERS


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """A distributed training that ran, of which the first worker was looked at."""

    workload: Workload
    family: str
    setting: Setting
    iteration_s: float
    cycles: Mapping[Resource, Cycle]  # of those resources in which one was found
    alone_s: float | None = None  # an iteration without any communication, where that was measured
    used_s: float | None = None  # for which the device was busy in an iteration, waiting left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A training step in a setting, with the time that a worker alone needs for each operator, framework included."""

    workload: Workload
    setting: Setting
    operator_s: Floats
    busy_s: Floats | None = None  # for which the device itself is busy with each; all of it where that is not known
    foreign: bool = False  # on a kind of device that no job taught


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """What a model tells of a case: seconds of an iteration, and the metrics of each resource."""

    iteration_s: float
    compute_s: float
    exposed_s: float  # of communication that no compute hides
    metrics: Mapping[tuple[Resource, Metric], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEstimate:
    """What is told of a resource's cycle beforehand."""

    burst_s: Estimate
    idle_s: Estimate
    burst_amount: Estimate


_INSIDE = ("no-communication", "link-not-named")  # codes that say nothing of the measured range


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumptionPrediction:
    """What a distributed training will consume.

    ``warnings`` say where the setting lies outside what was measured, and what else the prediction leaves open.
    """

    workload: Workload
    setting: Setting
    iteration: Estimate
    compute_s: float
    exposed_s: float
    cycles: Mapping[Resource, CycleEstimate] = field(default_factory=dict)
    gpu: bool = False  # whether compute is of a GPU, else of CPU cores
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def outside(self) -> frozenset[PredictionWarning]:
        """Those of the warnings that the setting lies outside what was measured, which makes intervals wider."""
        return frozenset(each for each in self.warnings if each.code not in _INSIDE)

    @property
    def examples_per_s(self) -> float:
        """Of the training data, by all workers."""
        accumulated = int(self.workload.settings.get("accumulation", "1"))
        return self.setting.workers * self.workload.batch * accumulated / self.iteration.value

    @property
    def exposed_share(self) -> float:
        """Of an iteration, that waits for communication."""
        return self.exposed_s / self.iteration.value


class Change(StrEnum):
    """What may be another."""

    LINK = "link"
    WORKERS = "workers"
    SERVERS = "servers"
    BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a training consumes as asked, and with other links, workers, servers and batches.

    Each row of ``others`` changes one thing only, from little to much, and has what was asked for among it.
    """

    asked: ConsumptionPrediction
    others: Mapping[Change, tuple[ConsumptionPrediction, ...]] = field(default_factory=dict)
    curves: bool = True  # whether others are to be shown, and not only to tell what limits

    @property
    def shown(self) -> Mapping[Change, tuple[ConsumptionPrediction, ...]]:
        """Those of the others that are to be shown."""
        return self.others if self.curves else {}
