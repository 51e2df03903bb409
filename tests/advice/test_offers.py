"""Choosing, against trying everything."""

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.advice.offers import Choice, choose
from foretell.advice.policy import Cheapest, Fastest, Policy, choose_policy
from foretell.core.errors import InfeasibleError, SpecError
from foretell.core.prediction import Offer, Recommendation, Rejection, Request
from foretell.core.run import Allocation
from foretell.core.units import parse_duration, parse_money, render_most_money

BuildChoice = Callable[..., Choice]

_HOUR = 3600.0
# Few values each, so that ties are common.
_options = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 4, 8]), st.sampled_from([600.0, 1800.0, 3600.0, 7200.0]), st.sampled_from([0, 8, 40])
    ),
    min_size=1,
    max_size=8,
)
_time_limits = st.none() | st.sampled_from([500.0, 800.0, 2400.0, 5000.0, 9000.0])
_cost_limits = st.none() | st.sampled_from(["0.1", "1", "3", "10", "100"]).map(Decimal)


def _try_everything(choice: Choice, policy: Cheapest | Fastest) -> list[Offer]:
    """The offers within the limits, the best first, one by one and in plain words."""
    everything = choose(choice, Cheapest()).offers
    within = [offer for offer in everything if _is_within(offer, policy)]
    to_beat = min((_weigh(offer, policy, "low") for offer in within if offer.measured), default=math.inf)
    keys: dict[str, Callable[[Offer], tuple[float, ...]]] = {
        "cheapest": lambda offer: (float(offer.cost), offer.prediction.elapsed_s.value),
        "quickest": lambda offer: (offer.prediction.elapsed_s.value, float(offer.cost)),
    }
    key = keys[policy.best]
    return sorted(
        within,
        key=lambda offer: (not offer.measured and _weigh(offer, policy, "high") >= to_beat - 1e-9, *key(offer)),
    )


def _weigh(offer: Offer, policy: Cheapest | Fastest, bound: str) -> float:
    """The cost or the time of an offer at a bound of its interval."""
    time_s = offer.prediction.elapsed_s
    limit: float = getattr(time_s, bound)
    return limit if policy.best == "quickest" else float(offer.cost) * limit / time_s.value


def _is_within(offer: Offer, policy: Cheapest | Fastest) -> bool:
    in_time = policy.max_time_s is None or offer.prediction.elapsed_s.high <= policy.max_time_s
    return in_time and (policy.max_cost is None or float(offer.cost_at_request) <= float(policy.max_cost) + 1e-5)


def _find(choice: Choice, policy: Policy) -> Recommendation | None:
    try:
        return choose(choice, policy)
    except InfeasibleError:
        return None


@given(
    options=_options,
    max_time_s=_time_limits,
    max_cost=_cost_limits,
    kind=st.sampled_from([Cheapest, Fastest]),
    data=st.data(),
)
def test_pick_is_what_trying_everything_finds(
    build_choice: BuildChoice,
    options: list[tuple[int, float, float]],
    max_time_s: float | None,
    max_cost: Decimal | None,
    kind: type[Cheapest | Fastest],
    data: st.DataObject,
) -> None:
    measured = data.draw(st.lists(st.booleans(), min_size=len(options), max_size=len(options)))
    choice = build_choice(options, measured=measured)
    policy = kind(max_time_s=max_time_s, max_cost=max_cost)
    expected = _try_everything(choice, policy)
    found = _find(choice, policy)
    assert (found is None) == (not expected)
    if found:
        assert _facts(found.picked) == _facts(expected[0])
        assert found.picked is found.offers[0]


def _facts(offer: Offer) -> tuple[object, ...]:
    return offer.cost, offer.prediction.elapsed_s.value, offer.measured


@given(options=_options, limits=st.tuples(st.floats(500, 9000), st.floats(500, 9000)), max_cost=_cost_limits)
def test_later_deadline_never_costs_more(
    build_choice: BuildChoice,
    options: list[tuple[int, float, float]],
    limits: tuple[float, float],
    max_cost: Decimal | None,
) -> None:
    sooner, later = (
        _find(build_choice(options), Cheapest(max_time_s=limit, max_cost=max_cost)) for limit in sorted(limits)
    )
    if sooner:
        assert later is not None
        assert later.picked.cost <= sooner.picked.cost


@given(
    options=_options,
    limits=st.tuples(st.decimals(0, 50, places=2), st.decimals(0, 50, places=2)),
    max_time_s=_time_limits,
)
def test_larger_budget_never_takes_longer(
    build_choice: BuildChoice,
    options: list[tuple[int, float, float]],
    limits: tuple[Decimal, Decimal],
    max_time_s: float | None,
) -> None:
    less, more = (
        _find(build_choice(options), Fastest(max_time_s=max_time_s, max_cost=limit)) for limit in sorted(limits)
    )
    if less:
        assert more is not None
        assert more.picked.prediction.elapsed_s.value <= less.picked.prediction.elapsed_s.value


