"""Factors of operators and the cost of communication are fitted to the measured use of the device."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.contracts.consumption import build_workload

from foretell.distributed.consumption import Case, MeasuredJob, Setting, Strategy
from foretell.distributed.device_demand import Demand, fit_demand

PACE, BYTE_S = 1.4, 3e-9
REDUCED = Setting(workers=2, link_bytes_per_s=5e7)
SERVED = Setting(strategy=Strategy.SERVERS, workers=2, servers=1, link_bytes_per_s=5e7)


def build_cases(setting: Setting = REDUCED) -> list[Case]:
    workloads = [build_workload(layers=layers, width=width, batch=64) for layers in (3, 6, 12) for width in (64, 512)]
    return [
        Case(workload=each, setting=setting, operator_s=np.array([one.flops / 1e9 + 1e-4 for one in each.operators]))
        for each in workloads
    ]


def run(cases: Sequence[Case], *, slow: str = "") -> list[MeasuredJob]:
    """Jobs that use their device as a law has it; operators of one kind may be slower than others."""
    jobs = []
    for case in cases:
        factors = np.array([3.0 if slow and slow == each.kind else 1.0 for each in case.workload.operators])
        sent = sum(gradient.bytes_ for gradient in case.workload.gradients)
        used_s = PACE * float((case.operator_s * factors).sum()) + BYTE_S * sent
        jobs.append(
            MeasuredJob(
                workload=case.workload, family="x", setting=case.setting, iteration_s=1.0, cycles={}, used_s=used_s
            )
        )
    return jobs


def predict_one(demand: Demand, case: Case) -> float:
    return float(demand.apply(case).operator_s.sum()) + demand.find_own(case)


def test_the_law_behind_jobs_is_found_again() -> None:
    cases = build_cases()
    demand = fit_demand(cases, run(cases))
    for case, job in zip(cases, run(cases), strict=True):
        assert predict_one(demand, case) == pytest.approx(job.used_s, rel=0.1)


def test_a_kind_that_is_slower_than_others_gets_a_factor_of_its_own() -> None:
    cases = build_cases()
    slow = cases[0].workload.operators[0].kind
    plain, predicted = fit_demand(cases, run(cases)), fit_demand(cases, run(cases, slow=slow))
    rise = {
        name: predicted.kinds[name] + predicted.log_factor - plain.kinds[name] - plain.log_factor
        for name in predicted.kinds
    }
    assert max(rise, key=lambda name: rise[name]).endswith(f" {slow}")


def test_what_servers_update_costs_a_worker_nothing() -> None:
    cases = build_cases(SERVED)
    assert not any(name.startswith("update ") for name in fit_demand(cases, run(cases)).kinds)


def test_jobs_without_measured_use_leave_the_defaults() -> None:
    cases = build_cases()
    silent = [replace(job, used_s=None) for job in run(cases)]
    assert fit_demand(cases, silent) == Demand(kinds={})


def test_kept_it_is_the_same() -> None:
    cases = build_cases()
    demand = fit_demand(cases, run(cases))
    assert Demand.from_record(demand.to_record()) == demand
