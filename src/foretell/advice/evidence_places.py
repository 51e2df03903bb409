"""Predictions from code for places where runs were made and that no offer has, so that they can be compared."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from foretell.advice.evidence_errors import StepPlace
from foretell.advice.evidence_values import LEVEL, PlacedStep
from foretell.core.errors import ForetellError
from foretell.core.workload import StepEstimate, Workload
from foretell.steps.kernels._base import Evidence

_KNOWN = 0.5  # of the work: measured on such a device


def build_place_predictor(
    workload: Workload,
    *,
    batch: int,
    learned: Path | None = None,
    level: float = LEVEL,
    read: Callable[[int], Workload | None] = lambda _: None,
) -> Callable[[StepPlace], PlacedStep | None]:
    """Predicts the recorded step, which has so many examples, on one GPU of any device.

    ``read`` gives the step with another batch, where that can be read, as of a model.
    """

    @cache
    def predict(place: StepPlace) -> PlacedStep | None:
        if place.gpus != 1 or place.cores not in (None, 1):
            return None
        step = workload if place.batch in (None, batch) else read(place.batch or batch)
        try:
            estimate = _predict(step, place.device, learned, level) if step is not None else None
        except ForetellError:  # no model of that device, or it lacks the precision
            return None
        return _place(place, estimate) if estimate is not None else None

    return predict


def is_known(estimate: StepEstimate) -> bool:
    """Whether most of a step is predicted from whole networks that were measured on its device, or learned there."""
    return not estimate.evidence or estimate.evidence.get(str(Evidence.MEASURED), 0.0) >= _KNOWN


def _predict(workload: Workload, device: str, learned: Path | None, level: float) -> StepEstimate:
    from foretell.steps.step_predictor import find_step_predictor

    return find_step_predictor(device, learned=learned).predict(workload, level=level)


def _place(place: StepPlace, estimate: StepEstimate) -> PlacedStep:
    return PlacedStep(place=place, estimate=estimate.iteration, known=is_known(estimate))
