"""The timeline of a distributed iteration: gradient buckets, transfers and waiting, from operator times and bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.core.workload import Floats, Gradient, StepPhase, Workload
from foretell.distributed.consumption import Case, Setting, Strategy

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
    compute_s: float  # operators and own_s
    own_s: float  # the worker's own part of communication
    transmit_s: float  # sending
    receive_s: float
    transmit_bytes: float
    receive_bytes: float
    exchange_s: float  # from the first byte to the last
    buckets: int

    @property
    def exposed_s(self) -> float:
        """Communication that no computation overlaps."""
        return max(0.0, self.iteration_s - self.compute_s)


FIRST_BYTES = 2**20  # PyTorch's defaults
CAP_BYTES = 25 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are sent together, and the operator after which the last of them is ready."""

    bytes_: int
    ready: int  # index of the operator


def find_buckets(workload: Workload, first_bytes: int = FIRST_BYTES, cap_bytes: int = CAP_BYTES) -> tuple[Bucket, ...]:
    """The buckets that PyTorch's ``DistributedDataParallel`` sends from its second iteration on, in order.

    A bucket takes gradients as they become ready until it has its size; the first is small, to start sending early.
    https://docs.pytorch.org/docs/stable/notes/ddp.html
    """
    buckets: list[Bucket] = []
    held: list[Gradient] = []
    for gradient in workload.gradients:
        held.append(gradient)
        if sum(each.bytes_ for each in held) >= (cap_bytes if buckets else first_bytes):
            buckets.append(_close(held))
            held = []
    return (*buckets, _close(held)) if held else tuple(buckets)


def _close(held: Sequence[Gradient]) -> Bucket:
    return Bucket(bytes_=sum(each.bytes_ for each in held), ready=max(each.ready for each in held))


def lay_out(case: Case, costs: Costs, own_s: float = 0.0) -> Timeline:
    """The iteration of a case; ``own_s`` is the worker's own part of communication, on a whole device."""
    phases = sum_phases(case)
    if case.setting.strategy is Strategy.ALLREDUCE:
        return _lay_out_reduced(case, costs, phases, own_s)
    return _lay_out_served(case, costs, phases, own_s)


def count_bytes(case: Case) -> float:
    """Of all gradients."""
    return float(sum(gradient.bytes_ for gradient in case.workload.gradients))


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


def _lay_out_reduced(case: Case, costs: Costs, phases: dict[StepPhase, float], own_s: float) -> Timeline:
    """Buckets are reduced one after the other, each when it is full, during the backward phase."""
    setting = case.setting
    rounds = 2 * (setting.workers - 1) / setting.workers  # how often a ring sends each byte
    rate, slow = _find_rate(setting, costs), costs.slowdown / setting.share
    buckets = find_buckets(case.workload) if setting.workers > 1 else ()
    ready = _find_ready(case, buckets) * slow
    forward, backward, update = (slow * phases[phase] for phase in StepPhase)
    whole_bytes = sum(bucket.bytes_ for bucket in buckets)
    clock, own = 0.0, 0.0
    for bucket, filled in zip(buckets, ready.tolist(), strict=True):
        begin = max(clock, filled + own)
        own += own_s * slow * bucket.bytes_ / whole_bytes
        clock = begin + bucket.bytes_ * rounds / rate + costs.message_s * (setting.workers - 1)
    sent = rounds * whole_bytes
    waits = max(0.0, clock - backward - own)
    # While a GPU waits for gradients, the host launches the update.
    update = max(update - waits, slow * sum_phases(case, case.busy_s)[StepPhase.UPDATE])
    whole = forward + backward + own + waits + update
    first = float(ready[0]) if len(ready) else 0.0
    return Timeline(
        iteration_s=whole,
        compute_s=forward + backward + update + own,
        own_s=own,
        transmit_s=sent / rate,
        receive_s=sent / rate,
        transmit_bytes=sent,
        receive_bytes=sent,
        exchange_s=max(clock - first, sent / rate),
        buckets=len(buckets),
    )


def _find_ready(case: Case, buckets: tuple[Bucket, ...]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Seconds of the backward phase after which each bucket is full."""
    backward = np.array([operator.phase is StepPhase.BACKWARD for operator in case.workload.operators])
    ends = np.cumsum(np.where(backward, case.operator_s, 0.0))
    return np.array([ends[bucket.ready] for bucket in buckets])


def _lay_out_served(case: Case, costs: Costs, phases: dict[StepPhase, float], own_s: float) -> Timeline:
    """Gradients are sent after the backward phase and parameters come back; workers share a server's link."""
    setting = case.setting
    gradients = count_bytes(case)
    rate, slow = _find_rate(setting, costs), costs.slowdown / setting.share
    compute = slow * (phases[StepPhase.FORWARD] + phases[StepPhase.BACKWARD])
    own = slow * own_s
    part = gradients / setting.servers
    workers_per_server = setting.workers / setting.servers
    message = costs.message_s * setting.servers
    sending = gradients / rate + message
    if setting.synchronous:
        way = gradients * max(1.0, workers_per_server) / rate + message
        sending += max(0.0, gradients - IN_FLIGHT_BYTES) * max(0.0, workers_per_server - 1.0) / rate
        served = part * (1 + setting.workers) * costs.server_s_per_byte
        whole = compute + own + 2 * way + served
    else:
        way = sending
        served = 2 * part * costs.server_s_per_byte
        whole = max(compute + own + 2 * way + served, gradients * workers_per_server / rate, setting.workers * served)
    return Timeline(
        iteration_s=whole,
        compute_s=compute + own,
        own_s=own,
        transmit_s=sending,
        receive_s=way,
        transmit_bytes=gradients,
        receive_bytes=gradients,
        exchange_s=2 * way + served,
        buckets=setting.servers,
    )