@given(options=_options)
def test_pareto_marks_are_the_offers_nothing_beats(
    build_choice: BuildChoice, options: list[tuple[int, float, float]]
) -> None:
    offers = choose(build_choice(options), Cheapest()).offers
    for offer in offers:
        assert offer.pareto == (not any(_beats(other, offer) for other in offers))


def _beats(one: Offer, other: Offer) -> bool:
    ours, theirs = ((offer.prediction.elapsed_s.value, offer.cost) for offer in (one, other))
    return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]


def test_costs_are_exact_decimals(build_choice: BuildChoice) -> None:
    """Twenty minutes on three cores, asked for as 24, at a dollar a core-hour."""
    (offer,) = choose(build_choice([(3, 1200.0, 0)]), Cheapest()).offers
    assert isinstance(offer.cost, Decimal)
    assert (offer.cost, offer.cost_at_request) == (Decimal("1.000000"), Decimal("1.200000"))


def test_memory_asked_for_is_charged_as_cores(build_choice: BuildChoice) -> None:
    """48 GiB with the margin, of nodes with 4 GiB a core."""
    (offer,) = choose(build_choice([(1, _HOUR, 40)]), Cheapest()).offers
    assert offer.cost == 12


def test_requests_are_whole_minutes_and_mebibytes(build_choice: BuildChoice) -> None:
    (offer,) = choose(build_choice([(1, 601.0, 7.00001)]), Cheapest()).offers
    walltime_s, memory = offer.prediction.request.walltime_s, offer.prediction.request.memory_bytes
    assert memory is not None
    assert (walltime_s % 60, memory % 2**20) == (0, 0)
    assert walltime_s >= 601 * 1.2
    assert offer.allocation.walltime_s == walltime_s
    assert offer.allocation.memory_bytes == memory


def test_requests_are_cut_to_what_the_node_gives(build_choice: BuildChoice) -> None:
    (offer,) = choose(build_choice([(1, _HOUR, 60)], max_walltime_s=_HOUR + 60), Cheapest()).offers
    assert offer.prediction.request.walltime_s == _HOUR + 60
    assert offer.prediction.request.memory_bytes == 64 * 2**30


def test_where_no_node_gives_the_request_the_reason_says_so(build_choice: BuildChoice) -> None:
    found = choose(build_choice([(1, _HOUR, 0)], max_walltime_s=_HOUR + 60), Cheapest())
    assert "limited by the node, and is too small with" in found.why
    assert "too small" not in choose(build_choice([(1, _HOUR, 0)], max_walltime_s=9 * _HOUR), Cheapest()).why


def test_what_cannot_work_is_listed_with_its_reason(build_choice: BuildChoice) -> None:
    choice = build_choice([(1, 2 * _HOUR, 0), (2, 600.0, 0), (4, 600.0, 65)], max_walltime_s=_HOUR)
    other = Rejection(site="here", allocation=Allocation(node_type="gpu"), reason="no run used a GPU")
    found = choose(choice, Cheapest(), rejections=[other])
    assert [offer.allocation.cores for offer in found.offers] == [2]
    reasons = {rejection.allocation.cores: rejection.reason for rejection in found.rejections if rejection is not other}
    assert reasons == {
        1: "about 2 h 00 min; the limit is 1 h 00 min",
        4: "about 65 GB of memory; a node has 64 GB",
    }
    assert other in found.rejections


def test_where_nothing_works_the_reasons_are_named(build_choice: BuildChoice) -> None:
    with pytest.raises(InfeasibleError, match=r"no allocation of site 'here' can run 'demo' \(node: about 65 GB"):
        choose(build_choice([(1, 60.0, 65)]), Cheapest())
    with pytest.raises(InfeasibleError, match="no allocation of site 'here' can run 'demo'"):
        choose(build_choice([]), Cheapest())


def test_where_limits_are_too_tight_the_nearest_are_named(build_choice: BuildChoice) -> None:
    choice = build_choice([(1, _HOUR, 0), (4, 1800.0, 0)])
    with pytest.raises(InfeasibleError) as caught:
        choose(choice, Cheapest(max_time_s=60.0))
    message = str(caught.value)
    assert "at most 1 min 00 s" in message
    assert "the quickest takes up to 36 min 00 s" in message
    assert "the cheapest costs up to $1.20" in message
    assert "relax --max-time or --max-cost" in message


@given(options=_options, kind=st.sampled_from([Cheapest, Fastest]))
def test_what_the_message_names_is_enough(
    build_choice: BuildChoice, options: list[tuple[int, float, float]], kind: type[Cheapest | Fastest]
) -> None:
    choice = build_choice(options)
    with pytest.raises(InfeasibleError) as caught:
        choose(choice, kind(max_time_s=1.0))
    quickest = str(caught.value).split("takes up to ")[1].split(",")[0]
    assert choose(choice, kind(max_time_s=parse_duration(quickest)))


