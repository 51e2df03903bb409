"""The measured trainings can be read, and errors are computed as documented."""

from collections import Counter

import pytest
from benchmarks.consumption.comparison import judge, measure_noise, summarise
from benchmarks.consumption.data import read_rows
from benchmarks.consumption.transfer import Point, find_savings
from tests.contracts.consumption import build_jobs

from foretell.core.observation import Metric
from foretell.distributed.consumption import Consumed


def test_the_card_has_the_number_of_measurements() -> None:
    rows = read_rows()
    jobs = {(row.network, row.batch, row.setting) for row in rows}
    quiet = {(row.network, row.batch, row.setting) for row in rows if not row.disturbed}
    assert (len(rows), len(jobs), len(quiet)) == (492, 309, 309)
    assert sorted(Counter(setting for _, _, setting in jobs).values()) == [44] * 6 + [45]


def test_jobs_measured_again_are_alike() -> None:
    noise = measure_noise()
    assert noise["pairs"] == 33
    assert all(share < 20 for name, share in noise.items() if name != "pairs")


def test_an_error_is_a_share_of_what_was_measured() -> None:
    _, jobs = build_jobs()
    predicted = [
        Consumed(
            iteration_s=1.1 * job.iteration_s,
            compute_s=0.0,
            exposed_s=0.0,
            metrics={
                (name, metric): 0.8 * getattr(each, metric) for name, each in job.cycles.items() for metric in Metric
            },
        )
        for job in jobs
    ]
    figures = judge("x", predicted, jobs)
    assert {round(figure.error, 6) for figure in figures if figure.resource == "iteration"} == {10.0}
    assert all(error == pytest.approx(20.0) for error in summarise(figures)["x"].values())


def build_point(how: str, jobs: int, error: float, fit_s: float) -> Point:
    return Point(method="x", how=how, jobs=jobs, error=error, spread=0.0, fit_s=fit_s)


def test_savings_are_what_scratch_takes_to_the_same_error() -> None:
    scratch = [build_point("scratch", 5, 20.0, 1.0), build_point("scratch", 20, 10.0, 4.0)]
    moved = [build_point("transfer", 5, 15.0, 0.1), build_point("transfer", 8, 10.0, 0.2)]
    half, whole = find_savings([*scratch, *moved])
    assert (half.times, half.scratch_times) == (2.5, 25.0)
    assert (whole.times, whole.scratch_times) == (2.5, 20.0)


def test_errors_outside_the_range_of_scratch_are_left_out() -> None:
    scratch = [build_point("scratch", 5, 8.0, 1.0), build_point("scratch", 8, 5.0, 1.0)]
    moved = [
        build_point("transfer", 0, 6.0, 0.0),
        build_point("transfer", 3, 9.0, 0.1),
        build_point("transfer", 5, 4.0, 0.1),
    ]
    assert find_savings([*scratch, *moved]) == []
