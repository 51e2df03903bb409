"""What ``foretell consumption scale --json`` prints."""

from collections.abc import Sequence
from typing import Any

from foretell.entities.placed import PlacedPrediction, render_placement
from foretell.entities.records import to_record
from foretell.reports.words_placed import describe_choice, find_choice, find_efficiencies, find_gpu_hours

Record = dict[str, Any]


def build_placements_record(told: Sequence[PlacedPrediction], *, efficiency: float) -> Record:
    """Seconds, examples a second, what each GPU does of what it does on the least; ``choice`` is what to ask for."""
    first, choice = told[0].step, find_choice(told, efficiency)
    return {
        "workload": first.workload,
        "cluster": first.cluster,
        "batch": first.batch,
        "efficiency_wanted": efficiency,
        "choice": None if choice is None else render_placement(choice.step.gpus),
        "why": describe_choice(told, efficiency),
        "placements": [
            _build_placement(each, share) for each, share in zip(told, find_efficiencies(told), strict=True)
        ],
    }


def _build_placement(told: PlacedPrediction, efficiency: float) -> Record:
    return {
        "placement": render_placement(told.step.gpus),
        "gpus": told.count,
        "nodes": len(told.step.gpus),
        "step_s": to_record(told.step_s),
        "compute_s": told.compute_s,
        "exposed_s": told.exposed_s,
        "exposed_share": told.waits,
        "examples_per_s": told.examples_per_s,
        "efficiency": efficiency,
        "gpu_hours_per_million": find_gpu_hours(told),
        "measured_s": told.measured_s,
        "doubts": list(told.doubts),
    }
