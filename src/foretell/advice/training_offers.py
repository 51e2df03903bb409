"""From the candidates of a site to priced and ranked offers, the pick and the runner-up."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from foretell.advice.advise_results import Purchase, RunnerUp, SiteAdvice, TrainingOffer
from foretell.advice.nearest_changes import describe_excess, find_changes
from foretell.advice.offers import Choice, Floats, Survey, explain_pick, survey, warn_if_cut
from foretell.advice.policy import Fastest, Policy
from foretell.advice.training_candidates import Candidate, Obstacle
from foretell.advice.training_job import TrainingJob
from foretell.core.prediction import Estimate, Prediction, Request
from foretell.core.prices import SECONDS_PER_HOUR, price_per_hour
from foretell.core.site import Site

_NORMAL = NormalDist()
_ALIKE = 0.01  # of the time
_AS_QUICK = 1.05  # times as long as the quickest: it is not worth a higher cost
_MOST_JOBS = 10  # in a row: more are no remedy


def build_site_advice(
    site: Site, found: Sequence[Candidate | Obstacle], job: TrainingJob, policy: Policy, *, risk: float
) -> SiteAdvice:
    """The offers of a site from what was tried there."""
    candidates = [each for each in found if isinstance(each, Candidate)]
    choice = _build_choice(site, candidates, job, risk=risk)
    ranked = survey(choice, policy)
    offers = put_cheap_first(
        [
            TrainingOffer(offer=offer, candidate=candidates[row], allowed=allowed)
            for offer, row, allowed in zip(ranked.offers, ranked.rows, ranked.allowed, strict=True)
        ],
        policy,
        risk=risk,
    )
    obstacles = find_changes([each for each in found if isinstance(each, Obstacle)], candidates)
    obstacles += _list_too_long(site, ranked, candidates)
    if offers and offers[0].allowed:
        return SiteAdvice(
            site=site,
            offers=offers,
            obstacles=tuple(obstacles),
            picked=offers[0],
            why=_explain(offers, policy)
            + warn_if_cut(offers[0].offer, _build_prediction(offers[0].candidate, risk=risk).request),
            runner_up=find_runner_up(offers),
        )
    purchase = find_purchase(offers, job, policy)
    problem = describe_excess(offers, job, policy, purchase) if offers else "nothing works there"
    return SiteAdvice(site=site, offers=offers, obstacles=tuple(obstacles), problem=problem, purchase=purchase)


def put_cheap_first(offers: Sequence[TrainingOffer], policy: Policy, *, risk: float) -> tuple[TrainingOffer, ...]:
    """By the fastest policy: those about as quick as the quickest first, by cost; some ms are worth no money."""

    def is_as_quick(each: TrainingOffer) -> bool:
        asked_s = each.allocation.walltime_s or math.inf
        whole = asked_s >= find_walltime(each.candidate.time.total, risk)
        return each.allowed and whole and offers[0].time_s <= each.time_s <= _AS_QUICK * offers[0].time_s

    if not offers or policy.best != Fastest.best or not is_as_quick(offers[0]):
        return tuple(offers)
    quick = sorted(filter(is_as_quick, offers), key=lambda each: (each.offer.cost, each.time_s))
    return (*quick, *(each for each in offers if not is_as_quick(each)))


def _build_choice(site: Site, candidates: Sequence[Candidate], job: TrainingJob, *, risk: float) -> Choice:
    def find_risk(walltime_s: Floats, _memory: Floats) -> Floats:
        times = (find_time_risk(each.time.total, float(s)) for each, s in zip(candidates, walltime_s, strict=True))
        return np.array([1 - (1 - late) * (1 - each.choice.risk) for each, late in zip(candidates, times, strict=True)])

    return Choice(
        app=job.name,
        site=site,
        options=[(each.node, each.allocation) for each in candidates],
        predictions=[_build_prediction(each, risk=risk) for each in candidates],
        measured=[False] * len(candidates),
        risk=find_risk,
    )


def _build_prediction(candidate: Candidate, *, risk: float) -> Prediction:
    total = candidate.time.total
    return Prediction(
        parameters={"layout": str(candidate.choice.step.layout), "batch": candidate.batch},
        allocation=candidate.allocation,
        elapsed_s=total,
        peak_memory_bytes=candidate.host,
        request=Request(walltime_s=find_walltime(total, risk), memory_bytes=candidate.memory_bytes),
        basic=total,
        phases=candidate.time.phases,
        warnings=candidate.warnings,
    )


def find_walltime(total: Estimate, risk: float) -> float:
    """Seconds that a job exceeds with this chance, as errors of times are about log-normal."""
    return total.value * math.exp(_find_spread(total) * _NORMAL.inv_cdf(1 - risk))


def find_time_risk(total: Estimate, walltime_s: float) -> float:
    """The chance that a job takes longer."""
    spread = _find_spread(total)
    if spread == 0:
        return float(walltime_s < total.value)
    return 1 - _NORMAL.cdf(math.log(walltime_s / total.value) / spread)


def _find_spread(total: Estimate) -> float:
    """The standard deviation of the logarithm, from the upper bound."""
    return math.log(max(1.0, total.high / total.value)) / _NORMAL.inv_cdf((1 + total.level) / 2)


def _list_too_long(site: Site, ranked: Survey, candidates: Sequence[Candidate]) -> list[Obstacle]:
    """Allocations on which the training takes longer than a job may, or needs more memory than a node has."""
    return [
        Obstacle(
            site=site.name,
            allocation=rejection.allocation,
            reason=rejection.reason,
            change=_describe_parts(candidates[row]),
            elapsed_s=_find_excess(candidates[row]),
        )
        for rejection, row in zip(ranked.rejections, ranked.rejected, strict=True)
    ]


def _find_excess(candidate: Candidate) -> float:
    """The expected time, where it is longer than a job may be."""
    limit, elapsed_s = candidate.node.max_walltime_s, candidate.time.total.value
    return elapsed_s if limit is not None and elapsed_s > limit else 0.0


def _describe_parts(candidate: Candidate) -> str:
    limit = candidate.node.max_walltime_s
    if limit is None or not _find_excess(candidate):
        return ""
    jobs = math.ceil(candidate.time.total.high / limit)
    return f"{jobs} jobs in a row that continue from checkpoints" if jobs <= _MOST_JOBS else ""


def _explain(offers: Sequence[TrainingOffer], policy: Policy) -> str:
    """Why the first is picked, which is not the quickest where that is worth no higher cost."""
    allowed = [each.offer for each in offers if each.allowed]
    quickest_s = min(each.prediction.elapsed_s.value for each in allowed)
    why = explain_pick(allowed, policy)
    if policy.best == Fastest.best and allowed[0].prediction.elapsed_s.value > quickest_s:
        return f"the cheapest that takes at most {100 * (_AS_QUICK - 1):.0f} % longer than {why}"
    return why


def find_runner_up(offers: Sequence[TrainingOffer]) -> RunnerUp | None:
    """The nearest offer that is better in what the pick is not; else the best on other nodes, else the second."""
    picked, *rest = [each for each in offers if each.allowed]
    if not rest:
        return None
    front = [each for each in rest if each.offer.pareto and abs(each.time_s / picked.time_s - 1) > _ALIKE]
    nearest = min(front, key=lambda each: abs(math.log(each.time_s / picked.time_s)), default=None)
    elsewhere = (each for each in rest if each.allocation.node_type != picked.allocation.node_type)
    other = nearest or next(elsewhere, rest[0])
    return RunnerUp(
        offer=other,
        time_change_s=other.time_s - picked.time_s,
        cost_change=other.offer.cost - picked.offer.cost,
    )


def find_purchase(offers: Sequence[TrainingOffer], job: TrainingJob, policy: Policy) -> Purchase | None:
    """The most epochs that the limits buy anywhere."""
    bought = [
        Purchase(offer=each, epochs=job.buy_epochs(each.candidate.time, _find_affordable_s(each, policy)))
        for each in offers
    ]
    best = max(bought, key=lambda each: each.epochs, default=None)
    return best if best is not None and best.epochs > 0 else None


def _find_affordable_s(offer: TrainingOffer, policy: Policy) -> float:
    """How long a job may run within the limits of time, cost and the node type."""
    price = price_per_hour(offer.candidate.node, offer.allocation)
    limits = [policy.max_time_s, offer.candidate.node.max_walltime_s]
    limits += [float(policy.max_cost / price) * SECONDS_PER_HOUR] if policy.max_cost is not None and price else []
    return min((each for each in limits if each is not None), default=math.inf)


def compare_sites(found: Sequence[SiteAdvice], policy: Policy) -> list[SiteAdvice]:
    """The sites, best first: those with a pick, in the order of the policy among those of the first's currency."""
    currency = found[0].site.currency

    def rank(each: SiteAdvice) -> tuple[bool, bool, float, float]:
        if each.picked is None:
            return True, False, 0.0, 0.0
        time_s, cost = np.array([each.picked.time_s]), np.array([float(each.picked.offer.cost)])
        first, second = policy.rank(time_s=time_s, cost=cost)
        return False, each.site.currency != currency, float(first[0]), float(second[0])

    ranked = sorted(found, key=rank)
    quick = _list_quick_sites(ranked, policy)
    return [ranked[place] for place in (*quick, *(place for place in range(len(ranked)) if place not in quick))]


def _list_quick_sites(ranked: Sequence[SiteAdvice], policy: Policy) -> list[int]:
    """By the fastest policy: the places of those about as quick as the first, in its currency, by cost."""
    first = ranked[0]
    if first.picked is None or policy.best != Fastest.best:
        return []
    longest_s = _AS_QUICK * first.picked.time_s
    costs = {
        place: each.picked.offer.cost
        for place, each in enumerate(ranked)
        if each.picked and each.site.currency == first.site.currency and each.picked.time_s <= longest_s
    }
    return sorted(costs, key=costs.__getitem__)
