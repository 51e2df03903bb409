"""Which ways to predict a training step are compared, and what one of them may know beside."""

import importlib
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from foretell.core.devices import Device, get_device
from foretell.core.workload import MeasuredStep
from foretell.steps._base import StepModel

METHODS = {
    "replay": "foretell.steps.replay:ReplayModel",
    "ets": "foretell.steps.ets:EtsModel",
    "regression": "foretell.steps.baselines:OperatorRegressionModel",
    "roofline": "foretell.steps.baselines:RooflineModel",
    "paleo": "foretell.steps.baselines:PaleoModel",
    "totals": "foretell.steps.baselines:TotalsModel",
}
_WITH_DEVICE = frozenset({"replay"})  # methods that start from a device's figures


@runtime_checkable
class Refinable(Protocol):
    """A fitted model that can take in measured steps of the very model that is asked about."""

    def refine(self, profiles: Sequence[MeasuredStep]) -> StepModel:
        """A model that knows them too; this one stays as it is."""
        ...


@runtime_checkable
class Transferable(Protocol):
    """A model fitted on one device that can answer for another."""

    def transfer(self, device: Device, profiles: Sequence[MeasuredStep]) -> StepModel:
        """A model of the other device, from its figures and the steps that were measured on it, if any."""
        ...


def list_methods() -> list[str]:
    """The methods that are there."""
    return list(METHODS)


def choose_methods(text: str | None) -> list[str]:
    """The methods that are asked for, all unless said.

    Raises:
        ValueError: if there is no such method.
    """
    known = list_methods()
    asked = [name.strip() for name in text.split(",")] if text else known
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise ValueError(f"no method named {unknown[0]!r}; known methods: {', '.join(known)}")
    return asked


def make_model(name: str, gpu: str) -> StepModel:
    """A model as its method has it by default.

    Raises:
        NotFoundError: if the method needs figures of the GPU and there are none.
    """
    module, _, class_name = METHODS[name].partition(":")
    kind = getattr(importlib.import_module(module), class_name)
    model = kind(get_device(gpu)) if name in _WITH_DEVICE else kind()
    assert isinstance(model, StepModel)
    return model
