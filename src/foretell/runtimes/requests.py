"""What to ask for, and what after that if it was too small, so that the expected cost is least. See docs/requests.md.

All requests here are multiples of the prediction, ascending; after the last planned one each failure doubles.
"""

from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretell.core.intervals import Spread

Floats: TypeAlias = NDArray[np.float64]

# Chances of being exceeded, 98 % down to 1 in 8000: even in log odds, since the upper tail decides what to ask for.
_EXCEEDED = 1 / (1 + np.exp(np.linspace(-4, 9, 120)))
_TAIL = int(np.argmax(_EXCEEDED <= 0.1))
_HEAVIEST = 0.5  # a tail with a larger scale has hardly a mean: one job that went wild would rule every request
_FARTHEST = 30.0  # a log ratio beyond any that a model can be off by
_HALVINGS = 4  # a job that takes more doubles than this is too rare to plan for
_MOST_PLANS = 32  # more widths than this share plans


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlay:
    """What tries cost: one that fails its whole request, the one that fits what was used and ``idle`` of the rest.

    ``idle`` is above 0: if what is not used cost nothing, everything there is would be the best request. A failed try
    also costs ``retry_cost``, in multiples of the prediction: the job waits in the queue again, and so does its user.
    """

    idle: float
    retry_cost: float = 1.0


# Walltime is charged as used. But a longer request waits longer for its gap and keeps others out of it.
TIME = Outlay(idle=0.1)
# Memory is set aside whether used or not: what is asked for is what is paid.
MEMORY = Outlay(idle=1.0)


def share_risk(risk: float, quantities: int) -> float:
    """The risk that each of several requests may have, for any of them to fail with this one."""
    return float(1 - (1 - risk) ** (1 / quantities))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """What measured / predicted may be: ascending values and the chance of each."""

    values: Floats
    chances: Floats

    @classmethod
    def of(cls, spread: Spread, *, width: float = 1.0) -> Self:
        """A spread, ``width`` times as wide in logarithms; between its residuals each ratio is as likely as another."""
        residuals = np.array(spread.residuals)
        ranks = np.arange(1, len(residuals) + 1) / (len(residuals) + 1)
        inside = np.interp(_EXCEEDED, ranks, residuals[::-1])
        beyond = np.maximum(-np.log(_EXCEEDED * (len(residuals) + 1)), 0) * spread.scale
        log_ratios = np.clip(_lighten_tail(width * (inside + beyond)), -_FARTHEST, _FARTHEST)
        return cls(values=np.exp(log_ratios), chances=-np.diff([1, *_EXCEEDED[:-1], 0]))

    def exceeded(self, request: ArrayLike) -> Floats:
        """The chance that these requests are too small."""
        above = np.append(np.cumsum(self.chances[::-1])[::-1], 0)
        return np.asarray(above[np.searchsorted(self.values, request, side="right")])

    def upper(self, risk: float) -> float:
        """The least request that is too small with at most this chance."""
        return float(self.values[np.argmax(self.exceeded(self.values) <= risk)])


def _lighten_tail(log_ratios: Floats) -> Floats:
    """The same, but the most extreme tenth falls off at least as the square of the ratio."""
    fall = -_HEAVIEST * np.log(_EXCEEDED[_TAIL:])
    lightened = np.minimum.accumulate(log_ratios[_TAIL:] - fall) + fall
    return np.maximum.accumulate(np.append(log_ratios[:_TAIL], lightened))  # rounding must not disturb the order


def plan_requests(ratios: Ratios, outlay: Outlay, *, tries: int) -> Floats:
    """The requests of least expected cost; an exact dynamic programme over the values there may be."""
    return _plan_after(0.0, _build_stages(ratios, outlay, tries), ratios, outlay)


def plan_doubling(ratios: Ratios, outlay: Outlay) -> float:
    """The first request of least expected cost where each failure doubles."""
    return float(plan_requests(ratios, outlay, tries=1)[0])


def plan_from(first: float, ratios: Ratios, outlay: Outlay, *, tries: int) -> Floats:
    """This first request, and then the ones of least expected cost for when it was too small."""
    stages = _build_stages(ratios, outlay, tries - 1) if tries > 1 else []
    return np.append(first, _plan_after(first, stages, ratios, outlay))


def request_at_risk(ratios: Ratios, outlay: Outlay, *, risk: float, tries: int) -> Floats:
    """The least first request that is too small with at most this chance, and then the ones of least expected cost."""
    return plan_from(ratios.upper(risk), ratios, outlay, tries=tries)


