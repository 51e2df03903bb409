"""Predictions of consumption: the law is found again, bounds hold, warnings are given, and it can be kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.contracts.consumption import SETTINGS, build_jobs, build_workload
from tests.trained_models import CORE, learn_law, save_law

from foretell.core.errors import NotEnoughRunsError, NotFoundError, StoreError
from foretell.core.model_files import save_model
from foretell.core.observation import Resource
from foretell.distributed.consumption import Case, MeasuredJob, Setting, Strategy
from foretell.distributed.consumption_predictor import (
    ConsumptionPredictor,
    find_consumption_model,
    learn_consumption_model,
    load_consumption_model,
)
from foretell.distributed.operator_times import find_device_kind, predict_operator_times

Law = tuple[list[Case], list[MeasuredJob], ConsumptionPredictor]


@pytest.fixture(scope="module")
def law() -> Law:
    return learn_law()


def test_the_law_is_found_again(law: Law) -> None:
    cases, jobs, predictor = law
    predicted = [predictor.predict(case.workload, case.setting, case.operator_s) for case in cases]
    errors = [abs(one.iteration.value / job.iteration_s - 1) for one, job in zip(predicted, jobs, strict=True)]
    assert np.median(errors) < 0.05
    assert all(set(one.cycles) == {Resource.COMPUTE, Resource.TRANSMIT, Resource.RECEIVE} for one in predicted)
    assert not any(one.warnings for one in predicted)


def test_intervals_contain_held_out_jobs(law: Law) -> None:
    predictor = law[2]
    cases, jobs = build_jobs(seed=5)
    inside = [predictor.predict(case.workload, case.setting, case.operator_s).iteration for case in cases]
    held = [one.low <= job.iteration_s <= one.high for one, job in zip(inside, jobs, strict=True)]
    assert np.mean(held) >= 0.8
    assert all(one.low <= one.value <= one.high for one in inside)


def test_a_higher_level_has_wider_bounds(law: Law) -> None:
    case = law[0][0]
    low, high = (law[2].predict(case.workload, case.setting, case.operator_s, level=level) for level in (0.5, 0.99))
    assert high.iteration.high >= low.iteration.high
    assert high.iteration.low <= low.iteration.low


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (replace(SETTINGS[0], device="H100"), "No distributed training on H100 was measured"),
        (replace(SETTINGS[0], workers=16), "16 workers with allreduce; measured: 2."),
        (replace(SETTINGS[1], servers=4), "4 servers with ps; measured: 1."),
        (
            replace(SETTINGS[0], link_bytes_per_s=1e10),
            "A link of 80 Gb/s with allreduce; measured: 200 Mb/s.",
        ),
        (replace(SETTINGS[0], link_bytes_per_s=None), "No link was given, and no training without a link was measured"),
        (replace(SETTINGS[1], synchronous=False), "No asynchronous ps training was measured, only allreduce, ps"),
    ],
)
def test_outside_the_measured_settings_there_is_a_warning_and_intervals_are_wider(
    law: Law, setting: Setting, expected: str
) -> None:
    case, predictor = law[0][0], law[2]
    usual = predictor.predict(case.workload, SETTINGS[0], case.operator_s).iteration
    predicted = predictor.predict(case.workload, setting, case.operator_s)
    assert any(expected in warning.text for warning in predicted.warnings)
    assert predicted.iteration.high / predicted.iteration.value > usual.high / usual.value


def test_a_predictor_is_kept_and_found(law: Law, tmp_path: Path) -> None:
    path = save_law(tmp_path, "lab")
    case = law[0][3]
    loaded = load_consumption_model(path)
    found = find_consumption_model("lab", learned=tmp_path / "consumption")
    predicted, again = (each.predict(case.workload, case.setting, case.operator_s) for each in (loaded, found))
    assert predicted.iteration == again.iteration
    assert predicted.iteration.value == pytest.approx(
        law[2].predict(case.workload, case.setting, case.operator_s).iteration.value
    )
    assert found.measured == law[2].measured


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    save_law(tmp_path, "lab")
    with pytest.raises(NotFoundError, match=r"'lap'.*lab.*foretell consumption learn"):
        find_consumption_model("lap", learned=tmp_path / "consumption")


def test_few_jobs_are_too_few(law: Law) -> None:
    cases, jobs, predictor = law
    with pytest.raises(NotEnoughRunsError):
        learn_consumption_model(cases[:2], jobs[:2])
    with pytest.raises(NotEnoughRunsError):
        predictor.transfer(cases[:2], jobs[:2])


def test_after_transfer_the_new_setting_has_no_warnings(law: Law) -> None:
    cases, jobs, predictor = law
    setting = Setting(strategy=Strategy.ALLREDUCE, workers=8, link_bytes_per_s=2.5e7, device="lab")
    moved = predictor.transfer(
        [replace(case, setting=setting) for case in cases[:4]], [replace(job, setting=setting) for job in jobs[:4]]
    )
    assert moved.measured.devices == ("lab", "made up")
    assert moved.measured.jobs == len(jobs) + 4
    assert not list(moved.measured.list_warnings(setting))
    assert list(predictor.measured.list_warnings(setting))
    assert not list(predictor.measured.join(moved.measured).list_warnings(setting))


def test_operator_times_come_from_measured_times_or_figures(tmp_path: Path) -> None:
    workload = build_workload(layers=2, width=256, batch=32)
    shipped = predict_operator_times(workload, "T4", figures=None, learned=tmp_path)
    assert shipped.gpu
    assert shipped.busy_s is not None
    assert (shipped.busy_s <= shipped.operator_s).all()
    assert (shipped.operator_s >= 0).all()
    predicted = predict_operator_times(workload, "core", figures=CORE, learned=tmp_path)
    assert not predicted.gpu
    assert "Times of core were not measured: operator times come from its figures" in predicted.guess
    assert predicted.operator_s.sum() >= workload.flops / CORE.peak_flops
    faster = replace(CORE, name="X1", kind="gpu", peak_flops=1e14, bandwidth_bytes=2e12)
    alike = predict_operator_times(workload, "X1", figures=faster, learned=tmp_path)
    assert alike.gpu
    assert "from the kernels of other devices" in alike.guess
    assert alike.busy_s is not None
    assert alike.busy_s.sum() < shipped.busy_s.sum()
    with pytest.raises(NotFoundError, match="T9"):
        predict_operator_times(workload, "T9", figures=None, learned=tmp_path)
    assert find_device_kind("T4", figures=None, learned=tmp_path) == "gpu"
    assert find_device_kind("core", figures=CORE, learned=tmp_path) == "cpu"


def test_the_farther_outside_the_wider_are_bounds(law: Law) -> None:
    case, predictor = law[0][0], law[2]
    widths = [
        np.log(predicted.high / predicted.value)
        for workers in (2, 16, 256)
        if (
            predicted := predictor.predict(
                case.workload, replace(SETTINGS[0], workers=workers), case.operator_s
            ).iteration
        )
    ]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3


def test_a_kept_model_is_for_all_whom_other_files_are_for(law: Law, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    law[2].save(tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").stat().st_mode == plain.stat().st_mode


def test_a_burst_is_no_more_than_a_device_or_a_link(law: Law) -> None:
    cases, _, predictor = law
    for case in cases[:5]:
        predicted = predictor.predict(case.workload, case.setting, case.operator_s, level=0.999).cycles
        assert predicted[Resource.COMPUTE].burst_amount.high <= 1.0
        assert predicted[Resource.TRANSMIT].burst_amount.high <= (case.setting.link_bytes_per_s or np.inf)


def test_a_file_that_does_not_say_what_it_covers_is_refused(law: Law, tmp_path: Path) -> None:
    path = tmp_path / "half.safetensors"
    save_model(path, law[2].model, {})
    with pytest.raises(StoreError, match="fit it again"):
        load_consumption_model(path)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.strategy.value)
@pytest.mark.parametrize("link", [1e6, 2.5e7, 1.25e9])
def test_no_bound_is_below_what_the_link_needs(law: Law, setting: Setting, link: float) -> None:
    """Bytes on a link take their time, in the value and in both bounds, at every level."""
    predictor = law[2]
    workload = build_workload(layers=4, width=512, batch=1)
    asked = replace(setting, link_bytes_per_s=link)
    gradients = sum(each.bytes_ for each in workload.gradients)
    ring = 2 * (asked.workers - 1) / asked.workers
    sent = ring * gradients if asked.strategy is Strategy.ALLREDUCE else gradients
    queued = max(1.0, asked.workers / asked.servers) if asked.strategy is Strategy.SERVERS else 1.0
    for level in (0.5, 0.9, 0.999):
        found = predictor.predict(workload, asked, np.full(len(workload.operators), 1e-6), level=level)
        assert found.iteration.low >= queued * sent / link * (1 - 1e-9)
        assert found.iteration.low <= found.iteration.value <= found.iteration.high
        assert found.compute_s + found.exposed_s == pytest.approx(found.iteration.value)
        for resource in (Resource.TRANSMIT, Resource.RECEIVE):
            burst = found.cycles[resource].burst_s
            assert sent / link * (1 - 1e-9) <= burst.low <= burst.value <= burst.high


def test_a_prediction_below_the_floor_is_raised_to_it(law: Law) -> None:
    found = law[2].bound("iteration", 1.0, level=0.9, floor=5.0)
    assert (found.low, found.value, found.high) == (5.0, 5.0, 5.0)
