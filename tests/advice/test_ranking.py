"""Columns and single values must agree."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretell.advice.offers import Choice, build_market, pareto_front, rank
from foretell.advice.policy import Cheapest, Fastest
from foretell.advice.site_lookup import list_allocations
from foretell.advice.sites import list_sites
from foretell.core.prices import price_per_hour
from foretell.core.site import Site

_GIB = 2**30
_SITES = {site.name: site for site in list_sites()}
_FACTORS = {"shortest_s": 0.8, "longest_s": 1.2, "walltime_s": 1.3}
_few = st.sampled_from([1.0, 2.0, 3.0])


@pytest.mark.parametrize("site", _SITES.values(), ids=_SITES)
@pytest.mark.parametrize("memory", [0, 1, 3 * _GIB, 4 * _GIB + 1, 100 * _GIB, 10_000 * _GIB])
def test_prices_of_many_are_the_prices_of_each(site: Site, memory: int) -> None:
    options = list_allocations(site, nodes=(1, 2, 4))
    prices = build_market(options).price_per_hour(np.full(len(options), float(memory)))
    each = [
        price_per_hour(node, replace(allocation, memory_bytes=min(memory, node.memory_bytes) or None))
        for node, allocation in options
    ]
    assert prices == pytest.approx([float(price) for price in each], rel=1e-12)


@given(points=st.lists(st.tuples(_few, _few), min_size=1, max_size=10))
def test_front_is_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    time_s, cost = np.array(points).T
    expected = [
        not any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in points)
        for point in points
    ]
    assert pareto_front(time_s, cost).tolist() == expected


@given(points=st.lists(st.lists(st.tuples(_few, _few), min_size=4, max_size=4), min_size=1, max_size=5))
def test_each_configuration_has_its_own_front(points: list[list[tuple[float, float]]]) -> None:
    time_s, cost = np.moveaxis(np.array(points), -1, 0)
    together = pareto_front(time_s, cost)
    for row in range(len(points)):
        assert together[row].tolist() == pareto_front(time_s[row], cost[row]).tolist()


@given(seed=st.integers(0, 1000), policy=st.sampled_from([Cheapest(max_time_s=2500.0), Fastest()]))
def test_many_configurations_are_ranked_as_each_alone(
    build_choice: Callable[..., Choice], seed: int, policy: Cheapest | Fastest
) -> None:
    market = build_market(build_choice([(cores, 1.0, 0) for cores in (1, 2, 4, 8)], max_walltime_s=4000.0).options)
    draw = np.random.default_rng(seed)
    columns: dict[str, NDArray[np.float64]] = {
        "time_s": draw.choice([600.0, 1200.0, 2400.0, 4800.0], (3, 4)),
        "memory_value": draw.choice([1.0, 80.0], (3, 4)) * _GIB,
    }
    columns |= {name: factor * columns["time_s"] for name, factor in _FACTORS.items()}
    columns["memory"] = 1.5 * columns["memory_value"]
    trusted = draw.choice([True, False], (3, 4))
    together = rank(market, **columns, trusted=trusted, policy=policy)
    for row in range(3):
        alone = rank(
            market, **{name: column[row] for name, column in columns.items()}, trusted=trusted[row], policy=policy
        )
        for name in ("order", "verdict", "allowed", "pareto", "cost", "walltime_s", "memory"):
            np.testing.assert_array_equal(getattr(together, name)[row], getattr(alone, name))
