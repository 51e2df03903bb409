"""The simplest that could be: bytes by the link's rate, operations by the device's."""

from collections.abc import Sequence
from typing import Self

from foretell.entities.consumption import Case, Consumed, MeasuredJob, Metric, Resource, Strategy
from foretell.models.consumption._base import ConsumptionModel
from foretell.models.consumption.targets import Target, count_sent_bytes, find_taught, sum_compute


class BandwidthModel(ConsumptionModel):
    """Gradients go at the full rate of the link once all operators have run at the device's best rate that was seen.

    An iteration is the sum of both; whatever does not burst is idle. Where nobody named a link, the fastest burst that
    was seen stands for it; on a device that was not seen, the times of a worker alone do. It knows no start-up of
    messages, no buckets, nothing of overlap, and nothing of what servers share.
    """

    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Keep the best rates."""
        self.taught_ = find_taught(jobs)
        self.rates_: dict[str, float] = {}  # operations a second of a whole device
        self.fastest_: float | None = None  # bytes a second
        for job in jobs:
            device, compute = job.setting.device, job.cycles.get(Resource.COMPUTE)
            seconds = job.alone_s or (job.iteration_s if compute is None else compute.burst_s)
            rate = job.workload.flops / (seconds * job.setting.share) if seconds > 0 else 0.0
            self.rates_[device] = max(self.rates_.get(device, 0.0), rate)
            sent = job.cycles.get(Resource.TRANSMIT)
            self.fastest_ = self.fastest_ if sent is None else max(self.fastest_ or 0.0, sent.burst_amount)
        return self

    def predict(self, cases: Sequence[Case]) -> list[Consumed]:
        """What each case consumes."""
        return [self._tell(case) for case in cases]

    def _tell(self, case: Case) -> Consumed:
        link = case.setting.link_bytes_per_s or self.fastest_
        compute_s = self._reckon_compute(case)
        sent_s = count_sent_bytes(case) / link if link else 0.0
        exposed_s = sent_s if case.setting.strategy is Strategy.ALLREDUCE else 2 * sent_s  # there, then back
        iteration_s = compute_s + exposed_s
        found = _tell_cycle(Resource.COMPUTE, compute_s, iteration_s, case.setting.share)
        if link:
            found |= _tell_cycle(Resource.TRANSMIT, sent_s, iteration_s, link)
            found |= _tell_cycle(Resource.RECEIVE, sent_s, iteration_s, link)
        metrics = {target: value for target, value in found.items() if target[0] in self.taught_}
        return Consumed(iteration_s=iteration_s, compute_s=compute_s, exposed_s=exposed_s, metrics=metrics)

    def _reckon_compute(self, case: Case) -> float:
        rate = self.rates_.get(case.setting.device)
        return case.workload.flops / (rate * case.setting.share) if rate else sum_compute(case)


def _tell_cycle(resource: Resource, burst_s: float, iteration_s: float, amount: float) -> dict[Target, float]:
    return {
        (resource, Metric.BURST): burst_s,
        (resource, Metric.IDLE): iteration_s - burst_s,
        (resource, Metric.AMOUNT): amount,
    }
