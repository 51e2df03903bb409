"""Consumption from Python: settings, what changes with them, trainings that are measured, and what is learned."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.trained_models import PERIOD_S, PretendedGroup, know_core, pretend, record, save_law

import foretell
from foretell.core.cycles import Resource
from foretell.core.errors import NotFoundError, RunnerError, SpecError, WorkloadError
from foretell.core.observation import Recorded
from foretell.distributed import job_draws as jobs_module
from foretell.distributed.api import vary
from foretell.distributed.consumption import Change, ConsumptionPrediction, Setting, Strategy
from foretell.distributed.learning import measure_jobs
from foretell.distributed.render import describe_limit
from foretell.distributed.training_jobs import JobProgress

NET = """
from torch import nn


def build_model(width: int = 256):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8))
"""
REDUCED = Setting(workers=2, link_bytes_per_s=2.5e7, device="T4")
SERVED = replace(REDUCED, strategy=Strategy.SERVERS, servers=1)
Predict = Callable[..., list[ConsumptionPrediction]]

HERE = Setting(workers=2, device="core")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("consumption")
    (folder / "net.py").write_text(NET)
    save_law(folder)
    return folder


@pytest.fixture(scope="module")
def predict(folder: Path) -> Predict:
    return partial(foretell.predict_consumption, f"{folder / 'net.py'}:build_model", ["32,64"], folder=folder)


# Predicting


def test_each_setting_and_batch_has_an_answer(predict: Predict) -> None:
    told = predict(settings=[REDUCED, SERVED], batches=[32, 64])
    assert [(one.workload.batch, one.setting.strategy.value) for one in told] == [
        (32, "allreduce"),
        (32, "ps"),
        (64, "allreduce"),
        (64, "ps"),
    ]
    assert all(one.gpu for one in told)


def test_the_batch_is_the_inputs_own_where_none_is_named(predict: Predict) -> None:
    (told,) = predict(settings=[REDUCED])
    assert told.workload.batch == 32
    assert told.examples_per_s == pytest.approx(64 / told.iteration.value)


def test_a_device_is_named_as_the_catalogue_does(predict: Predict) -> None:
    (told,) = predict(settings=[replace(REDUCED, device="tesla t4")])
    assert told.setting.device == "T4"


def test_a_device_known_by_its_figures_only_is_told_so(predict: Predict) -> None:
    (told,) = predict(settings=[replace(REDUCED, device="H100")])
    (usual,) = predict(settings=[REDUCED])
    assert any("Times of H100 were not measured" in warning.text for warning in told.warnings)
    assert told.iteration.high / told.iteration.value > usual.iteration.high / usual.iteration.value


def test_one_worker_and_no_link_are_told(predict: Predict) -> None:
    (told,) = predict(settings=[Setting(workers=1, device="T4")])
    assert set(told.cycles) <= {Resource.COMPUTE}
    assert any("nobody to talk to" in warning.text for warning in told.warnings)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (replace(REDUCED, workers=0), "workers: found 0"),
        (replace(REDUCED, servers=1), "servers: found 1; expected none for all-reduce"),
        (replace(SERVED, servers=0), "servers: found 0; expected 1 or more"),
        (replace(REDUCED, synchronous=False), "asynchronous: found all-reduce"),
        (replace(REDUCED, link_bytes_per_s=0.0), "link: found 0.0"),
        (replace(REDUCED, link_bytes_per_s=float("nan")), "link: found nan"),
        (replace(REDUCED, workers=-1, servers=2), "2 mistakes"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(predict: Predict, setting: Setting, expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        predict(settings=[setting])


def test_names_nobody_knows_are_refused(predict: Predict) -> None:
    with pytest.raises(NotFoundError, match="'T9'"):
        predict(settings=[replace(REDUCED, device="T9")])
    with pytest.raises(NotFoundError, match="'nosuch'"):
        predict(settings=[REDUCED], model="nosuch")


# What would change


def test_one_thing_changes_at_a_time_and_what_is_asked_is_among_it() -> None:
    changes = vary(SERVED, 64)
    assert list(changes) == [Change.LINK, Change.WORKERS, Change.SERVERS, Change.BATCH]
    for pairs in changes.values():
        assert pairs.count((SERVED, 64)) == 1
        assert len(set(pairs)) == len(pairs)
    assert [setting.workers for setting, _ in changes[Change.WORKERS]] == [1, 2, 4, 8]
    assert [setting.servers for setting, _ in changes[Change.SERVERS]] == [1, 2]
    assert [batch for _, batch in changes[Change.BATCH]] == [32, 64, 128, 256]


def test_a_link_that_nobody_named_has_no_other() -> None:
    assert list(vary(Setting(workers=2), 1)) == [Change.WORKERS, Change.BATCH]


def test_a_faster_link_never_makes_it_slower(folder: Path) -> None:
    source = f"{folder / 'net.py'}:build_model"
    outlook = foretell.explore_consumption(source, ["32,64"], setting=REDUCED, folder=folder)
    times = [told.iteration.value for told in outlook.others[Change.LINK]]
    assert times == sorted(times, reverse=True)
    assert outlook.asked in outlook.others[Change.LINK]
    without = foretell.explore_consumption(source, ["32,64"], setting=REDUCED, curves=False, folder=folder)
    assert not without.shown
    assert describe_limit(without) == describe_limit(outlook)


GRID = [
    replace(setting, device=device, link_bytes_per_s=link, workers=workers)
    for setting in (REDUCED, SERVED, replace(SERVED, synchronous=False))
    for device in ("EPYC core", "T4")
    for link in (2.5e7, 5e7, 1e8, 4e8, 1.6e9, 6.4e9)
    for workers in (1, 2, 4)
]


@pytest.mark.parametrize("batch", [1, 32, 1024])
def test_what_is_told_can_be(predict: Predict, batch: int) -> None:
    told = predict(settings=GRID, batches=[batch])
    for each in told:
        whole, sent = each.iteration.value, each.cycles.get(Resource.TRANSMIT)
        assert each.compute_s + each.exposed_s == pytest.approx(whole)
        assert (each.exposed_s > 0) <= each.setting.communicates
        assert each.setting.strategy is Strategy.ALLREDUCE or each.exposed_s > 0  # nothing hides it
        for cycle in each.cycles.values():
            assert cycle.burst_s.value + cycle.idle_s.value == pytest.approx(whole)
        if sent is not None and not each.outside:
            moved = sent.burst_s.value * sent.burst_amount.value
            assert moved == pytest.approx(4 * each.workload.parameters, rel=0.5)
    links: dict[Setting, list[float]] = {}
    for each in told:
        key = replace(each.setting, link_bytes_per_s=None)
        links.setdefault(key, []).append(each.iteration.value)
    assert all(times == sorted(times, reverse=True) for times in links.values())


def test_a_model_of_one_batch_only_is_told_without_others(folder: Path) -> None:
    (folder / "fixed.py").write_text(
        "from torch import nn\n\n\n"
        "class Fixed(nn.Linear):\n    def forward(self, x):\n        return super().forward(x.view(32, 64))\n\n\n"
        "def build():\n    return Fixed(64, 8)\n"
    )
    source = f"{folder / 'fixed.py'}:build"
    outlook = foretell.explore_consumption(source, ["32,64"], setting=REDUCED, folder=folder)
    assert Change.BATCH not in outlook.others
    assert Change.LINK in outlook.others
    with pytest.raises(WorkloadError):
        foretell.explore_consumption(source, ["32,64"], setting=REDUCED, batch=16, folder=folder)


# Measuring and learning, with trainings that are pretended


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> PretendedGroup:
    return pretend(monkeypatch)


def test_what_is_measured_is_kept_at_once(pretended: PretendedGroup, tmp_path: Path) -> None:
    told: list[JobProgress] = []
    rows = measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=3, on_progress=told.append)
    assert [one.done for one in told] == [1, 2, 3]
    assert all(one.asked == 3 and one.family and not one.disturbed for one in told)
    assert len({one.family for one in told}) == 3
    (row, *_) = rows
    assert row.iteration_s == pytest.approx(PERIOD_S)
    assert row.cycles[Resource.COMPUTE].burst_s == pytest.approx(0.05, rel=0.2)
    assert row.cycles[Resource.TRANSMIT].burst_amount == pytest.approx(2e7, rel=0.2)


def test_it_goes_on_where_it_was(pretended: PretendedGroup, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    first = measure_jobs(path, [HERE], jobs=3)
    told: list[JobProgress] = []
    again = measure_jobs(path, [HERE], jobs=4, repetitions=2, on_progress=told.append)
    assert len(pretended.started) == 8
    assert [row.number for row in again[:3]] == [row.number for row in first]
    assert told[0].done == 4
    assert len({(row.number, row.repetition) for row in again}) == 8
    assert {row.batch for row in again if row.number == 0} == {first[0].batch}
    assert len(measure_jobs(path, [HERE], jobs=4, repetitions=2)) == 8


def test_another_setting_is_measured_anew(pretended: PretendedGroup, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    measure_jobs(path, [HERE], jobs=3)
    rows = measure_jobs(path, [replace(HERE, workers=3)], jobs=3)
    assert len(rows) == 6


def test_other_networks_are_measured_anew(pretended: PretendedGroup, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    measure_jobs(path, [HERE], jobs=2, seed=1)
    rows = measure_jobs(path, [HERE], jobs=2, seed=2)
    assert [row.seed for row in rows] == [1, 1, 2, 2]


def test_a_worker_that_ended_before_it_was_looked_at_has_failed(
    pretended: PretendedGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def miss(_pids: object, interval_s: float) -> Recorded:
        raise NotFoundError("process", "1")

    monkeypatch.setattr("foretell.distributed.learning.sample", miss)
    told: list[JobProgress] = []
    assert not measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=1, on_progress=told.append)
    assert "ended before it could be looked at" in told[0].failed


def test_a_training_too_short_for_samples_has_failed(
    pretended: PretendedGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "foretell.distributed.learning.sample", lambda _pids, interval_s: replace(record(), started_s=0.0)
    )
    told: list[JobProgress] = []
    assert not measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=1, on_progress=told.append)
    assert "too short to be sampled" in told[0].failed


def test_a_disturbed_one_is_tried_again_and_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    group = pretend(monkeypatch, PretendedGroup(others=1.0))
    told: list[JobProgress] = []
    (row,) = measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=1, on_progress=told.append)
    assert len(group.started) == 3
    assert row.disturbed
    assert told[0].disturbed


def test_one_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, PretendedGroup(failing=frozenset({1})))
    told: list[JobProgress] = []
    rows = measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=3, on_progress=told.append)
    assert [row.number for row in rows] == [0, 2]
    assert "no luck" in told[1].failed


def test_where_all_share_a_network_it_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, apart=False)
    (row,) = measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=1)
    assert set(row.cycles) == {Resource.COMPUTE}


def test_a_link_that_cannot_be_is_told_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    group = pretend(monkeypatch, apart=False)
    with pytest.raises(RunnerError, match="cannot be held to 200 Mb/s"):
        measure_jobs(tmp_path / "jobs.jsonl", [replace(HERE, link_bytes_per_s=2.5e7)])
    assert not group.started


@pytest.mark.usefixtures("pretended")
def test_a_setting_is_learned_and_used(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    learned = foretell.learn_consumption(HERE, name="lab", jobs=4, scratch=True, folder=tmp_path)
    assert (learned.jobs, learned.transferred, learned.disturbed) == (4, False, 0)
    assert learned.path == tmp_path / "consumption" / "lab.safetensors"
    assert Resource.TRANSMIT in learned.resources
    (told,) = foretell.predict_consumption(
        f"{tmp_path / 'net.py'}:build_model", ["32,64"], settings=list(learned.settings), model="lab", folder=tmp_path
    )
    assert not [
        each for each in told.outside if each.data.get("name") != "iteration_s"
    ]  # pretended ones are all equally long
    assert np.isfinite([told.iteration.low, told.iteration.high]).all()


def test_what_ships_is_carried_over(pretended: PretendedGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_law(tmp_path)
    monkeypatch.setattr("foretell.distributed.consumption_predictor._find_shipped", lambda: tmp_path / "consumption")
    learned = foretell.learn_consumption(HERE, jobs=3, folder=tmp_path)
    assert learned.transferred
    assert learned.path.name == "here.safetensors"


def test_more_workers_than_cores_share_them(
    pretended: PretendedGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1})
    learned = foretell.learn_consumption(replace(HERE, workers=4), jobs=3, scratch=True, folder=tmp_path)
    assert learned.settings[0].share == 0.5


@pytest.mark.parametrize(
    ("options", "setting", "error", "expected"),
    [
        ({"jobs": 2}, HERE, SpecError, "jobs: found 2; expected 3 or more"),
        ({"repetitions": 0}, HERE, SpecError, "repetitions: found 0"),
        ({"name": "a/b"}, HERE, SpecError, "name: found 'a/b'"),
        ({}, replace(HERE, device="T9"), NotFoundError, "'T9'"),
        ({}, replace(HERE, device="T4"), SpecError, "T4, a GPU"),
        ({}, replace(HERE, servers=1), SpecError, "none for all-reduce"),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(
    pretended: PretendedGroup,
    tmp_path: Path,
    options: dict[str, Any],
    setting: Setting,
    error: type[Exception],
    expected: str,
) -> None:
    with pytest.raises(error, match=expected):
        foretell.learn_consumption(setting, scratch=True, folder=tmp_path, **options)
    assert not pretended.started
    assert not list(tmp_path.iterdir())


def test_too_few_that_could_be_measured_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, PretendedGroup(failing=frozenset({0, 1})))
    with pytest.raises(RunnerError, match="1 of 3 trainings could be measured, 3 are needed"):
        foretell.learn_consumption(HERE, jobs=3, scratch=True, folder=tmp_path)


# For real


@pytest.mark.slow
def test_a_setting_is_learned_from_trainings_that_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three tiny networks by two workers, over the loopback."""
    know_core(monkeypatch)
    monkeypatch.setattr("foretell.distributed.links.can_shape", lambda: False)
    monkeypatch.setattr("foretell.distributed.learning.TRIES", 1)
    real = jobs_module.draw_job
    monkeypatch.setattr(
        jobs_module,
        "draw_job",
        lambda number, setting, seed: replace(
            real(number, setting, seed=seed, flops_per_s=2.0**28), batch=2, seconds=0.2
        ),
    )
    told: list[JobProgress] = []
    learned = foretell.learn_consumption(HERE, jobs=3, scratch=True, folder=tmp_path, on_progress=told.append)
    assert [one.failed for one in told] == ["", "", ""]
    assert learned.jobs == 3
    assert learned.resources <= {Resource.COMPUTE}
    assert all(one.iteration_s is not None and one.iteration_s > 0 for one in told)


def test_measuring_in_no_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"settings: found none; expected at least one"):
        measure_jobs(tmp_path / "jobs.jsonl", [])
    assert not list(tmp_path.iterdir())
