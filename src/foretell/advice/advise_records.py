"""Advice for a training as plain values, for JSON."""

from typing import Any

from foretell.advice.advise_results import Advice, RunnerUp, SiteAdvice, TrainingOffer
from foretell.advice.evidence_next_run import NextRun
from foretell.advice.evidence_render import describe_evidence, describe_next_run
from foretell.advice.render import build_offer_record
from foretell.advice.training_job import TrainingJob
from foretell.core.serialization import Record, build_record, render_charge, to_record
from foretell.distributed.layout_search import LayoutChoice


def build_advice_record(advice: Advice) -> Record:
    """The job, the pick, every offer of each site, and what does not work."""
    return {
        "name": advice.job.name,
        "job": _build_job(advice.job),
        "limits": {
            "max_time_s": advice.policy.max_time_s,
            "max_cost": None if advice.policy.max_cost is None else render_charge(advice.policy.max_cost),
        },
        "level": advice.level,
        "risk": advice.risk,
        "site": advice.best.site.name,
        "picked": build_training_offer_record(advice.picked),
        "why": advice.best.why,
        "runner_up": _build_runner_up(advice.best.runner_up),
        "sites": [_build_site(site) for site in advice.sites],
        "runs": _build_runs(advice),
        "next_run": _build_next_run(advice.next_run, advice.best.site.currency),
        "made_run": None if advice.made is None else advice.made.run.id,
        "before": None if advice.before is None else _build_first_answer(advice.before),
        "warnings": to_record(advice.warnings),
    }


def _build_runs(advice: Advice) -> dict[str, Any] | None:
    combined = advice.combined
    if combined is None:
        return None
    return {
        "used": to_record(combined.used),
        "unused": to_record(combined.unused),
        "surprise": combined.surprise,
        "startup": to_record(combined.start_up),
        "step_before": to_record(combined.before[advice.number].estimate),
        "step_after": to_record(combined.after[advice.number]),
        "changes": list(describe_evidence(combined, advice.number)),
    }


def _build_next_run(run: NextRun | None, currency: str) -> dict[str, Any] | None:
    """The run that would narrow the interval of the pick most."""
    if run is None:
        return None
    return {
        "place": to_record(run.place),
        "here": run.candidate.here,
        "steps": run.steps,
        "seconds": run.seconds,
        "cost": run.cost,
        "before": to_record(run.before),
        "after": to_record(run.after),
        "description": describe_next_run(run, currency),
    }


def _build_first_answer(advice: Advice) -> dict[str, Any]:
    """The answer before a run was made."""
    return {
        "site": advice.best.site.name,
        "picked": build_training_offer_record(advice.picked),
        "runs": _build_runs(advice),
        "next_run": _build_next_run(advice.next_run, advice.best.site.currency),
    }


def _build_job(job: TrainingJob) -> dict[str, Any]:
    return build_record(job) | {"command": list(job.command)}


def _build_site(advice: SiteAdvice) -> dict[str, Any]:
    purchase = advice.purchase
    return {
        "site": advice.site.name,
        "currency": advice.site.currency,
        "picked": None if advice.picked is None else advice.offers.index(advice.picked),
        "problem": advice.problem,
        "buys_epochs": None if purchase is None else purchase.epochs,
        "offers": [build_training_offer_record(offer) for offer in advice.offers],
        "obstacles": to_record(advice.obstacles),
    }


def build_training_offer_record(offer: TrainingOffer) -> dict[str, Any]:
    """An offer with its layout and the parts of its time."""
    candidate = offer.candidate
    return build_offer_record(offer.offer) | {
        "allowed": offer.allowed,
        "gpus": candidate.gpus,
        "batch": candidate.batch,
        "steps": candidate.time.steps,
        "step": to_record(candidate.step),
        "epoch": to_record(candidate.time.epoch),
        "waits_for_data": candidate.time.waits_for_data,
        **_build_layout(candidate.choice),
        "other_layouts": [_build_layout(choice) for choice in candidate.others],
    }


def _build_layout(choice: LayoutChoice) -> dict[str, Any]:
    step = choice.step
    return {
        "layout": str(step.layout),
        "device": step.topology.device.name,
        "code_step": to_record(step.step),
        "parts": dict(step.parts),
        "micro_batches": step.micro_batches,
        "mfu": step.mfu,
        "gpu_memory_bytes": to_record(choice.needed),
        "gpu_memory_risk": choice.risk,
    }


def _build_runner_up(runner_up: RunnerUp | None) -> dict[str, Any] | None:
    if runner_up is None:
        return None
    return {
        "offer": build_training_offer_record(runner_up.offer),
        "time_change_s": runner_up.time_change_s,
        "cost_change": render_charge(runner_up.cost_change),
    }
