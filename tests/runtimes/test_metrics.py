"""The definitions, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.runtimes.metrics import cost_with_doubling, nrmse, score

_times = st.floats(1e-3, 1e7)
_pairs = st.lists(st.tuples(_times, _times), min_size=1, max_size=30)


def test_harps_example() -> None:
    assert cost_with_doubling(180, 685) == 180 + 360 + 685


@pytest.mark.parametrize(
    ("request_s", "actual_s", "cost"),
    [(100, 100, 100), (100, 60, 60), (100, 200, 100 + 200), (100, 201, 100 + 200 + 201), (1, 8, 1 + 2 + 4 + 8)],
)
def test_failed_tries_are_paid_in_full(request_s: float, actual_s: float, cost: float) -> None:
    assert cost_with_doubling(request_s, actual_s) == pytest.approx(cost)


@given(pairs=_pairs)
def test_doubling_costs_what_trying_costs(pairs: list[tuple[float, float]]) -> None:
    requests, actual = np.array(pairs).T
    assert cost_with_doubling(requests, actual) == pytest.approx([_try_until_it_fits(p, a) for p, a in pairs])


def _try_until_it_fits(request_s: float, actual_s: float) -> float:
    paid = 0.0
    while request_s < actual_s * (1 - 1e-12):
        paid += request_s
        request_s *= 2
    return paid + actual_s


@given(pairs=_pairs)
def test_a_request_never_costs_less_than_the_job(pairs: list[tuple[float, float]]) -> None:
    requests, actual = np.array(pairs).T
    assert (cost_with_doubling(requests, actual) >= actual).all()
    assert score(actual, requests).retry_cost >= 1


def test_definitions_by_hand() -> None:
    """One of four too low by half; of the others one right, two too high by 10 % and 50 %."""
    scores = score([100, 10, 10, 10], [50, 10, 11, 15])
    assert scores.mae == pytest.approx((50 + 0 + 1 + 5) / 4)
    assert scores.mape == pytest.approx((50 + 0 + 10 + 50) / 4)
    assert scores.median_ape == pytest.approx((10 + 50) / 2)
    assert scores.upp == pytest.approx(25)
    assert scores.ov_mape == pytest.approx((0 + 10 + 50) / 3)
    assert scores.wtm == pytest.approx(25 + 0.75 * 20)
    assert scores.retry_cost == pytest.approx((50 + 100 + 30) / 130)


def test_perfect_predictions_have_no_errors() -> None:
    scores = score([3, 5], [3, 5])
    assert (scores.mae, scores.mape, scores.upp, scores.ov_mape, scores.wtm, scores.retry_cost) == (0, 0, 0, 0, 0, 1)


def test_where_all_are_too_low_nothing_is_over() -> None:
    scores = score([10, 10], [9, 9])
    assert (scores.upp, scores.ov_mape, scores.wtm) == (100, 0, 100)


@given(pairs=_pairs, factor=st.sampled_from([0.25, 4.0, 1024.0]))
def test_shares_do_not_depend_on_the_unit(pairs: list[tuple[float, float]], factor: float) -> None:
    predicted, actual = np.array(pairs).T
    here, there = score(actual, predicted), score(factor * actual, factor * predicted)
    assert there.mae == pytest.approx(factor * here.mae)
    assert (there.mape, there.upp, there.wtm, there.retry_cost) == pytest.approx(
        (here.mape, here.upp, here.wtm, here.retry_cost)
    )


def test_nrmse_is_the_usual_miss_over_the_mean_measured() -> None:
    assert nrmse([1.0, 3.0], [1.4, 2.6]) == pytest.approx(0.2)
    assert nrmse([10.0, 30.0], [10.0, 30.0]) == 0
    assert nrmse([1.0, 1.0, 4.0], [1.0, 1.0, 1.0]) == pytest.approx(np.sqrt(3) / 2)
