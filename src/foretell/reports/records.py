"""What ``--json`` prints and what runs are exported as: plain data, with money as a number of at most six decimals."""

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from foretell.entities.execution import Execution
from foretell.entities.plan import CampaignResult, Plan
from foretell.entities.prediction import Offer, Recommendation
from foretell.entities.records import to_record
from foretell.entities.run import JOB_COLUMNS, LAST_COLUMNS, RESOURCE_COLUMNS, USAGE_COLUMNS, Machine, Run, RunSpec
from foretell.entities.site import NodeType, Site

if TYPE_CHECKING:
    import pandas as pd

Record = dict[str, Any]

_MACHINE = tuple(name for name in Machine.__dataclass_fields__ if name != "extra")
_OWN_COLUMNS = frozenset({*RESOURCE_COLUMNS, *USAGE_COLUMNS, *JOB_COLUMNS, *LAST_COLUMNS})


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


def build_plan_record(plan: Plan) -> Record:
    return build_record(plan) | {"specs": [_build_spec_record(spec) for spec in plan.specs], "runs": len(plan.specs)}


def build_result_record(result: CampaignResult) -> Record:
    return build_record(result) | {"failures": [build_run_record(run) for run in result.failures]}


def build_site_record(site: Site) -> Record:
    return build_record(site) | {"node_types": [_build_node_record(node) for node in site.node_types]}


def build_run_record(run: Run) -> Record:
    """A run as one flat row: parameters first, then what it had, what it used, and what came of it.

    A parameter that is named like one of our own columns becomes ``parameter_NAME``.
    """
    allocation, machine = run.spec.allocation, run.machine
    row: Record = {_name_column(name): value for name, value in run.spec.parameters.items()}
    row |= {name: getattr(allocation, name) for name in RESOURCE_COLUMNS}
    row |= {name: getattr(run.usage, name, None) for name in USAGE_COLUMNS}
    row |= {f"phase_{name}": value for name, value in run.phases.items()}
    row |= {f"machine_{name}": getattr(machine, name) for name in _MACHINE}
    row |= {f"machine_{name}": value for name, value in machine.extra.items() if name not in _MACHINE}
    row |= {"state": run.state, "exit_code": run.exit_code, "reason": run.reason, "source": run.source}
    row |= {"scale": run.spec.scale, "repetition": run.spec.repetition, "app": run.spec.app, "id": run.id}
    row |= {"started_at": run.started_at, "ended_at": run.ended_at, "job_id": run.job_id}
    return {_encodable(str(name)): _encodable(to_record(value)) for name, value in row.items()}


def build_runs_frame(runs: Iterable[Run]) -> "pd.DataFrame":
    """Runs as a table for export: parameters, resources, usage, ``phase_`` and ``machine_`` columns, then the rest."""
    import pandas as pd  # most records need no tables

    rows = [build_run_record(run) for run in runs]
    return pd.DataFrame(rows, columns=_order_columns(name for row in rows for name in row))


def _order_columns(names: Iterable[str]) -> list[str]:
    """Columns of one kind together and in the same order, however the runs differ."""
    found = dict.fromkeys(names)
    phases = [name for name in found if name.startswith("phase_")]
    machine = [name for name in found if name.startswith("machine_")]
    own = dict.fromkeys((*RESOURCE_COLUMNS, *USAGE_COLUMNS, *phases, *machine, *JOB_COLUMNS, *LAST_COLUMNS))
    return [*(name for name in found if name not in own), *own]


def _encodable(value: Any) -> Any:
    """Text that a file can hold: half of a surrogate pair is spelled out."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


def _name_column(name: str) -> str:
    taken = name in _OWN_COLUMNS or name.startswith(("phase_", "machine_"))
    return f"parameter_{name}" if taken else name


def _build_spec_record(spec: RunSpec) -> Record:
    return {"id": spec.id} | build_record(spec)


def _build_node_record(node: NodeType) -> Record:
    prices = ("price_per_core_h", "price_per_gpu_h", "price_per_node_h")
    return build_record(node) | {name: render_charge(getattr(node, name)) for name in prices}


def render_charge(amount: Decimal) -> float:
    return round(float(amount), 6)


def build_record(value: object) -> Record:
    record: Mapping[str, Any] = to_record(value)
    return dict(record)
