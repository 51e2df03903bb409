"""Trainings are measured and kept at once, resumed, and tried again where they fail or are disturbed."""

from dataclasses import replace
from pathlib import Path

import pytest
from lab.measuring import measure_jobs, place_setting
from lab.training_jobs import JobProgress
from tests.trained_models import PERIOD_S, PretendedGroup, know_core, pretend, record

from foretell.core.errors import NotFoundError, RunnerError, SpecError
from foretell.core.observation import Recorded, Resource
from foretell.distributed.consumption import Setting
from lab import training_jobs

HERE = Setting(workers=2, device="core")


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> PretendedGroup:
    return pretend(monkeypatch)


def test_each_job_is_written_at_once(pretended: PretendedGroup, tmp_path: Path) -> None:
    reported: list[JobProgress] = []
    rows = measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=3, on_progress=reported.append)
    assert [one.done for one in reported] == [1, 2, 3]
    assert all(one.total == 3 and one.family and not one.disturbed for one in reported)
    assert len({one.family for one in reported}) == 3
    (row, *_) = rows
    assert row.iteration_s == pytest.approx(PERIOD_S)
    assert row.cycles[Resource.COMPUTE].burst_s == pytest.approx(0.05, rel=0.2)
    assert row.cycles[Resource.TRANSMIT].burst_amount == pytest.approx(2e7, rel=0.2)


def test_it_resumes_where_it_was(pretended: PretendedGroup, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    first = measure_jobs(path, [HERE], jobs=3)
    reported: list[JobProgress] = []
    again = measure_jobs(path, [HERE], jobs=4, repetitions=2, on_progress=reported.append)
    assert len(pretended.started) == 8
    assert [row.number for row in again[:3]] == [row.number for row in first]
    assert reported[0].done == 4
    assert len({(row.number, row.repetition) for row in again}) == 8
    assert {row.batch for row in again if row.number == 0} == {first[0].batch}
    assert len(measure_jobs(path, [HERE], jobs=4, repetitions=2)) == 8


def test_another_setting_is_measured_again(pretended: PretendedGroup, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    measure_jobs(path, [HERE], jobs=3)
    rows = measure_jobs(path, [replace(HERE, workers=3)], jobs=3)
    assert len(rows) == 6


def test_other_networks_are_measured_again(pretended: PretendedGroup, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    measure_jobs(path, [HERE], jobs=2, seed=1)
    rows = measure_jobs(path, [HERE], jobs=2, seed=2)
    assert [row.seed for row in rows] == [1, 1, 2, 2]


def test_a_worker_that_ended_before_it_was_sampled_has_failed(
    pretended: PretendedGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def miss(_pids: object, interval_s: float) -> Recorded:
        raise NotFoundError("process", "1")

    monkeypatch.setattr("lab.measuring.sample", miss)
    reported: list[JobProgress] = []
    assert not measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=1, on_progress=reported.append)
    assert "ended before it could be sampled" in reported[0].failed


def test_a_training_too_short_for_samples_has_failed(
    pretended: PretendedGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.measuring.sample", lambda _pids, interval_s: replace(record(), started_s=0.0))
    reported: list[JobProgress] = []
    assert not measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=1, on_progress=reported.append)
    assert "too short to be sampled" in reported[0].failed


def test_a_disturbed_one_is_tried_again_and_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    group = pretend(monkeypatch, PretendedGroup(others=1.0))
    reported: list[JobProgress] = []
    (row,) = measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=1, on_progress=reported.append)
    assert len(group.started) == 3
    assert row.disturbed
    assert reported[0].disturbed


def test_one_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, PretendedGroup(failing=frozenset({1})))
    reported: list[JobProgress] = []
    rows = measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=3, on_progress=reported.append)
    assert [row.number for row in rows] == [0, 2]
    assert "no luck" in reported[1].failed


def test_where_all_share_a_network_it_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, isolated=False)
    (row,) = measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=1)
    assert set(row.cycles) == {Resource.COMPUTE}


def test_a_link_that_is_not_possible_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    group = pretend(monkeypatch, isolated=False)
    with pytest.raises(RunnerError, match="cannot be limited to 200 Mb/s"):
        measure_jobs(tmp_path / "jobs.jsonl", [replace(HERE, link_bytes_per_s=2.5e7)])
    assert not group.started


def test_more_workers_than_cores_share_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    know_core(monkeypatch)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1})
    assert place_setting(replace(HERE, workers=4), folder=tmp_path).share == 0.5
    assert place_setting(replace(HERE, workers=2), folder=tmp_path).share == 1.0


@pytest.mark.parametrize(
    ("setting", "error", "expected"),
    [
        (replace(HERE, device="T9"), NotFoundError, "'T9'"),
        (replace(HERE, device="T4"), SpecError, "T4, a GPU"),
        (replace(HERE, servers=1), SpecError, "none for all-reduce"),
    ],
)
def test_a_setting_that_cannot_run_here_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: Setting, error: type[Exception], expected: str
) -> None:
    know_core(monkeypatch)
    with pytest.raises(error, match=expected):
        place_setting(setting, folder=tmp_path)


@pytest.mark.parametrize(("jobs", "repetitions", "expected"), [(0, 1, "jobs: found 0"), (1, 0, "repetitions: found 0")])
def test_counts_are_checked_before_the_file_is_made(
    pretended: PretendedGroup, tmp_path: Path, jobs: int, repetitions: int, expected: str
) -> None:
    with pytest.raises(SpecError, match=expected):
        measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=jobs, repetitions=repetitions)
    assert not pretended.started
    assert not list(tmp_path.iterdir())


def test_no_job_is_started_after_the_time_is_over(pretended: PretendedGroup, tmp_path: Path) -> None:
    assert measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=3, budget_s=0.0) == []
    assert not pretended.started
    assert len(measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=3, budget_s=3600.0)) == 3


def test_measuring_in_no_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"settings: found none; expected at least one"):
        measure_jobs(tmp_path / "jobs.jsonl", [])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_real_trainings_are_measured_over_the_loopback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three tiny networks by two workers."""
    monkeypatch.setattr("lab.links.can_shape", lambda: False)
    monkeypatch.setattr("lab.measuring.ATTEMPTS", 1)
    real = training_jobs.draw_job
    monkeypatch.setattr(
        "lab.measuring.draw_job",
        lambda number, setting, seed: replace(
            real(number, setting, seed=seed, flops_per_s=2.0**28), batch=2, seconds=0.2
        ),
    )
    reported: list[JobProgress] = []
    rows = measure_jobs(tmp_path / "jobs.jsonl", [HERE], jobs=3, on_progress=reported.append)
    assert [one.failed for one in reported] == ["", "", ""]
    assert len(rows) == 3
    assert {resource for row in rows for resource in row.cycles} <= {Resource.COMPUTE}
    assert all(one.iteration_s is not None and one.iteration_s > 0 for one in reported)
