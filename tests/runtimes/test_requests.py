"""Plans of requests cost the least there is: against trying everything, against laws known beforehand."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.core.intervals import Spread
from foretell.runtimes.metrics import cost_with_doubling
from foretell.runtimes.requests import (
    MEMORY,
    TIME,
    Outlay,
    Ratios,
    chances_needed,
    expected_cost,
    plan_doubling,
    plan_for_widths,
    plan_from,
    plan_requests,
    request_at_risk,
    share_risk,
)

_ROUNDING = 1e-9
_outlays = st.builds(Outlay, idle=st.floats(0.01, 1), retry_cost=st.floats(0, 3))
_tries = st.integers(1, 4)
# The largest is 16 times the least: as many halvings as a plan looks at.
_values = st.lists(st.floats(0.5, 8), min_size=1, max_size=5, unique=True).map(sorted)


@st.composite
def _ratios(draw: st.DrawFn) -> Ratios:
    values = draw(_values)
    weights = draw(st.lists(st.integers(1, 20), min_size=len(values), max_size=len(values)))
    return _build(values, weights)


def _build(values: Sequence[float], weights: Iterable[float]) -> Ratios:
    chances = np.array(list(weights), dtype=float)
    return Ratios(values=np.array(values, dtype=float), chances=chances / chances.sum())


def _spread(scale: float, rows: int = 99) -> Spread:
    """Errors that are normal in logarithms, without the luck of a draw."""
    normal = np.sort(np.random.default_rng(0).normal(0, 1, 100_000))
    residuals = scale * np.quantile(normal, np.arange(1, rows + 1) / (rows + 1))
    return Spread.learn(np.exp(residuals), np.ones(rows))


def _pay(requests: Sequence[float], used: float, outlay: Outlay) -> float:
    """What one job costs, try by try."""
    paid, number, request = 0.0, 0, requests[0]
    while request < used:
        paid += request + outlay.retry_cost
        number += 1
        request = requests[number] if number < len(requests) else 2 * request
    return paid + used + outlay.idle * (request - used)


def _average(requests: Sequence[float], ratios: Ratios, outlay: Outlay) -> float:
    costs = [_pay(requests, used, outlay) for used in ratios.values.tolist()]
    return float(np.dot(costs, ratios.chances))


@given(ratios=_ratios(), outlay=_outlays, requests=_values)
def test_expected_cost_is_the_average_over_jobs(ratios: Ratios, outlay: Outlay, requests: list[float]) -> None:
    assert expected_cost(requests, ratios, outlay) == pytest.approx(_average(requests, ratios, outlay))


@given(request=st.floats(0.1, 10), used=st.floats(0.1, 10))
def test_free_idling_costs_what_the_leaderboard_calls_retry_cost(request: float, used: float) -> None:
    cost = expected_cost([request], _build([used], [1]), Outlay(idle=0, retry_cost=0))
    assert cost == pytest.approx(float(cost_with_doubling(request, used)))


@given(ratios=_ratios(), outlay=_outlays, tries=st.integers(1, 3))
def test_nothing_tried_costs_less(ratios: Ratios, outlay: Outlay, tries: int) -> None:
    choices = sorted({value / 2**halvings for value in ratios.values.tolist() for halvings in range(5)})
    plans = chain.from_iterable(combinations(choices, count) for count in range(1, tries + 1))
    least = min(_average(requests, ratios, outlay) for requests in plans)
    plan = plan_requests(ratios, outlay, tries=tries)
    assert _average(plan.tolist(), ratios, outlay) == pytest.approx(least)


@given(ratios=_ratios(), outlay=_outlays, tries=_tries, data=st.data())
def test_no_change_of_one_request_costs_less(ratios: Ratios, outlay: Outlay, tries: int, data: st.DataObject) -> None:
    plan = plan_requests(ratios, outlay, tries=tries)
    changed = data.draw(st.integers(0, tries - 1))
    below = plan[changed - 1] if changed > 0 else 0.01
    above = plan[changed + 1] if changed < tries - 1 else 2 * plan[-1]
    other = plan.copy()
    other[changed] = data.draw(st.floats(float(below), float(above), exclude_min=True))
    assert expected_cost(plan, ratios, outlay) <= expected_cost(other, ratios, outlay) + _ROUNDING


@given(scale=st.floats(0.02, 1), outlay=_outlays, changed=st.integers(0, 2), factor=st.floats(0.5, 2))
def test_nor_with_a_spread(scale: float, outlay: Outlay, changed: int, factor: float) -> None:
    ratios = Ratios.of(_spread(scale))
    plan = plan_requests(ratios, outlay, tries=3)
    other = plan.copy()
    other[changed] *= factor
    if (np.diff(other) > 0).all():
        assert expected_cost(plan, ratios, outlay) <= expected_cost(other, ratios, outlay) * 1.001


@given(ratios=_ratios(), outlay=_outlays, tries=_tries)
def test_plans_rise_from_a_value_that_may_be(ratios: Ratios, outlay: Outlay, tries: int) -> None:
    plan = plan_requests(ratios, outlay, tries=tries)
    assert plan.shape == (tries,)
    assert plan[0] >= ratios.values[0]
    assert (np.diff(plan) > 0).all()


@given(ratios=_ratios(), outlay=_outlays, tries=_tries)
def test_one_more_planned_try_never_costs_more(ratios: Ratios, outlay: Outlay, tries: int) -> None:
    fewer, more = (plan_requests(ratios, outlay, tries=count) for count in (tries, tries + 1))
    assert expected_cost(more, ratios, outlay) <= expected_cost(fewer, ratios, outlay) + _ROUNDING


@given(ratios=_ratios(), outlay=_outlays, factor=st.sampled_from([0.25, 2, 1024]))
def test_plans_go_with_the_unit(ratios: Ratios, outlay: Outlay, factor: float) -> None:
    scaled = Ratios(values=factor * ratios.values, chances=ratios.chances)
    dearer = replace(outlay, retry_cost=factor * outlay.retry_cost)
    assert plan_requests(scaled, dearer, tries=3) == pytest.approx(factor * plan_requests(ratios, outlay, tries=3))


@pytest.mark.parametrize("outlay", [TIME, MEMORY])
def test_uniform_jobs_get_the_longest_at_once(outlay: Outlay) -> None:
    """The cost of stopping early is concave in where to stop, so an end is best, and the upper one always fits."""
    ratios = _build(np.linspace(0.2, 1, 100).tolist(), np.ones(100))
    assert plan_requests(ratios, outlay, tries=3)[0] == 1


def test_memoryless_jobs_get_the_known_sequence() -> None:
    """Exponential jobs that pay all they ask for: Aupy et al., Reservation Strategies for Stochastic Jobs, 2018.

    Where the slope is zero, each request is exp(the last - the one before); the best first one is about 0.74 of the
    mean, and all together cost 2.3645 means.
    """
    exceeded = 1 / (1 + np.exp(np.linspace(-4, 12, 300)))
    ratios = _build((-np.log(exceeded)).tolist(), -np.diff([1, *exceeded[:-1], 0]))
    outlay = Outlay(idle=1, retry_cost=0)
    plan = plan_requests(ratios, outlay, tries=6)
    assert expected_cost(plan, ratios, outlay) == pytest.approx(2.3645, rel=2e-3)
    assert plan[0] == pytest.approx(0.742, rel=0.05)
    assert plan[1] == pytest.approx(np.exp(plan[0]), rel=0.05)
    assert plan[2] == pytest.approx(np.exp(plan[1] - plan[0]), rel=0.05)


def test_doubling_starts_so_that_a_double_fits() -> None:
    """Most jobs take 1, some take 3: starting at 1.5 rather than 1, the double is no larger than needed."""
    assert plan_doubling(_build([1, 3], [4, 1]), Outlay(idle=0.5, retry_cost=0)) == 1.5


@given(ratios=_ratios(), outlay=_outlays, start=st.floats(0.01, 20))
def test_no_other_start_of_doubling_costs_less(ratios: Ratios, outlay: Outlay, start: float) -> None:
    best = plan_doubling(ratios, outlay)
    assert expected_cost([best], ratios, outlay) <= expected_cost([start], ratios, outlay) + _ROUNDING


@given(ratios=_ratios(), outlay=_outlays, tries=_tries, risk=st.floats(0.001, 0.999))
def test_first_request_is_too_small_with_at_most_the_risk(
    ratios: Ratios, outlay: Outlay, tries: int, risk: float
) -> None:
    first = request_at_risk(ratios, outlay, risk=risk, tries=tries)[0]
    assert ratios.exceeded(first) <= risk
    assert first == ratios.values[0] or ratios.exceeded(first * (1 - _ROUNDING)) > risk


@given(ratios=_ratios(), outlay=_outlays, risks=st.tuples(st.floats(0.001, 0.999), st.floats(0.001, 0.999)))
def test_less_risk_never_asks_for_less(ratios: Ratios, outlay: Outlay, risks: tuple[float, float]) -> None:
    less, more = (request_at_risk(ratios, outlay, risk=risk, tries=2)[0] for risk in sorted(risks))
    assert less >= more


@given(ratios=_ratios(), outlay=_outlays, first=st.floats(0.1, 10), second=st.floats(0.1, 20))
def test_what_follows_a_given_first_is_best(ratios: Ratios, outlay: Outlay, first: float, second: float) -> None:
    plan = plan_from(first, ratios, outlay, tries=2)
    assert plan[0] == first
    assert plan[1] > first
    if second > first:
        assert expected_cost(plan, ratios, outlay) <= expected_cost([first, second], ratios, outlay) + _ROUNDING


@given(ratios=_ratios(), outlay=_outlays, tries=_tries)
def test_chances_needed_are_those_of_the_tries_before(ratios: Ratios, outlay: Outlay, tries: int) -> None:
    plan = plan_requests(ratios, outlay, tries=tries)
    needed = chances_needed(plan, ratios)
    counted = [ratios.chances[ratios.values > request].sum() for request in [0, *plan[:-1]]]
    assert needed == pytest.approx(np.array(counted))


def test_ratios_of_a_spread_are_exceeded_as_the_spread_says() -> None:
    spread = _spread(0.3)
    ratios = Ratios.of(spread)
    for chance in (0.9, 0.5, 0.1, 0.05, 0.01, 0.002):
        assert np.log(ratios.upper(chance)) == pytest.approx(spread.upper(chance), abs=0.03)


@given(
    residuals=st.lists(st.sampled_from([-2.0, -0.1, 0.1, 0.7, 3.0]), min_size=1, max_size=40), width=st.floats(0.1, 10)
)
def test_ratios_of_any_spread_rise_and_are_certain_together(residuals: list[float], width: float) -> None:
    ratios = Ratios.of(Spread.learn(np.exp(residuals), np.ones(len(residuals))), width=width)
    assert (np.diff(ratios.values) >= 0).all()
    assert (ratios.chances > 0).all()
    assert ratios.chances.sum() == pytest.approx(1)


@pytest.mark.parametrize("outlay", [replace(TIME, retry_cost=0), replace(MEMORY, retry_cost=0)])
def test_wider_spreads_need_more(outlay: Outlay) -> None:
    """Not always a larger first request: where jobs differ hundredfold, a small one that may do is worth a try."""
    several = [Ratios.of(_spread(0.2), width=width) for width in (0.25, 0.5, 1, 2, 4)]
    plans = [plan_requests(ratios, outlay, tries=3) for ratios in several]
    costs = [expected_cost(plan, ratios, outlay) for plan, ratios in zip(plans, several, strict=True)]
    tries = [chances_needed(plan, ratios).sum() for plan, ratios in zip(plans, several, strict=True)]
    assert (np.diff(costs) > 0).all()
    assert (np.diff([plan[-1] for plan in plans]) > 0).all()
    assert tries[-1] > tries[0]


def test_dearer_idling_asks_for_less() -> None:
    ratios = Ratios.of(_spread(0.2))
    firsts = [plan_requests(ratios, Outlay(idle=idle), tries=3)[0] for idle in (0.01, 0.1, 0.3, 1)]
    assert (np.diff(firsts) < 0).all()


def test_dearer_failures_ask_for_more() -> None:
    ratios = Ratios.of(_spread(0.4))
    firsts = [plan_requests(ratios, Outlay(idle=1, retry_cost=cost), tries=3)[0] for cost in (0, 0.5, 1, 3)]
    assert (np.diff(firsts) > 0).all()


@given(risk=st.floats(0.001, 0.5), quantities=st.integers(1, 4))
def test_shared_risks_make_the_whole_together(risk: float, quantities: int) -> None:
    assert 1 - (1 - share_risk(risk, quantities)) ** quantities == pytest.approx(risk)


@given(
    scale=st.floats(0.02, 2),
    width=st.floats(0.1, 5),
    risk=st.floats(0.001, 0.3),
    least_cost=st.booleans(),
    bias=st.floats(-1, 1),
)
def test_first_request_keeps_the_risk_and_is_never_below_the_prediction(
    scale: float, width: float, risk: float, least_cost: bool, bias: float
) -> None:
    spread = Spread.learn(np.exp(np.array(_spread(scale).residuals) + bias), np.ones(99))
    (plan,) = plan_for_widths(spread, MEMORY, widths=np.array([width]), tries=3, risk=risk, least_cost=least_cost)
    assert plan[0] >= 1 - _ROUNDING
    assert spread.exceeded(np.log(plan[:1]) / width)[0] <= risk + _ROUNDING
    assert (np.diff(plan) > 0).all()


def test_wild_spreads_still_give_finite_plans() -> None:
    spread = Spread.learn(np.array([1e-20, 1, 1e20]), np.ones(3))
    plans = plan_for_widths(spread, MEMORY, widths=np.array([0.1, 1, 10]), tries=3, risk=0.1)
    assert np.isfinite(plans).all()
    assert (np.diff(plans, axis=1) > 0).all()


@pytest.mark.parametrize("outlay", [TIME, MEMORY])
def test_one_job_gone_wild_does_not_rule_the_others(outlay: Outlay) -> None:
    usual = np.exp(_spread(0.2).residuals)
    wild = Spread.learn(np.append(usual, 1e6), np.ones(len(usual) + 1))
    plan = plan_requests(Ratios.of(wild), outlay, tries=3)
    assert plan[0] <= usual.max()
    assert plan[-1] <= 20 * usual.max()


@pytest.mark.parametrize("least_cost", [True, False])
def test_few_widths_are_planned_each(least_cost: bool) -> None:
    spread, widths = _spread(0.2), np.array([2.0, 1.0, 1.0])
    wide, narrow, same = plan_for_widths(spread, TIME, widths=widths, tries=3, risk=0.3, least_cost=least_cost)
    assert narrow == pytest.approx(same)
    if least_cost:
        assert wide == pytest.approx(plan_requests(Ratios.of(spread, width=2), TIME, tries=3))
    else:
        assert [wide[0], narrow[0]] == pytest.approx(np.exp(spread.upper(0.3) * widths[:2]))


@pytest.mark.parametrize("outlay", [TIME, MEMORY])
def test_many_widths_cost_hardly_more_than_a_plan_each(outlay: Outlay) -> None:
    spread, widths = _spread(0.2), np.geomspace(0.1, 10, 101)
    plans = plan_for_widths(spread, outlay, widths=widths, tries=3, risk=0.5)
    excess = []
    for width, plan in zip(widths.tolist(), plans * (1 + 1e-6), strict=True):  # not just below a value by rounding
        ratios = Ratios.of(spread, width=width)
        best = expected_cost(plan_requests(ratios, outlay, tries=3), ratios, outlay)
        excess.append(expected_cost(plan, ratios, outlay) / best - 1)
    assert max(excess) <= 0.05
    assert np.mean(excess) <= 0.005


def test_many_widths_keep_the_risk_of_each() -> None:
    spread, widths = _spread(0.2), np.geomspace(0.1, 10, 101)
    plans = plan_for_widths(spread, TIME, widths=widths, tries=2, risk=0.05, least_cost=False)
    assert plans[:, 0] == pytest.approx(np.exp(widths * spread.upper(0.05)))
