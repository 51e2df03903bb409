"""What models of consumption learn: a column for each metric of each resource."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from foretell.core.cycles import Cycle, Metric, Resource
from foretell.core.workload import Floats, Workload
from foretell.distributed.consumption import Case, MeasuredJob, Strategy

Target: TypeAlias = tuple[Resource, Metric]

TARGETS: tuple[Target, ...] = tuple((resource, metric) for resource in Resource for metric in Metric)
_BYTES_PER_PARAMETER = 4


def read_targets(jobs: Sequence[MeasuredJob]) -> Floats:
    """A row for each job; not a number where it has no cycle."""
    return np.array(
        [[_read(job.cycles.get(resource), metric) for resource, metric in TARGETS] for job in jobs], dtype=np.float64
    ).reshape(len(jobs), len(TARGETS))


def _read(cycle: Cycle | None, metric: Metric) -> float:
    return float("nan") if cycle is None else float(getattr(cycle, metric))


def find_taught(jobs: Sequence[MeasuredJob]) -> frozenset[Resource]:
    """Resources that some job has a cycle of."""
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
    """Seconds that a worker alone needs."""
    return float(np.nansum(case.operator_s))


def count_gradient_bytes(workload: Workload) -> float:
    """Of all gradients; of all parameters where gradients are not known."""
    return float(sum(each.bytes_ for each in workload.gradients) or _BYTES_PER_PARAMETER * workload.parameters)


def count_sent_bytes(case: Case) -> float:
    """What a worker sends in an iteration, and receives: around a ring of workers, or to servers and back."""
    workers = case.setting.workers
    share = 2 * (workers - 1) / workers if case.setting.strategy is Strategy.ALLREDUCE else 1.0
    return share * count_gradient_bytes(case.workload)
