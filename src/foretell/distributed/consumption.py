"""Settings of distributed training, measured jobs, and predictions of what a training consumes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from foretell.core.errors import Mistake, SpecError
from foretell.core.observation import Cycle, Metric, Resource
from foretell.core.prediction import Estimate
from foretell.core.warning import PredictionWarning
from foretell.core.workload import Floats, Workload

_HARDLY, _MUCH = 0.1, 0.25  # of an iteration, that waits or is saved
_NOT_EXTRAPOLATED = ("no-communication", "link-not-named")  # warnings that are not about the measured range


class Strategy(StrEnum):
    """How workers combine their gradients."""

    ALLREDUCE = "allreduce"
    SERVERS = "ps"  # parameter servers


_STRATEGIES = tuple(each.value for each in Strategy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a network is trained by several workers; each worker and server has its own node and link.

    The batch is that of one worker. ``link_bytes_per_s`` is what a node can send and, at the same time, receive.
    """

    strategy: Strategy = Strategy.ALLREDUCE  # or its name
    workers: int = 2
    servers: int = 0
    synchronous: bool = True  # with parameter servers: whether workers wait for each other
    link_bytes_per_s: float | None = None  # unknown: memory of one machine
    device: str = ""
    share: float = 1.0  # of a core for each worker, where the device is a CPU core

    def __post_init__(self) -> None:
        """A strategy may be given by its name.

        Raises:
            SpecError: There is no such strategy.
        """
        try:
            object.__setattr__(self, "strategy", Strategy(self.strategy))
        except ValueError:
            mistake = Mistake(place="strategy", found=repr(self.strategy), expected=" or ".join(map(repr, _STRATEGIES)))
            raise SpecError("setting", [mistake]) from None

    @property
    def communicates(self) -> bool:
        """Whether there is any other worker or server."""
        return self.workers > 1 or self.strategy is Strategy.SERVERS


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """A measured distributed training; cycles are those of the first worker."""

    workload: Workload
    family: str
    setting: Setting
    iteration_s: float
    cycles: Mapping[Resource, Cycle]  # of the resources that have one
    alone_s: float | None = None  # an iteration without communication, if measured
    used_s: float | None = None  # of an iteration in which the device was busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A training step in a setting, with the time of each operator on one worker, framework included."""

    workload: Workload
    setting: Setting
    operator_s: Floats
    busy_s: Floats | None = None  # in which the device is busy with each operator; all of operator_s if unknown
    device_measured: bool = True  # False on a GPU where no job was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """A model's prediction: seconds of an iteration, and the metrics of each resource."""

    iteration_s: float
    compute_s: float
    exposed_s: float  # communication that no computation overlaps
    metrics: Mapping[tuple[Resource, Metric], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEstimate:
    """The predicted cycle of a resource."""

    burst_s: Estimate
    idle_s: Estimate
    burst_amount: Estimate


class Change(StrEnum):
    """What can be changed in a training."""

    LINK = "link"
    WORKERS = "workers"
    SERVERS = "servers"
    BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumptionPrediction:
    """What a distributed training will consume.

    ``warnings`` say where the setting is outside the measured ones, and what else the prediction leaves open.
    """

    workload: Workload
    setting: Setting
    iteration: Estimate
    compute_s: float
    exposed_s: float
    cycles: Mapping[Resource, CycleEstimate] = field(default_factory=dict)
    gpu: bool = False  # whether workers compute on GPUs
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def outside(self) -> frozenset[PredictionWarning]:
        """The warnings that the setting is outside the measured ones, which makes intervals wider."""
        return frozenset(each for each in self.warnings if each.code not in _NOT_EXTRAPOLATED)

    @property
    def examples_per_s(self) -> float:
        """Of all workers."""
        accumulated = int(self.workload.settings.get("accumulation", "1"))
        return self.setting.workers * self.workload.batch * accumulated / self.iteration.value

    @property
    def exposed_share(self) -> float:
        """The share of an iteration that waits for communication."""
        return self.exposed_s / self.iteration.value

    def find_burst_share(self, resource: Resource) -> float | None:
        """The share of an iteration in which a resource is in a burst; ``None`` if it is not predicted."""
        cycle = self.cycles.get(resource)
        return None if cycle is None else cycle.burst_s.value / (cycle.burst_s.value + cycle.idle_s.value)

    def get_value(self, change: Change) -> float:
        """The value of what can be changed; a link of 0 is unknown."""
        return {
            Change.LINK: self.setting.link_bytes_per_s or 0.0,
            Change.WORKERS: self.setting.workers,
            Change.SERVERS: self.setting.servers,
            Change.BATCH: self.workload.batch,
        }[change]


class LimitedBy(StrEnum):
    """What limits an iteration."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"  # but not the rate of the link
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What limits a training, and the share of an iteration that twice the link or one more server would save."""

    by: LimitedBy
    exposed_share: float
    link_saving: float | None = None  # None: not predicted
    server_saving: float | None = None

    @property
    def mostly(self) -> bool:
        """Whether compute is the limit, but communication costs time too."""
        return self.by is LimitedBy.COMPUTE and self.exposed_share >= _HARDLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a training consumes as asked, and with other links, workers, servers and batches.

    Each row of ``others`` changes one thing, in ascending order, and includes the training as asked.
    """

    asked: ConsumptionPrediction
    others: Mapping[Change, tuple[ConsumptionPrediction, ...]] = field(default_factory=dict)
    curves: bool = True  # whether others are shown, or only used for the limit

    @property
    def shown(self) -> Mapping[Change, tuple[ConsumptionPrediction, ...]]:
        """The others, if they are to be shown."""
        return self.others if self.curves else {}

    @property
    def limit(self) -> Limit:
        """Compute if less than a quarter waits; otherwise the link, if twice its rate saves a tenth or more."""
        waits = self.asked.exposed_share
        if not self.asked.setting.communicates:
            return Limit(by=LimitedBy.COMPUTE, exposed_share=0.0)
        link = self._find_saving(Change.LINK, 2 * self.asked.get_value(Change.LINK))
        server = self._find_saving(Change.SERVERS, self.asked.get_value(Change.SERVERS) + 1)
        if waits < _MUCH:
            by = LimitedBy.COMPUTE
        else:
            by = LimitedBy.COMMUNICATION if link is None or link < _HARDLY else LimitedBy.LINK
        return Limit(by=by, exposed_share=waits, link_saving=link, server_saving=server)

    def _find_saving(self, change: Change, value: float) -> float | None:
        changed = [each for each in self.others.get(change, ()) if each.get_value(change) == value]
        return 1 - changed[0].iteration.value / self.asked.iteration.value if changed else None

    def is_asked(self, prediction: ConsumptionPrediction) -> bool:
        """Whether a prediction is the one as asked."""
        return (prediction.setting, prediction.workload.batch) == (self.asked.setting, self.asked.workload.batch)

    def is_extrapolated(self, prediction: ConsumptionPrediction) -> bool:
        """Whether a change leads outside the measured settings."""
        return bool(prediction.outside - self.asked.outside)
