"""Predicts the time of a training step on a device from its operators."""

from importlib import import_module
from typing import TYPE_CHECKING

from foretell.core.errors import NotFoundError

if TYPE_CHECKING:
    from foretell.steps._base import StepModel

# Each method of prediction and its class, which is imported when it is used.
METHODS = {
    "kernels": "foretell.steps.kernels.step_times:KernelStepModel",
    "replay": "foretell.steps.replay:ReplayModel",
    "serial": "foretell.steps.serial_replay:SerialModel",
    "ets": "foretell.steps.ets:EtsModel",
    "regression": "foretell.steps.baselines:OperatorRegressionModel",
    "roofline": "foretell.steps.baselines:RooflineModel",
    "paleo": "foretell.steps.baselines:PaleoModel",
    "totals": "foretell.steps.baselines:TotalsModel",
}

DEFAULT_METHODS = ("kernels", "replay", "serial")  # of GPUs, of GPUs learned by their user, and of CPUs


def get_method(name: str) -> "type[StepModel]":
    """The class of a method.

    Raises:
        NotFoundError: There is no such method.
    """
    if name not in METHODS:
        raise NotFoundError("method", name, known=METHODS)
    module, _, class_name = METHODS[name].partition(":")
    found: type[StepModel] = getattr(import_module(module), class_name)
    return found
