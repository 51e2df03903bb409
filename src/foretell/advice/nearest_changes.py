"""What does not work, and the least change with which it would."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal

from foretell.advice.advise_results import Purchase, SiteAdvice, TrainingOffer
from foretell.advice.policy import Policy
from foretell.advice.training_candidates import Candidate, Obstacle
from foretell.advice.training_job import TrainingJob
from foretell.core.errors import InfeasibleError
from foretell.core.render.phrases import count, name_node
from foretell.core.units import render_bytes, render_duration, render_most_money

_SHOWN = 8
_NODES = 4
_LACKING, _LONG = "too little memory", "too long"
_CENT = Decimal("0.01")


def find_changes(obstacles: Sequence[Obstacle], candidates: Sequence[Candidate]) -> list[Obstacle]:
    """Each obstacle with the nearest allocation of its node type that works, or with what else would help."""
    return [
        replace(each, change=each.change or (_find_change(each, candidates) if each.divides else ""))
        for each in obstacles
    ]


def _find_change(obstacle: Obstacle, candidates: Sequence[Candidate]) -> str:
    own = [each for each in candidates if each.allocation.node_type == obstacle.allocation.node_type]
    gpus = obstacle.allocation.gpus * obstacle.allocation.nodes
    nearest = min(own, key=lambda each: abs(each.gpus - gpus), default=None)
    if nearest is not None:
        return f"{count(nearest.gpus, 'GPU')} of these work, by {nearest.choice.step.layout}"
    if not obstacle.lacking_bytes:
        return ""
    size = render_bytes(obstacle.lacking_bytes)
    *others, last = obstacle.remedies or ("a smaller model",)
    remedies = f"{', '.join(others)} or {last}" if others else last
    return f"It works with {size} less on each GPU: try {remedies}"


def describe_excess(
    offers: Sequence[TrainingOffer], job: TrainingJob, policy: Policy, purchase: Purchase | None
) -> str:
    """How far the limits are from what works, and what they would buy; bounds are compared with limits."""
    currency = offers[0].offer.currency
    in_time = [each for each in offers if policy.max_time_s is None or each.longest_s <= policy.max_time_s]
    payable = [each for each in offers if policy.max_cost is None or each.offer.cost_at_request <= policy.max_cost]
    lines = [f"nothing {policy.render(currency)}"]
    if policy.max_cost is not None and in_time:
        cheapest = min(in_time, key=lambda each: each.offer.cost_at_request)
        enough = cheapest.offer.cost_at_request.quantize(_CENT, rounding=ROUND_CEILING)
        lines.append(f"--max-cost {enough} allows {_name(cheapest)}")
    if policy.max_time_s is not None and payable:
        quickest = min(payable, key=lambda each: each.longest_s)
        lines.append(f"--max-time {_render_hours(quickest.longest_s)} allows {_name(quickest)}")
    if not in_time and not payable:
        quickest, cheapest = _find_extremes(offers)
        time, cost = render_duration(quickest.longest_s), render_most_money(cheapest.offer.cost_at_request, currency)
        lines.append(f"the quickest takes up to {time} ({_name(quickest)})")
        lines.append(f"the cheapest costs up to {cost} ({_name(cheapest)})")
    return "; ".join([*lines, _describe_purchase(purchase, job)])


def _find_extremes(offers: Sequence[TrainingOffer]) -> tuple[TrainingOffer, TrainingOffer]:
    quickest = min(offers, key=lambda each: each.longest_s)
    return quickest, min(offers, key=lambda each: each.offer.cost_at_request)


def _describe_purchase(purchase: Purchase | None, job: TrainingJob) -> str:
    if purchase is None:
        return f"the start alone takes up to {render_duration(job.startup.high)}: the limits buy no training"
    epochs = f"{purchase.epochs:,.0f}" if purchase.epochs >= 1 else f"{purchase.epochs:.2f}"
    whole = job.count_epochs(purchase.offer.candidate.gpus or 1)
    of = f" of {render_epochs(whole)}" if whole else ""
    return f"the limits buy {epochs}{of} epochs on {_name(purchase.offer)}"


def render_epochs(epochs: float) -> str:
    """``20,000``; ``0.5``, ``12.35``."""
    return f"{epochs:,.0f}" if epochs >= 1000 else f"{epochs:.4g}"


def _render_hours(seconds: float) -> str:
    return f"{seconds / 3600 + 0.05:.1f}h" if seconds >= 3600 else f"{seconds / 60 + 1:.0f}min"


def _name(offer: TrainingOffer) -> str:
    gpus = offer.candidate.gpus
    amount = count(gpus, "GPU") if gpus else count(offer.allocation.cores, "core")
    return f"{amount} of {name_node(offer.allocation)}"


def build_error(sites: Sequence[SiteAdvice]) -> InfeasibleError:
    """The error where no site has an offer within the limits: for each, why, and what is nearest."""
    lines = []
    for each in sites:
        lines.append(f"no allocation of site {each.site.name!r} can be picked: {each.problem}")
        lines += [f"  {line}" for line in list_obstacles(each.obstacles)]
    return InfeasibleError("\n".join(lines))


def list_obstacles(obstacles: Sequence[Obstacle], *, most: int = _SHOWN) -> list[str]:
    """A line for each reason, with the node types and counts of GPUs it is for; only as many as are read."""
    of_nodes: dict[tuple[str, str], list[Obstacle]] = {}
    for each in obstacles:
        if each.divides:
            kind = _LACKING if each.lacking_bytes else _LONG if each.elapsed_s else each.change or each.reason
            of_nodes.setdefault((name_node(each.allocation), kind), []).append(each)
    nodes_of: dict[str, list[str]] = {}
    for (node, _), group in of_nodes.items():
        nearest = min(group, key=lambda each: (each.lacking_bytes, each.elapsed_s))
        nodes_of.setdefault(_describe_reason(nearest), []).append(f"{node}{_describe_sizes(group)}")
    lines = [f"{_join(nodes)}: {reason}" for reason, nodes in nodes_of.items()]
    lines += _list_undivided([each for each in obstacles if not each.divides])
    left = len(lines) - most
    return [*lines[:most], *([f"and {count(left, 'other reason')}"] if left > 0 else [])]


def _list_undivided(obstacles: Sequence[Obstacle]) -> list[str]:
    """A line for each reason with the counts of GPUs, which are the same on all nodes."""
    counts: dict[str, set[int]] = {}
    for each in obstacles:
        counts.setdefault(each.reason, set()).add(each.allocation.gpus * each.allocation.nodes)
    return [
        f"{', '.join(map(str, sorted(of)))} {'GPU' if of == {1} else 'GPUs'}: {reason}" for reason, of in counts.items()
    ]


def _describe_reason(obstacle: Obstacle) -> str:
    return f"{obstacle.reason}. {obstacle.change}" if obstacle.change else obstacle.reason


def _describe_sizes(group: Sequence[Obstacle]) -> str:
    """The counts of GPUs, where others of the node type may work."""
    counts = sorted({each.allocation.gpus * each.allocation.nodes for each in group})
    if not (group[-1].lacking_bytes or group[-1].elapsed_s or group[-1].change) or not counts[0]:
        return ""
    if counts == [1]:
        return " with 1 GPU"
    return f" with {counts[0]} GPUs" if len(counts) == 1 else f" with {counts[0]} to {counts[-1]} GPUs"


def _join(nodes: Sequence[str]) -> str:
    left = len(nodes) - _NODES
    return ", ".join(nodes[:_NODES]) + (f" and {left} more" if left > 0 else "")