@given(seconds=st.floats(1.0, 1e6))
def test_the_most_it_costs_is_one_figure(build_choice: BuildChoice, seconds: float) -> None:
    """What is shown as "at most", what --max-cost is compared with, and what a refusal names."""
    choice = build_choice([(1, seconds, 0)])  # asked for in whole minutes: more than the upper bound of the time
    most = choose(choice, Cheapest()).picked.cost_at_request
    shown = render_most_money(most)
    assert choose(choice, Cheapest(max_cost=parse_money(shown.replace(",", "")))).picked.cost_at_request == most
    with pytest.raises(InfeasibleError) as caught:
        choose(choice, Cheapest(max_cost=most * Decimal("0.99")))
    assert f"costs up to {shown};" in str(caught.value)


def test_limits_speak_the_sites_currency(build_choice: BuildChoice) -> None:
    choice = build_choice([(1, _HOUR, 0)], currency="SU")
    assert choose(choice, Fastest(max_cost=Decimal(5))).why == "the only offer that costs at most 5.00 SU"
    with pytest.raises(InfeasibleError, match=r"at most 0\.50+ SU: .* costs up to 1\.20 SU"):
        choose(choice, Fastest(max_cost=Decimal("0.5")))


def test_measured_offers_go_first_and_the_reason_says_so(build_choice: BuildChoice) -> None:
    choice = build_choice([(3, 600.0, 0), (4, 600.0, 0), (8, 600.0, 0)], measured=[False, True, True])
    found = choose(choice, Cheapest(max_time_s=_HOUR))
    assert found.picked.allocation.cores == 4
    assert found.why == "the cheapest of 2 offers inside what was measured that take at most 1 h 00 min"


def test_offer_that_is_better_for_certain_goes_before_measured_ones(build_choice: BuildChoice) -> None:
    """A quarter of the cost, and intervals of a fifth each way: they do not meet."""
    choice = build_choice([(1, 600.0, 0), (4, 600.0, 0)], measured=[False, True])
    found = choose(choice, Cheapest(max_time_s=_HOUR))
    assert found.picked.allocation.cores == 1
    assert "its upper bound is better than the lower bound of any that was" in found.why
    unsure = build_choice([(1, 600.0, 0), (4, 600.0, 0)], measured=[False, True], spread=2.5)
    assert choose(unsure, Cheapest(max_time_s=_HOUR)).picked.allocation.cores == 4


def test_an_offer_that_was_not_measured_comes_with_advice(build_choice: BuildChoice) -> None:
    choice = build_choice([(1, 600.0, 0), (4, _HOUR, 0)], measured=[False, True])
    found = choose(choice, Cheapest(max_time_s=1200.0))
    assert found.picked.allocation.cores == 1
    assert "such an allocation was not measured" in found.why


def test_risk_is_asked_for_the_requests_made(build_choice: BuildChoice) -> None:
    choice = replace(build_choice([(2, 100.0, 0), (1, 7000.0, 0)]), risk=lambda walltime_s, memory: walltime_s / 1e5)
    for offer in choose(choice, Cheapest()).offers:
        assert offer.risk == offer.prediction.request.walltime_s / 1e5


def _choose_with_retries(choice: Choice, *, times_s: tuple[float, ...], sizes: tuple[int, ...]) -> Request:
    predictions = [
        replace(one, request=replace(one.request, retries_walltime_s=times_s, retries_memory=sizes))
        for one in choice.predictions
    ]
    return choose(replace(choice, predictions=predictions), Cheapest()).picked.prediction.request


def test_next_tries_are_rounded_as_the_first(build_choice: BuildChoice) -> None:
    choice = build_choice([(1, 600.0, 1)])
    request = _choose_with_retries(choice, times_s=(1441.0, 2881.5), sizes=(2**31 + 1, 2**32 + 1))
    assert request.retries_walltime_s == (1500.0, 2940.0)
    assert request.retries_memory == (2**31 + 2**20, 2**32 + 2**20)


def test_next_tries_end_where_the_node_does(build_choice: BuildChoice) -> None:
    """A try that could not be larger than the one before is none."""
    choice = build_choice([(1, 600.0, 1)], max_walltime_s=1800.0)
    request = _choose_with_retries(choice, times_s=(100.0, 1500.0, 5000.0, 9000.0), sizes=(2**20, 2**50, 2**51))
    assert request.retries_walltime_s == (1500.0, 1800.0)
    assert request.retries_memory == (64 * 2**30,)


@pytest.mark.parametrize(
    ("limits", "prefer", "best"),
    [
        ({}, "auto", "cheapest"),
        ({"max_time_s": 1.0}, "auto", "cheapest"),
        ({"max_cost": Decimal(1)}, "auto", "quickest"),
        ({"max_time_s": 1.0, "max_cost": Decimal(1)}, "auto", "cheapest"),
        ({"max_time_s": 1.0}, "fastest", "quickest"),
        ({"max_cost": Decimal(1)}, "cheapest", "cheapest"),
    ],
)
def test_limits_choose_the_policy(limits: dict[str, float | Decimal], prefer: str, best: str) -> None:
    assert choose_policy(**limits, prefer=prefer).best == best  # type: ignore[arg-type]


def test_an_unknown_preference_is_an_error() -> None:
    with pytest.raises(SpecError, match="prefer: found 'quick'; expected auto, cheapest or fastest"):
        choose_policy(prefer="quick")
