"""The timeline of a distributed iteration: what computes, links and servers do, from operator times and bytes.

Each is a stream of tasks (:mod:`foretell.distributed.task_timeline`). Workers are alike, and so are servers: the tasks
are those of one worker, and of one server, which also has the tasks of the other workers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.core.gradients import Bucket, find_buckets
from foretell.core.workload import Floats, StepPhase
from foretell.distributed.consumption import Case, Setting, Strategy
from foretell.distributed.task_timeline import Task, replay_tasks

FASTEST_BYTES_PER_S = 5e9  # without a link: about the rate between processes of one machine
IN_FLIGHT_BYTES = 1e6  # about a TCP window: sent at the sender's own rate, even to a shared link


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs in addition to the link's rate, fitted to jobs."""

    efficiency: float = 0.95  # of the link: headers and pauses
    message_s: float = 1e-3  # for each exchange
    server_s_per_byte: float = 1e-9
    slowdown: float = 1.0  # of operators next to other workers: shared memory, and waiting for the slowest


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Seconds of an iteration on one worker."""

    iteration_s: float
    compute_s: float  # operators, and the worker's own part of communication
    transmit_s: float  # sending
    receive_s: float
    transmit_bytes: float
    receive_bytes: float
    buckets: int

    @property
    def exposed_s(self) -> float:
        """Communication that no computation overlaps."""
        return max(0.0, self.iteration_s - self.compute_s)


def lay_out(case: Case, costs: Costs, own_s: float = 0.0) -> Timeline:
    """The iteration of a case; ``own_s`` is the worker's own part of communication, on a whole device."""
    if case.setting.strategy is Strategy.ALLREDUCE:
        return _lay_out_reduced(case, costs, own_s)
    return _lay_out_served(case, costs, own_s)


def sum_phases(case: Case, seconds: Floats | None = None) -> dict[StepPhase, float]:
    """The operator times of each phase, or other seconds of each operator."""
    sums = dict.fromkeys(StepPhase, 0.0)
    for operator, each in zip(
        case.workload.operators, (case.operator_s if seconds is None else seconds).tolist(), strict=True
    ):
        sums[operator.phase] += each
    return sums


def _find_rate(setting: Setting, costs: Costs) -> float:
    return (setting.link_bytes_per_s or FASTEST_BYTES_PER_S) * costs.efficiency


# All-reduce


def _lay_out_reduced(case: Case, costs: Costs, own_s: float) -> Timeline:
    """Buckets are reduced one after the other, each when it is full, during the backward phase."""
    setting = case.setting
    buckets = find_buckets(case.workload) if setting.workers > 1 else ()
    rounds = 2 * (setting.workers - 1) / setting.workers  # how often a ring sends each byte
    rate = _find_rate(setting, costs)
    latency = costs.message_s * (setting.workers - 1)
    exchanges = [bucket.bytes_ * rounds / rate + latency for bucket in buckets]
    ends = replay_tasks(_list_reduced(case, costs.slowdown / setting.share, own_s, buckets, exchanges))
    exchanged = ends.get((_RECEIVE, len(buckets) - 1), 0.0)
    sent = rounds * sum(bucket.bytes_ for bucket in buckets)
    return Timeline(
        iteration_s=ends["update"],
        compute_s=ends["update"] - max(0.0, exchanged - ends["backward"]),
        transmit_s=sent / rate,
        receive_s=sent / rate,
        transmit_bytes=sent,
        receive_bytes=sent,
        buckets=len(buckets),
    )


def _list_reduced(
    case: Case, slow: float, own_s: float, buckets: Sequence[Bucket], exchanges: Sequence[float]
) -> Iterator[Task]:
    """After a bucket is full, the worker's own part of reducing it takes its device from the backward phase."""
    phases = sum_phases(case)
    whole = max(1, sum(bucket.bytes_ for bucket in buckets))
    yield Task("forward", _COMPUTE, slow * phases[StepPhase.FORWARD])
    done = 0.0
    for number, (bucket, ready, seconds) in enumerate(zip(buckets, _find_ready(case, buckets), exchanges, strict=True)):
        yield Task(("backward", number), _COMPUTE, slow * max(0.0, ready - done))
        yield from (Task((link, number), link, seconds, (("backward", number),)) for link in (_TRANSMIT, _RECEIVE))
        yield Task(("own", number), _COMPUTE, slow * own_s * bucket.bytes_ / whole)
        done = max(done, ready)
    yield Task("backward", _COMPUTE, slow * max(0.0, phases[StepPhase.BACKWARD] - done))
    # While a GPU waits for gradients, the host launches the update.
    busy = sum_phases(case, case.busy_s)[StepPhase.UPDATE]
    yield Task("launch", "host", slow * max(0.0, phases[StepPhase.UPDATE] - busy), ("backward",))
    yield Task("update", _COMPUTE, slow * busy, ("launch", (_RECEIVE, len(buckets) - 1)))


