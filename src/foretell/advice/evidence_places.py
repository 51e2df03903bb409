"""Predictions from code for places where runs were made and that no offer has, so that they can be compared."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from foretell.advice.cpu_training import find_cpu_nodes
from foretell.advice.evidence_errors import StepPlace
from foretell.advice.evidence_values import LEVEL, PlacedStep
from foretell.advice.training_nodes import CannotTrainError
from foretell.core.errors import ForetellError
from foretell.core.site import NodeType
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
    """Predicts the recorded step, which has so many examples, on one GPU of any device, or on cores of a CPU.

    ``read`` gives the step with another batch, where that can be read, as of a model.
    """

    @cache
    def predict(place: StepPlace) -> PlacedStep | None:
        if place.gpus != 1:
            return None
        try:
            step = workload if place.batch in (None, batch) else read(place.batch or batch)
            return _predict(place, step, learned, level) if step is not None else None
        except (ForetellError, CannotTrainError):  # no model of that device, or it lacks the precision
            return None

    return predict


def is_known(estimate: StepEstimate) -> bool:
    """Whether most of a step is predicted from whole networks that were measured on its device, or learned there."""
    return not estimate.evidence or estimate.evidence.get(str(Evidence.MEASURED), 0.0) >= _KNOWN


def _predict(place: StepPlace, workload: Workload, learned: Path | None, level: float) -> PlacedStep:
    from foretell.steps.step_predictor import find_step_predictor

    if place.cores is not None:
        node = NodeType(name="", partition="", cores=place.cores, memory_bytes=1, cpu_model=place.device)
        nodes = find_cpu_nodes(node, learned=learned)
        choice = nodes.predict(workload, cores=place.cores, level=level)
        return PlacedStep(place=place, estimate=choice.step.step, known=nodes.exact)
    estimate = find_step_predictor(place.device, learned=learned).predict(workload, level=level)
    return PlacedStep(place=place, estimate=estimate.iteration, known=is_known(estimate))
