"""Offers as columns: priced, checked against the limits of nodes, and ranked; fast for hundreds of thousands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.advice.policy import Policy
from foretell.core.prices import SECONDS_PER_HOUR, Tariff
from foretell.core.run import Allocation
from foretell.core.site import NodeType

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

WORKS, TOO_MUCH_MEMORY, TOO_LONG = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """The allocations to choose from, as columns."""

    cores: Floats
    gpus: Floats
    nodes: Floats
    node_memory: Floats
    max_walltime_s: Floats
    tariff: Tariff

    def price_per_hour(self, memory: Floats) -> Floats:
        """Of each allocation with so much memory on each node."""
        return self.tariff.price_per_hour(nodes=self.nodes, cores=self.cores, gpus=self.gpus, memory_bytes=memory)


def build_market(options: Sequence[tuple[NodeType, Allocation]]) -> Market:
    """The columns of these allocations."""
    return Market(
        cores=np.array([allocation.cores for _, allocation in options], dtype=float),
        gpus=np.array([allocation.gpus for _, allocation in options], dtype=float),
        nodes=np.array([allocation.nodes for _, allocation in options], dtype=float),
        node_memory=np.array([node.memory_bytes for node, _ in options], dtype=float),
        max_walltime_s=np.array([node.max_walltime_s or np.inf for node, _ in options], dtype=float),
        tariff=Tariff.of([node for node, _ in options]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The allocations of one configuration, or of each row's; ``order`` lists them best first along the last axis.

    ``verdict`` says why one cannot work. ``walltime_s`` and ``memory`` are the requests, limited to those of the node.
    """

    order: NDArray[np.intp]
    verdict: NDArray[np.int8]
    allowed: Bools
    pareto: Bools
    cost: Floats
    walltime_s: Floats
    memory: Floats


def rank(
    market: Market,
    *,
    time_s: Floats,
    shortest_s: Floats,
    longest_s: Floats,
    walltime_s: Floats,
    memory_value: Floats,
    memory: Floats,
    trusted: Bools,
    policy: Policy,
) -> Ranking:
    """Rank the market's allocations, along the last axis of all arrays; each row may be another configuration.

    Nodes that offer less than the request are last. ``trusted`` allocations are inside the measured range. They rank
    before others if any of them is allowed, except others whose upper bound is better than the lower bound of the best
    trusted one.
    """
    verdict = np.where(time_s > market.max_walltime_s, TOO_LONG, WORKS).astype(np.int8)
    verdict[memory_value > market.node_memory] = TOO_MUCH_MEMORY
    asked_memory = np.minimum(memory, market.node_memory)
    asked_s = np.minimum(walltime_s, market.max_walltime_s)
    price = market.price_per_hour(asked_memory)
    cost = price * time_s / SECONDS_PER_HOUR
    works = verdict == WORKS
    allowed = works & policy.allows(longest_s=longest_s, cost=price * asked_s / SECONDS_PER_HOUR)
    first, second = policy.rank(time_s=time_s, cost=cost)
    at_worst, _ = policy.rank(time_s=longest_s, cost=cost * longest_s / time_s)
    at_best, _ = policy.rank(time_s=shortest_s, cost=cost * shortest_s / time_s)
    to_beat = np.min(np.where(trusted & allowed, at_best, np.inf), axis=-1, keepdims=True, initial=np.inf)
    certain = trusted | (at_worst < to_beat)
    given = (asked_s >= walltime_s) & (asked_memory >= memory)
    setbacks = 8 * ~works + 4 * ~allowed + 2 * ~given + ~certain
    return Ranking(
        order=np.lexsort((second, first, setbacks)),
        verdict=verdict,
        allowed=allowed,
        pareto=works & pareto_front(np.where(works, time_s, np.inf), np.where(works, cost, np.inf)),
        cost=cost,
        walltime_s=asked_s,
        memory=asked_memory,
    )


def pareto_front(time_s: Floats, cost: Floats) -> Bools:
    """The Pareto front along the last axis: no other is better in time or cost and not worse in the other."""
    order = np.lexsort((time_s, cost))
    times, costs = np.take_along_axis(time_s, order, axis=-1), np.take_along_axis(cost, order, axis=-1)
    quickest = np.minimum.accumulate(times, axis=-1)
    quicker = np.ones(time_s.shape, dtype=bool)
    quicker[..., 1:] = quickest[..., 1:] < quickest[..., :-1]
    cheapest_so_quick = np.maximum.accumulate(np.where(quicker, costs, -np.inf), axis=-1)
    front = np.empty(time_s.shape, dtype=bool)
    np.put_along_axis(front, order, (times == quickest) & (costs == cheapest_so_quick), axis=-1)
    return front
