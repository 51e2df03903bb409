"""The time of each operator of a step on one worker's device, for the timeline of distributed training."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretell.core.devices import Device
from foretell.core.errors import NotFoundError
from foretell.core.workload import Floats, Workload
from foretell.steps import get_method
from foretell.steps.step_predictor import find_step_predictor


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTimes:
    """The time of each operator on one worker, and for how much of it the device is busy.

    ``guess`` is a warning where the times are those of another device.
    """

    operator_s: Floats
    busy_s: Floats | None
    gpu: bool
    guess: str = ""


def predict_operator_times(workload: Workload, device: str, *, figures: Device | None, learned: Path) -> OperatorTimes:
    """The times of a step's operators on a device.

    Raises:
        NotFoundError: Neither the device's times nor its figures are known.
    """
    try:
        model = find_step_predictor(device, learned=learned)
    except NotFoundError:
        if figures is None:
            raise
        return _guess_operators(workload, figures)
    gpu = model.device.kind == "gpu"
    times = model.predict(workload)
    return OperatorTimes(
        operator_s=np.asarray(times.kernel_s + times.gap_s),
        busy_s=times.kernel_s if gpu else None,
        gpu=gpu,
        guess=_describe_guess(model.device) if times.main_evidence in ("similar", "figures") else "",
    )


def _guess_operators(workload: Workload, figures: Device) -> OperatorTimes:
    """By a device's public figures."""
    gpu = figures.kind == "gpu"
    model = get_method("kernels" if gpu else "roofline").from_figures(figures)
    assert model is not None
    times = model.predict([workload])[0]
    return OperatorTimes(
        operator_s=np.asarray(times.kernel_s + times.gap_s),
        busy_s=times.kernel_s if gpu else None,
        gpu=gpu,
        guess=_describe_guess(figures),
    )


def _describe_guess(device: Device) -> str:
    how = "operator times come from its figures"
    if device.kind == "gpu":
        how += " and from the kernels of other devices"
    return f"Times of {device.name} were not measured: {how}."


def find_device_kind(device: str, *, figures: Device | None, learned: Path) -> str:
    """Whether a device is a ``cpu`` or a ``gpu``.

    Raises:
        NotFoundError: Neither the device's times nor its figures are known.
    """
    return figures.kind if figures else find_step_predictor(device, learned=learned).device.kind
