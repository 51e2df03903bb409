"""The two simplest models keep the promises, and find again the laws they are made for."""

from dataclasses import replace

import numpy as np
import pytest
from tests.contracts.consumption import SETTINGS, ConsumptionContract, build_jobs, build_workload

from foretell.core.observation import Metric, Resource
from foretell.distributed._base import ConsumptionModel
from foretell.distributed.consumption import Case, Setting, Strategy
from foretell.distributed.consumption_baselines import BandwidthModel, TotalsModel


class TestBandwidth(ConsumptionContract):
    @pytest.fixture
    def model(self) -> ConsumptionModel:
        return BandwidthModel()


class TestTotals(ConsumptionContract):
    @pytest.fixture
    def model(self) -> ConsumptionModel:
        return TotalsModel()


def ask(setting: Setting, *, layers: int = 4, width: int = 128) -> Case:
    workload = build_workload(layers=layers, width=width, batch=32)
    return Case(workload=workload, setting=setting, operator_s=np.full(len(workload.operators), 1e-4))


class TestBandwidthsLaw:
    def test_four_workers_on_a_ring_send_half_again_as_much_as_two(self) -> None:
        cases, jobs = build_jobs()
        two, four = (
            BandwidthModel().fit(cases, jobs).predict([ask(replace(SETTINGS[0], workers=workers))])[0].metrics
            for workers in (2, 4)
        )
        bytes_ = 4 * 4 * 128**2
        assert two[Resource.TRANSMIT, Metric.BURST] == pytest.approx(bytes_ / 2.5e7)
        assert four[Resource.TRANSMIT, Metric.BURST] == pytest.approx(1.5 * bytes_ / 2.5e7)
        assert two[Resource.RECEIVE, Metric.AMOUNT] == 2.5e7

    def test_servers_are_sent_to_and_then_send_back(self) -> None:
        cases, jobs = build_jobs()
        (predicted,) = BandwidthModel().fit(cases, jobs).predict([ask(SETTINGS[1])])
        assert predicted.exposed_s == pytest.approx(2 * predicted.metrics[Resource.TRANSMIT, Metric.BURST])
        assert predicted.iteration_s == pytest.approx(predicted.compute_s + predicted.exposed_s)

    def test_half_a_core_takes_twice_as_long(self) -> None:
        cases, jobs = build_jobs()
        whole, half = (
            BandwidthModel().fit(cases, jobs).predict([ask(SETTINGS[0]), ask(replace(SETTINGS[0], share=0.5))])
        )
        assert half.compute_s == pytest.approx(2 * whole.compute_s)
        assert half.metrics[Resource.COMPUTE, Metric.AMOUNT] == 0.5

    def test_on_another_device_operator_times_are_used(self) -> None:
        cases, jobs = build_jobs()
        case = ask(replace(SETTINGS[0], device="other"))
        (predicted,) = BandwidthModel().fit(cases, jobs).predict([case])
        assert predicted.compute_s == pytest.approx(case.operator_s.sum())

    def test_without_a_link_the_fastest_measured_burst_is_used_or_no_network(self) -> None:
        cases, jobs = build_jobs()
        case = ask(replace(SETTINGS[0], link_bytes_per_s=None))
        (predicted,) = BandwidthModel().fit(cases, jobs).predict([case])
        assert predicted.metrics[Resource.TRANSMIT, Metric.AMOUNT] == pytest.approx(0.95e8)
        kept = {Resource.COMPUTE: jobs[0].cycles[Resource.COMPUTE]}
        (predicted,) = BandwidthModel().fit(cases[:1], [replace(jobs[0], cycles=kept)]).predict([case])
        assert {resource for resource, _ in predicted.metrics} == {Resource.COMPUTE}
        assert predicted.exposed_s == 0


class TestTotalsLaw:
    def test_a_product_of_powers_is_recovered_within_the_measured_range(self) -> None:
        settings = [replace(SETTINGS[0], link_bytes_per_s=rate) for rate in (1e6, 1e7, 1e8)]
        model = TotalsModel().fit(*build_jobs(settings))
        (predicted,) = model.predict([ask(replace(SETTINGS[0], link_bytes_per_s=3e6), layers=4, width=180)])
        assert predicted.metrics[Resource.TRANSMIT, Metric.BURST] == pytest.approx(4 * 4 * 180**2 / 3e6, rel=0.1)
        assert predicted.metrics[Resource.TRANSMIT, Metric.AMOUNT] == pytest.approx(0.95 * 3e6, rel=0.05)

    def test_without_a_link_the_mean_of_the_measured_ones_is_used(self) -> None:
        settings = [replace(SETTINGS[0], link_bytes_per_s=rate) for rate in (1e6, 1e8)]
        model = TotalsModel().fit(*build_jobs(settings))
        unnamed, named = model.predict([ask(replace(SETTINGS[0], link_bytes_per_s=rate)) for rate in (None, 1e7)])
        assert dict(unnamed.metrics) == pytest.approx(dict(named.metrics))

    def test_strategies_differ(self) -> None:
        model = TotalsModel().fit(*build_jobs())
        ring, servers = model.predict([ask(setting) for setting in SETTINGS])
        assert SETTINGS[1].strategy is Strategy.SERVERS
        assert ring.iteration_s > 1.2 * servers.iteration_s
