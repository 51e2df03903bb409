"""An iteration of distributed training laid out in time: what its bytes, its link and its operators say."""

from dataclasses import dataclass

import numpy as np

from foretell.core.workload import Floats, StepPhase
from foretell.distributed.consumption import Case, Setting, Strategy
from foretell.distributed.step_graph import Bucket, find_buckets

FASTEST_BYTES_PER_S = 5e9  # of a link that nobody named: processes of one machine, about
UNDER_WAY_BYTES = 1e6  # that a network's queues take at a sender's own rate before it feels others: a window of TCP's


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a setting's parts cost beside the link's rate; learned from jobs."""

    efficiency: float = 0.95  # of the link: headers and pauses
    message_s: float = 1e-3  # for each exchange
    server_s_per_byte: float = 1e-9
    slowdown: float = (
        1.0  # of operators beside those of a worker alone: others use the same memory, and one waits for all
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Seconds of an iteration, as one worker sees it."""

    iteration_s: float
    compute_s: float  # operators, and the worker's part of communication
    own_s: float  # that part alone
    transmit_s: float  # in which it sends
    receive_s: float
    transmit_bytes: float
    receive_bytes: float
    exchange_s: float  # from the first byte to the last
    buckets: int

    @property
    def exposed_s(self) -> float:
        """Of communication that no operator hides."""
        return max(0.0, self.iteration_s - self.compute_s)


def lay_out(case: Case, costs: Costs, own_s: float = 0.0) -> Timeline:
    """The iteration of a case; ``own_s`` is a worker's own part in communication, on a device of its own."""
    phases = sum_phases(case)
    if case.setting.strategy is Strategy.ALLREDUCE:
        return _lay_out_reduced(case, costs, phases, own_s)
    return _lay_out_served(case, costs, phases, own_s)


def count_bytes(case: Case) -> float:
    """Of all gradients."""
    return float(sum(gradient.bytes_ for gradient in case.workload.gradients))


def sum_phases(case: Case, seconds: Floats | None = None) -> dict[StepPhase, float]:
    """Seconds of a worker alone; or of something else that is known of each operator."""
    sums = dict.fromkeys(StepPhase, 0.0)
    for operator, each in zip(
        case.workload.operators, (case.operator_s if seconds is None else seconds).tolist(), strict=True
    ):
        sums[operator.phase] += each
    return sums


def _find_rate(setting: Setting, costs: Costs) -> float:
    return (setting.link_bytes_per_s or FASTEST_BYTES_PER_S) * costs.efficiency


def _lay_out_reduced(case: Case, costs: Costs, phases: dict[StepPhase, float], own_s: float) -> Timeline:
    """Buckets go round as they fill, one after the other, while the backward phase goes on."""
    setting = case.setting
    rounds = 2 * (setting.workers - 1) / setting.workers  # of each byte: a ring's
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
    # While a GPU waits for gradients, the host gets ahead with what comes after.
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
    """Gradients go to the servers after the backward phase, parameters come back; a server's link is shared."""
    setting = case.setting
    gradients = count_bytes(case)
    rate, slow = _find_rate(setting, costs), costs.slowdown / setting.share
    compute = slow * (phases[StepPhase.FORWARD] + phases[StepPhase.BACKWARD])
    own = slow * own_s
    part = gradients / setting.servers
    crowd = setting.workers / setting.servers
    message = costs.message_s * setting.servers
    sending = gradients / rate + message
    if setting.synchronous:
        way = gradients * max(1.0, crowd) / rate + message
        sending += max(0.0, gradients - UNDER_WAY_BYTES) * max(0.0, crowd - 1.0) / rate
        served = part * (1 + setting.workers) * costs.server_s_per_byte
        whole = compute + own + 2 * way + served
    else:
        way = sending
        served = 2 * part * costs.server_s_per_byte
        whole = max(compute + own + 2 * way + served, gradients * crowd / rate, setting.workers * served)
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
