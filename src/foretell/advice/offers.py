"""From predictions for the allocations of a site to offers, the one picked, and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.advice.policy import Policy
from foretell.core.errors import InfeasibleError
from foretell.core.prediction import Offer, Prediction, Recommendation, Rejection, Request
from foretell.core.prices import SECONDS_PER_HOUR, Tariff, charge
from foretell.core.run import Allocation
from foretell.core.site import NodeType, Site
from foretell.core.units import render_bytes, render_duration, render_most_money

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


_SECONDS_A_MINUTE = 60  # schedulers count walltime in whole minutes
_MEBIBYTE = 2**20

Risk = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One configuration: a prediction for each allocation, and which of these are in the measured range."""

    app: str
    site: Site
    options: Sequence[tuple[NodeType, Allocation]]
    predictions: Sequence[Prediction]
    measured: Sequence[bool]
    risk: Risk


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The offers that work, best first, with their places among the options; and what cannot work."""

    offers: tuple[Offer, ...]
    rows: tuple[int, ...]
    allowed: tuple[bool, ...]  # by the limits of the policy
    rejections: tuple[Rejection, ...]
    rejected: tuple[int, ...]  # the places of the last of these


def survey(choice: Choice, policy: Policy, *, rejections: Sequence[Rejection] = ()) -> Survey:
    """Every option as an offer or a rejection."""
    ranking = _rank(choice, policy)
    risk = choice.risk(ranking.walltime_s, ranking.memory)
    works = tuple(int(row) for row in ranking.order if ranking.verdict[row] == WORKS)
    impossible = tuple(int(row) for row in ranking.order if ranking.verdict[row] != WORKS)
    return Survey(
        offers=tuple(_offer(choice, ranking, row, float(risk[row])) for row in works),
        rows=works,
        allowed=tuple(bool(ranking.allowed[row]) for row in works),
        rejections=(*rejections, *(_reject(choice, ranking, row) for row in impossible)),
        rejected=impossible,
    )


def choose(choice: Choice, policy: Policy, *, rejections: Sequence[Rejection] = ()) -> Recommendation:
    """Every offer that works, best first, and the one to take.

    Raises:
        InfeasibleError: if no allocation works, or none within the policy's limits.
    """
    found = survey(choice, policy, rejections=rejections)
    if not found.offers:
        raise InfeasibleError(describe_nothing_works(choice.app, choice.site, found.rejections))
    if not found.allowed[0]:
        raise InfeasibleError(_nothing_allowed(found.offers, policy))
    allowed = [offer for offer, within in zip(found.offers, found.allowed, strict=True) if within]
    wanted = choice.predictions[found.rows[0]].request
    return Recommendation(
        app=choice.app,
        offers=found.offers,
        picked=found.offers[0],
        why=explain_pick(allowed, policy) + warn_if_cut(found.offers[0], wanted),
        rejections=found.rejections,
    )


def _rank(choice: Choice, policy: Policy) -> Ranking:
    predictions = choice.predictions
    memory = [prediction.peak_memory_bytes for prediction in predictions]
    return rank(
        build_market(choice.options),
        time_s=np.array([prediction.elapsed_s.value for prediction in predictions]),
        shortest_s=np.array([prediction.elapsed_s.low for prediction in predictions]),
        longest_s=np.array([prediction.elapsed_s.high for prediction in predictions]),
        walltime_s=np.array([_whole_minutes(prediction.request.walltime_s) for prediction in predictions]),
        memory_value=np.array([estimate.value if estimate else 0.0 for estimate in memory]),
        memory=np.array([_whole_mebibytes(prediction.request.memory_bytes) for prediction in predictions]),
        trusted=np.array(choice.measured, dtype=bool),
        policy=policy,
    )


def _whole_minutes(seconds: float) -> float:
    return float(np.ceil(seconds / _SECONDS_A_MINUTE) * _SECONDS_A_MINUTE)


def _whole_mebibytes(size: int | None) -> float:
    return float(np.ceil((size or 0) / _MEBIBYTE) * _MEBIBYTE)


def _offer(choice: Choice, ranking: Ranking, row: int, risk: float) -> Offer:
    node, bare = choice.options[row]
    walltime_s, memory = float(ranking.walltime_s[row]), int(ranking.memory[row]) or None
    allocation = replace(bare, walltime_s=walltime_s, memory_bytes=memory)
    prediction = replace(
        choice.predictions[row],
        allocation=allocation,
        request=_round(choice.predictions[row].request, node, walltime_s, memory),
    )
    return Offer(
        site=choice.site.name,
        prediction=prediction,
        cost=charge(node, allocation, prediction.elapsed_s.value),
        cost_at_request=charge(node, allocation, walltime_s),
        currency=choice.site.currency,
        risk=risk,
        pareto=bool(ranking.pareto[row]),
        measured=choice.measured[row],
    )


def _round(request: Request, node: NodeType, walltime_s: float, memory: int | None) -> Request:
    """The request as the node accepts it, without next requests that could not be larger."""
    longest = node.max_walltime_s or np.inf
    times = {min(_whole_minutes(retry), longest) for retry in request.retries_walltime_s}
    sizes = {min(int(_whole_mebibytes(retry)), node.memory_bytes) for retry in request.retries_memory}
    return Request(
        walltime_s=walltime_s,
        memory_bytes=memory,
        retries_walltime_s=tuple(sorted(time for time in times if time > walltime_s)),
        retries_memory=tuple(sorted(size for size in sizes if size > (memory or 0))),
    )


def _reject(choice: Choice, ranking: Ranking, row: int) -> Rejection:
    node, allocation = choice.options[row]
    reason = _too_long if ranking.verdict[row] == TOO_LONG else _too_much_memory
    return Rejection(site=choice.site.name, allocation=allocation, reason=reason(node, choice.predictions[row]))


def _too_long(node: NodeType, prediction: Prediction) -> str:
    limit = render_duration(node.max_walltime_s or 0)
    return f"about {render_duration(prediction.elapsed_s.value)}; the limit is {limit}"


def _too_much_memory(node: NodeType, prediction: Prediction) -> str:
    assert prediction.peak_memory_bytes is not None
    needed = render_bytes(prediction.peak_memory_bytes.value)
    return f"about {needed} of memory; a node has {render_bytes(node.memory_bytes)}"


def explain_pick(allowed: Sequence[Offer], policy: Policy) -> str:
    """Why the first of the offers within the limits is the one to take."""
    picked = allowed[0]
    alike = [offer for offer in allowed if offer.measured == picked.measured]
    which = f"the {policy.best} of {len(alike)} offers" if len(alike) > 1 else "the only offer"
    inside = " inside what was measured" if picked.measured and len(alike) < len(allowed) else ""
    limits = policy.render(picked.currency, several=len(alike) > 1)
    return which + inside + (f" that {limits}" if limits else "") + _warn_if_not_measured(picked, allowed)


def _warn_if_not_measured(picked: Offer, allowed: Sequence[Offer]) -> str:
    if picked.measured:
        return ""
    if any(offer.measured for offer in allowed):
        return (
            "; such an allocation was not measured, but its upper bound is better than the lower bound of any that was"
        )
    return "; such an allocation was not measured, so check it with one run first"


def warn_if_cut(picked: Offer, wanted: Request) -> str:
    """That no node offers the whole request, and how likely it is too small."""
    asked = picked.prediction.request
    cut = asked.walltime_s < wanted.walltime_s or (asked.memory_bytes or 0) < (wanted.memory_bytes or 0)
    return (
        f"; the request is limited by the node, and is too small with a probability of {picked.risk:.0%}" if cut else ""
    )


def describe_nothing_works(app: str, site: Site, rejections: Sequence[Rejection]) -> str:
    """That no allocation of a site can run an app, with each reason once."""
    nodes: dict[str, str | None] = {}
    for rejection in rejections:
        nodes.setdefault(rejection.reason, rejection.allocation.node_type)
    listed = "; ".join(f"{node}: {reason}" for reason, node in list(nodes.items())[:5])
    return f"no allocation of site {site.name!r} can run {app!r}" + (f" ({listed})" if listed else "")


def _nothing_allowed(offers: Sequence[Offer], policy: Policy) -> str:
    """Like the limits, by the upper bound of the time and the cost of the whole request."""
    currency = offers[0].currency
    quickest = render_duration(min(offer.prediction.elapsed_s.high for offer in offers))
    cheapest = render_most_money(min(offer.cost_at_request for offer in offers), currency)
    return (
        f"no allocation {policy.render(currency)}: the quickest takes up to {quickest}, the cheapest costs "
        f"up to {cheapest}; relax --max-time or --max-cost, or choose another site"
    )
