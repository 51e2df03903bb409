"""What ``--json`` prints and what runs are exported as: plain data, with money as a number of at most six decimals."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from foretell.apps.render import build_run_record
from foretell.entities.execution import Execution
from foretell.entities.prediction import Offer, Recommendation
from foretell.entities.records import to_record
from foretell.entities.site import NodeType, Site

Record = dict[str, Any]


def render_json(value: Any) -> str:
    """Valid JSON of a record or of any of our values: what is not finite becomes ``null``."""
    return json.dumps(to_record(value), indent=2, allow_nan=False)


def build_recommendation_record(recommendation: Recommendation) -> Record:
    """The offer picked and why, every offer best first, and what cannot work."""
    return {
        "app": recommendation.app,
        "picked": build_offer_record(recommendation.picked),
        "why": recommendation.why,
        "offers": [build_offer_record(offer) for offer in recommendation.offers],
        "rejections": to_record(recommendation.rejections),
    }


def build_offer_record(offer: Offer) -> Record:
    return build_record(offer) | {
        "cost": render_charge(offer.cost),
        "cost_at_request": render_charge(offer.cost_at_request),
    }


def build_execution_record(done: Execution) -> Record:
    """What was offered, each attempt with its request, run and bill, and what was paid in all."""
    return {
        "app": done.app,
        "completed": done.completed,
        "why_stopped": done.why_stopped,
        "offer": build_offer_record(done.offer),
        "why": done.why,
        "attempts": [
            {
                "asked": to_record(attempt.asked),
                "run": build_run_record(attempt.run),
                "bill": render_charge(attempt.bill),
            }
            for attempt in done.attempts
        ],
        "paid": render_charge(done.paid),
        "currency": done.offer.currency,
        "by_accounting": done.by_accounting,
    }


def build_site_record(site: Site) -> Record:
    return build_record(site) | {"node_types": [_build_node_record(node) for node in site.node_types]}


def _build_node_record(node: NodeType) -> Record:
    prices = ("price_per_core_h", "price_per_gpu_h", "price_per_node_h")
    return build_record(node) | {name: render_charge(getattr(node, name)) for name in prices}


def render_charge(amount: Decimal) -> float:
    return round(float(amount), 6)


def build_record(value: object) -> Record:
    record: Mapping[str, Any] = to_record(value)
    return dict(record)