def _find_ready(case: Case, buckets: Sequence[Bucket]) -> list[float]:
    """Seconds of the backward phase after which each bucket is full."""
    backward = np.array([operator.phase is StepPhase.BACKWARD for operator in case.workload.operators])
    ends = np.cumsum(np.where(backward, case.operator_s, 0.0))
    return [float(ends[bucket.ready]) for bucket in buckets]


# Parameter servers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """Seconds of an iteration on a worker and on one of its servers."""

    compute: float
    link: float  # of the server, in each direction
    rest: float  # of the way there, and of the way back: to other servers, and latencies
    serve: float
    others: int = 0  # workers that have the server between an iteration and the next


def _lay_out_served(case: Case, costs: Costs, own_s: float) -> Timeline:
    """Gradients are sent after the backward phase and parameters come back; workers share a server's link."""
    setting = case.setting
    gradients = float(sum(gradient.bytes_ for gradient in case.workload.gradients))
    find = _wait_for_all if setting.synchronous else _wait_for_none
    one = find(setting, costs, gradients, _find_compute(case, costs.slowdown / setting.share, own_s))
    ends = replay_tasks(task for number in range(2) for task in _list_served(one, number))
    way = one.link + one.rest
    early = _find_queued(setting, gradients) / _find_rate(setting, costs)
    return Timeline(
        # The first iteration does not wait for other workers; every further one takes as long as the second.
        iteration_s=ends[_RECEIVE, 1] - ends[_RECEIVE, 0],
        compute_s=one.compute,
        transmit_s=way - early,
        receive_s=way,
        transmit_bytes=gradients,
        receive_bytes=gradients,
        buckets=setting.servers,
    )


def _find_compute(case: Case, slow: float, own_s: float) -> float:
    """Servers run the update."""
    phases = sum_phases(case)
    return slow * (phases[StepPhase.FORWARD] + phases[StepPhase.BACKWARD] + own_s)


def _find_queued(setting: Setting, gradients: float) -> float:
    """Bytes that other workers send meanwhile to the same server, while a worker's own are in the network's queues."""
    sharing = setting.workers / setting.servers if setting.synchronous else 1.0
    return min(gradients, IN_FLIGHT_BYTES) * max(0.0, sharing - 1.0)


def _wait_for_all(setting: Setting, costs: Costs, gradients: float, compute: float) -> _Round:
    """All workers send and receive at the same time, and share the links of the servers."""
    rate, sharing = _find_rate(setting, costs), setting.workers / setting.servers
    return _Round(
        compute=compute,
        link=gradients * sharing / rate,
        rest=gradients * max(0.0, 1.0 - sharing) / rate + costs.message_s * setting.servers,
        serve=gradients / setting.servers * (1 + setting.workers) * costs.server_s_per_byte,
    )


def _wait_for_none(setting: Setting, costs: Costs, gradients: float, compute: float) -> _Round:
    """Each worker has the links of the servers for itself, in turn with the others."""
    rate, part = _find_rate(setting, costs), gradients / setting.servers
    return _Round(
        compute=compute,
        link=part / rate,
        rest=(gradients - part) / rate + costs.message_s * setting.servers,
        serve=2 * part * costs.server_s_per_byte,
        others=setting.workers - 1,
    )


def _list_served(one: _Round, number: int) -> Iterator[Task]:
    """An iteration, and what the server does for other workers before the next."""

    def serve(stream: str, seconds: float, after: str) -> Iterator[Task]:
        yield Task((stream, number), stream, seconds, ((after, number),))
        yield Task((stream, "others", number), stream, seconds * one.others)

    yield Task((_COMPUTE, number), _COMPUTE, one.compute, ((_RECEIVE, number - 1),))
    yield from serve("arrive", one.link, _COMPUTE)
    yield Task((_TRANSMIT, number), _TRANSMIT, one.rest, (("arrive", number),))
    yield from serve("serve", one.serve, _TRANSMIT)
    yield from serve("leave", one.link, "serve")
    yield Task((_RECEIVE, number), _RECEIVE, one.rest, (("leave", number),))


_COMPUTE, _TRANSMIT, _RECEIVE = "compute", "transmit", "receive"  # streams of a worker
