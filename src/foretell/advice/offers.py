"""From predictions for the allocations of a site to offers, the one picked, and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretell.advice.policy import Policy
from foretell.advice.ranking import TOO_LONG, WORKS, Floats, Ranking, build_market, rank
from foretell.core.errors import InfeasibleError
from foretell.core.prediction import Offer, Prediction, Recommendation, Rejection, Request
from foretell.core.prices import charge
from foretell.core.run import Allocation
from foretell.core.site import NodeType, Site
from foretell.core.units import render_bytes, render_duration, render_most_money

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


def choose(choice: Choice, policy: Policy, *, rejections: Sequence[Rejection] = ()) -> Recommendation:
    """Every offer that works, best first, and the one to take.

    Raises:
        InfeasibleError: if no allocation works, or none within the policy's limits.
    """
    ranking = _rank(choice, policy)
    risk = choice.risk(ranking.walltime_s, ranking.memory)
    works = [int(row) for row in ranking.order if ranking.verdict[row] == WORKS]
    impossible = [_reject(choice, ranking, int(row)) for row in ranking.order if ranking.verdict[row] != WORKS]
    offers = tuple(_offer(choice, ranking, row, float(risk[row])) for row in works)
    everything = (*rejections, *impossible)
    if not works:
        raise InfeasibleError(describe_nothing_works(choice.app, choice.site, everything))
    if not ranking.allowed[works[0]]:
        raise InfeasibleError(_nothing_allowed(offers, policy))
    return Recommendation(
        app=choice.app,
        offers=offers,
        picked=offers[0],
        why=_explain([offer for offer, row in zip(offers, works, strict=True) if ranking.allowed[row]], policy)
        + _warn_if_cut(offers[0], choice.predictions[works[0]].request),
        rejections=everything,
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


def _explain(allowed: Sequence[Offer], policy: Policy) -> str:
    picked = allowed[0]
    alike = [offer for offer in allowed if offer.measured == picked.measured]
    which = f"the {policy.best} of {len(alike)} offers" if len(alike) > 1 else "the only offer"
    inside = " inside what was measured" if picked.measured and len(alike) < len(allowed) else ""
    limits = policy.render(picked.currency)
    takes = f" that {'take' if len(alike) > 1 else 'takes'} {limits}" if limits else ""
    return which + inside + takes + _warn_if_not_measured(picked, allowed)


def _warn_if_not_measured(picked: Offer, allowed: Sequence[Offer]) -> str:
    if picked.measured:
        return ""
    if any(offer.measured for offer in allowed):
        return (
            "; such an allocation was not measured, but its upper bound is better than the lower bound of any that was"
        )
    return "; such an allocation was not measured, so check it with one run first"


def _warn_if_cut(picked: Offer, wanted: Request) -> str:
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
        f"no allocation takes {policy.render(currency)}: the quickest takes up to {quickest}, the cheapest costs "
        f"up to {cheapest}; relax --max-time or --max-cost, or choose another site"
    )
