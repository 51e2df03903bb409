"""The timeline model keeps the promises of a model, recovers known costs, and is transferred to another setting."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.contracts.consumption import ConsumptionContract, build_jobs, build_workload

from foretell.core.errors import StoreError
from foretell.core.model_files import load_model, save_model
from foretell.core.observation import Cycle, Metric, Resource
from foretell.distributed._base import ConsumptionModel, count_sent_bytes
from foretell.distributed.consumption import Case, Consumed, MeasuredJob, Setting, Strategy
from foretell.distributed.timeline import Costs, lay_out
from foretell.distributed.timeline_model import TimelineModel

TRUTH = Costs(efficiency=0.9, message_s=2e-3, server_s_per_byte=2e-9, slowdown=1.1)
SLOWER = replace(TRUTH, efficiency=0.5, message_s=8e-3)
SETTINGS = [
    Setting(workers=2, link_bytes_per_s=2.5e7, device="core"),
    Setting(workers=2, link_bytes_per_s=1e8, device="core"),
    Setting(workers=4, link_bytes_per_s=6e7, device="core", share=0.5),
    Setting(strategy=Strategy.SERVERS, workers=2, servers=1, link_bytes_per_s=6e7, device="core"),
    Setting(strategy=Strategy.SERVERS, workers=2, servers=2, link_bytes_per_s=2.5e7, device="core"),
]
RATE = 2e9  # operations a second
OWN = 1e-9  # seconds of a worker for each byte that it sends


class TestPhysics(ConsumptionContract):
    @pytest.fixture
    def model(self) -> ConsumptionModel:
        return TimelineModel()


def build_cases(settings: Sequence[Setting], widths: Sequence[int]) -> list[Case]:
    workloads = [build_workload(layers=layers, width=width, batch=64) for layers in (3, 6, 12) for width in widths]
    return [
        Case(workload=each, setting=setting, operator_s=np.array([one.flops / RATE for one in each.operators]))
        for setting in settings
        for each in workloads
    ]


def run(case: Case, *, truth: Costs = TRUTH) -> MeasuredJob:
    """A job as the truth has it."""
    own_s = OWN * count_sent_bytes(case)
    line = lay_out(case, truth, own_s)
    whole = line.iteration_s

    def cycle(busy_s: float, amount: float) -> Cycle:
        burst_s = min(busy_s, whole)
        idle_s = max(whole - burst_s, 0.02 * whole)
        return Cycle(
            burst_s=burst_s,
            idle_s=idle_s,
            burst_amount=amount,
            idle_amount=0.0,
            period_s=whole,
            bursts=20,
            chance=0.0,
        )

    return MeasuredJob(
        workload=case.workload,
        family="perceptron",
        setting=case.setting,
        iteration_s=whole,
        alone_s=float(case.operator_s.sum()) / case.setting.share,
        used_s=line.compute_s * case.setting.share,
        cycles={
            Resource.COMPUTE: cycle(line.compute_s, case.setting.share),
            Resource.TRANSMIT: cycle(line.transmit_s, line.transmit_bytes / line.transmit_s),
            Resource.RECEIVE: cycle(line.receive_s, line.receive_bytes / line.receive_s),
        },
    )


@pytest.fixture(scope="module")
def fitted() -> TimelineModel:
    cases = build_cases(SETTINGS, (64, 256, 512))
    return TimelineModel().fit(cases, [run(case) for case in cases])


def find_errors(predicted: Sequence[Consumed], jobs: Sequence[MeasuredJob]) -> list[float]:
    return [abs(one.iteration_s / job.iteration_s - 1) for one, job in zip(predicted, jobs, strict=True)]


def test_held_out_networks_are_predicted(fitted: TimelineModel) -> None:
    cases = build_cases(SETTINGS, (128, 384))
    jobs = [run(case) for case in cases]
    predicted = fitted.predict(cases)
    assert np.median(find_errors(predicted, jobs)) < 0.05
    for metric in Metric:
        sent = [
            abs(one.metrics[Resource.TRANSMIT, metric] / getattr(job.cycles[Resource.TRANSMIT], metric) - 1)
            for one, job in zip(predicted, jobs, strict=True)
        ]
        assert np.median(sent) < 0.1


def test_a_held_out_link_is_predicted(fitted: TimelineModel) -> None:
    cases = build_cases([replace(SETTINGS[0], link_bytes_per_s=5e7)], (128, 384))
    assert np.median(find_errors(fitted.predict(cases), [run(case) for case in cases])) < 0.08


def test_bursts_and_idles_add_up_to_the_iteration(fitted: TimelineModel) -> None:
    for predicted in fitted.predict(build_cases(SETTINGS, (128,))):
        assert predicted.compute_s + predicted.exposed_s == pytest.approx(predicted.iteration_s)
        for resource in (Resource.COMPUTE, Resource.TRANSMIT, Resource.RECEIVE):
            both = predicted.metrics[resource, Metric.BURST] + predicted.metrics[resource, Metric.IDLE]
            assert both == pytest.approx(predicted.iteration_s)


def test_a_single_worker_has_no_network(fitted: TimelineModel) -> None:
    (predicted,) = fitted.predict(build_cases([replace(SETTINGS[0], workers=1)], (128,))[:1])
    assert {resource for resource, _ in predicted.metrics} == {Resource.COMPUTE}


def test_what_is_slower_in_a_new_setting_is_found_by_a_few_jobs(fitted: TimelineModel) -> None:
    cases = build_cases([replace(SETTINGS[0], device="other")], (64, 128, 256, 512))
    jobs = [run(case, truth=SLOWER) for case in cases]
    moved = fitted.transfer(cases[::2], jobs[::2])
    before, after = (np.median(find_errors(model.predict(cases[1::2]), jobs[1::2])) for model in (fitted, moved))
    assert after < 0.5 * before


def test_one_outlier_does_not_change_the_model(fitted: TimelineModel) -> None:
    cases = build_cases([replace(SETTINGS[0], device="other")], (64, 128, 256, 512))
    jobs = [run(case) for case in cases]
    cycle = jobs[0].cycles[Resource.TRANSMIT]
    odd = replace(jobs[0], cycles={Resource.TRANSMIT: replace(cycle, burst_s=2 * cycle.burst_s)})
    before, after = (
        model.predict(cases[1:2])[0].metrics[Resource.TRANSMIT, Metric.BURST]
        for model in (fitted, fitted.transfer(cases[:1], [odd]))
    )
    assert before < after < 1.2 * before


def test_transfer_leaves_the_old_model_unchanged(fitted: TimelineModel) -> None:
    cases = build_cases(SETTINGS[:1], (128,))
    before = fitted.predict(cases)
    fitted.transfer(cases, [run(case, truth=SLOWER) for case in cases])
    assert fitted.predict(cases) == before


def test_saved_and_loaded_it_predicts_the_same(fitted: TimelineModel, tmp_path: Path) -> None:
    path = tmp_path / "new" / "law.safetensors"
    save_model(path, fitted, {"jobs": 45})
    loaded, facts = load_model(path, [TimelineModel], remedy="fit it again")
    cases = build_cases(SETTINGS, (128,))
    assert facts == {"jobs": 45}
    assert loaded.predict(cases) == fitted.predict(cases)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"nothing")
    with pytest.raises(StoreError, match=r"x\.safetensors: not a readable model .*; fit it again"):
        load_model(path, [TimelineModel], remedy="fit it again")
    with pytest.raises(StoreError, match="cannot be read"):
        load_model(tmp_path / "nowhere.safetensors", [TimelineModel], remedy="fit it again")


def test_jobs_without_compute_cycles_are_fitted_to_the_rest() -> None:
    cases, jobs = build_jobs()
    blind = [replace(job, cycles={Resource.TRANSMIT: job.cycles[Resource.TRANSMIT]}) for job in jobs]
    (predicted,) = TimelineModel().fit(cases, blind).predict(cases[:1])
    assert {resource for resource, _ in predicted.metrics} == {Resource.TRANSMIT}


def test_operators_that_are_slower_in_a_new_setting_are_found_by_a_few_jobs(fitted: TimelineModel) -> None:
    cases = build_cases([replace(SETTINGS[1], device="other")], (64, 128, 256, 512))
    jobs = [run(case, truth=replace(TRUTH, slowdown=2.0)) for case in cases]
    moved = fitted.transfer(cases[::2], jobs[::2])
    before, after = (np.median(find_errors(model.predict(cases[1::2]), jobs[1::2])) for model in (fitted, moved))
    assert after < 0.5 * before


def test_on_an_unmeasured_gpu_only_the_timeline_is_used(fitted: TimelineModel) -> None:
    cases = build_cases(SETTINGS[:1], (128,))
    predicted = fitted.predict([replace(case, device_measured=False) for case in cases])
    lines = [lay_out(case, replace(fitted.costs_, slowdown=1.0)) for case in cases]  # which is of other devices, too
    assert [each.iteration_s for each in predicted] == pytest.approx([line.iteration_s for line in lines])