def plan_for_widths(
    spread: Spread, outlay: Outlay, *, widths: Floats, tries: int, risk: float, least_cost: bool = True
) -> Floats:
    """A row of requests for each width of a spread.

    The first is too small with at most the chance ``risk``, and never below the prediction. It is the least that is
    so, or with ``least_cost`` a larger one where that costs less.

    Many widths share a few plans: the nearest one, at the same ranks of the spread. In between its neighbours it would
    mix plans that bet on different things, and cost more than either.
    """
    planned = _sort_distinct(widths)
    if len(planned) > _MOST_PLANS:
        planned = np.geomspace(planned[0], planned[-1], _MOST_PLANS)
    safe = max(spread.upper(risk), 0.0)
    plans = np.log([_plan_for_width(spread, outlay, float(width), tries, safe, least_cost) for width in planned])
    nearest = np.searchsorted(np.sqrt(planned[:-1] * planned[1:]), widths)
    return np.exp(plans[nearest] * (widths / planned[nearest])[:, None])


def _plan_for_width(spread: Spread, outlay: Outlay, width: float, tries: int, safe: float, least_cost: bool) -> Floats:
    """The plan whose first request is at least ``safe``, a log ratio in units of the width."""
    ratios, first = Ratios.of(spread, width=width), float(np.exp(min(width * safe, _FARTHEST)))
    cheapest = plan_requests(ratios, outlay, tries=tries) if least_cost else np.zeros(1)
    return cheapest if cheapest[0] >= first else plan_from(first, ratios, outlay, tries=tries)


def expected_cost(requests: ArrayLike, ratios: Ratios, outlay: Outlay) -> float:
    """What a job costs on average that is asked for like this, in multiples of the prediction."""
    planned = np.asarray(requests, dtype=float)
    before = np.append(0.0, planned[:-1])
    failed = ratios.exceeded(planned)
    tries = planned * (outlay.idle * ratios.exceeded(before) + (1 - outlay.idle) * failed) + outlay.retry_cost * failed
    used = (1 - outlay.idle) * float(ratios.values @ ratios.chances)
    return used + float(tries.sum() + _doubling_cost(planned[-1:], ratios, outlay)[0])


def chances_needed(requests: ArrayLike, ratios: Ratios) -> Floats:
    """The chance that each try is needed: that the one before was too small."""
    return ratios.exceeded(np.append(0.0, np.asarray(requests, dtype=float)[:-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """Where a try may go, and what each choice costs that fails: itself and all tries after it.

    Costs are weighed by the chance to get there. What is used is left out: every plan pays it.
    """

    requests: Floats
    cost: Floats

    def costs_after(self, floor: Floats, left: Floats, idle: float) -> Floats:
        """The expected cost of each choice (a column) once the floor (a row) was too small, with the chance left."""
        costs = idle * left[:, None] * self.requests + self.cost
        costs[self.requests <= floor[:, None]] = np.inf
        return costs


def _build_stages(ratios: Ratios, outlay: Outlay, tries: int) -> list[_Stage]:
    """A stage for each try, the first one first.

    Until the last, a request between two values costs more than the lower of them and fits no more often.
    The last also says where its doubles fall, so halves of values are choices as well.
    """
    last = _list_halves(ratios.values)
    paid = ((1 - outlay.idle) * last + outlay.retry_cost) * ratios.exceeded(last)
    stages = [_Stage(requests=last, cost=paid + _doubling_cost(last, ratios, outlay))]
    left = ratios.exceeded(ratios.values)
    for _ in range(tries - 1):
        after = stages[0].costs_after(ratios.values, left, outlay.idle).min(axis=1)
        cost = ((1 - outlay.idle) * ratios.values + outlay.retry_cost) * left + np.where(left > 0, after, 0)
        stages.insert(0, _Stage(requests=ratios.values, cost=cost))
    return stages


def _plan_after(floor: float, stages: list[_Stage], ratios: Ratios, outlay: Outlay) -> Floats:
    requests: list[float] = []
    for stage in stages:
        costs = stage.costs_after(np.array([floor]), ratios.exceeded([floor]), outlay.idle)[0]
        choice = int(np.argmin(costs))
        floor = float(stage.requests[choice]) if np.isfinite(costs[choice]) else 2 * floor
        requests.append(floor)
    return np.array(requests)


def _list_halves(values: Floats) -> Floats:
    """The values, their halves, quarters and so on, down to the least value."""
    halves = (values * 0.5 ** np.arange(_HALVINGS + 1)[:, None]).ravel()
    return _sort_distinct(halves[halves >= values[0]])


def _sort_distinct(values: Floats) -> Floats:
    """As ``np.unique``, which would import masked arrays: a tenth of the time of a prediction."""
    ordered = np.sort(values)
    return np.asarray(ordered[np.append(True, np.diff(ordered) > 0)])


def _doubling_cost(requests: Floats, ratios: Ratios, outlay: Outlay) -> Floats:
    """The expected cost of all tries after these when each failure doubles, without what is used."""
    _, doublings = np.frexp(ratios.values[-1] / requests.min())  # so many exceed the largest value
    tries = requests[:, None] * 2.0 ** np.arange(max(doublings, 0) + 1)
    left = ratios.exceeded(tries)
    costs = tries[:, 1:] * (outlay.idle * left[:, :-1] + (1 - outlay.idle) * left[:, 1:])
    return np.asarray((costs + outlay.retry_cost * left[:, 1:]).sum(axis=1))
