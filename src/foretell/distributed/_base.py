"""What every model of consumption promises, and the columns that it predicts."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.observation import Cycle, Metric, Resource
from foretell.core.workload import Floats, Workload
from foretell.distributed.consumption import Case, Consumed, MeasuredJob, Setting, Strategy

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Target: TypeAlias = tuple[Resource, Metric]

TARGETS: tuple[Target, ...] = tuple((resource, metric) for resource in Resource for metric in Metric)
_BYTES_PER_PARAMETER = 4


class ConsumptionModel(abc.ABC):
    """Predicts what distributed training consumes from a step's operators and the setting.

    **Fitting.** :meth:`fit` takes jobs and the case of each; a resource without a cycle in a job is not fitted to it.
    **Predictions.** :meth:`predict` gives one for each case, in order; metrics that no job has are left out.
    **Repeatable.** The same seed and the same jobs give the same predictions.
    **Files.** :meth:`from_state` of :meth:`to_state` predicts the same; it checks what it reads.
    """

    kind: ClassVar[str]  # the method's name

    @abc.abstractmethod
    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Fit to measured jobs; returns itself."""

    @abc.abstractmethod
    def predict(self, cases: Sequence[Case]) -> list[Consumed]:
        """What each case consumes."""

    def can_predict(self, setting: Setting) -> bool:
        """Whether it predicts in a setting; most methods do in every one."""
        return True

    @abc.abstractmethod
    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What was fitted, as plain values and arrays."""

    @classmethod
    @abc.abstractmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Arrays) -> Self:
        """The model with this state.

        Raises:
            LookupError, TypeError, ValueError: The state is not valid.
        """


class TransferableModel(ConsumptionModel):
    """A model that can be transferred to another setting with a few jobs."""

    @abc.abstractmethod
    def transfer(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """A model that is also fitted to the setting of these jobs."""


def read_targets(jobs: Sequence[MeasuredJob]) -> Floats:
    """A row for each job; NaN where it has no cycle."""
    return np.array(
        [[_read(job.cycles.get(resource), metric) for resource, metric in TARGETS] for job in jobs], dtype=np.float64
    ).reshape(len(jobs), len(TARGETS))


def _read(cycle: Cycle | None, metric: Metric) -> float:
    return float("nan") if cycle is None else float(getattr(cycle, metric))


def find_measured_resources(jobs: Sequence[MeasuredJob]) -> frozenset[Resource]:
    """Resources that have a cycle in at least one job."""
    return frozenset(resource for job in jobs for resource in job.cycles)


def find_period(metrics: Mapping[Target, float]) -> float | None:
    """Seconds of an iteration: bursts and idles of a resource add up to it."""
    sums = [
        metrics[resource, Metric.BURST] + metrics[resource, Metric.IDLE]
        for resource in Resource
        if (resource, Metric.BURST) in metrics and (resource, Metric.IDLE) in metrics
    ]
    return float(np.mean(sums)) if sums else None


def sum_compute(case: Case) -> float:
    """Seconds that a worker needs without others."""
    return float(np.nansum(case.operator_s))


def count_gradient_bytes(workload: Workload) -> float:
    """Of all gradients; of all parameters where gradients are unknown."""
    return float(sum(each.bytes_ for each in workload.gradients) or _BYTES_PER_PARAMETER * workload.parameters)


def count_sent_bytes(case: Case) -> float:
    """What a worker sends and receives in an iteration: around a ring of workers, or to servers and back."""
    workers = case.setting.workers
    share = 2 * (workers - 1) / workers if case.setting.strategy is Strategy.ALLREDUCE else 1.0
    return share * count_gradient_bytes(case.workload)


def find_least_iteration(case: Case) -> float:
    """Seconds that the busiest link needs for what an iteration sends, at its full rate; 0 where no link is known.

    Each direction has the rate of the link, so sending and receiving may overlap; nothing can be faster than that. Of
    parameter servers, the busiest link is a server's where there are more workers than servers.
    """
    setting = case.setting
    served = setting.strategy is Strategy.SERVERS
    queued = max(1.0, setting.workers / setting.servers) if served else 1.0
    return queued * find_least_transfer(case)


def find_least_transfer(case: Case) -> float:
    """Seconds that a worker's own link needs for what it sends in an iteration; 0 where no link is known."""
    link = case.setting.link_bytes_per_s
    return count_sent_bytes(case) / link if link and case.setting.communicates else 0.0
