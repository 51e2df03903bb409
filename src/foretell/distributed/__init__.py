"""A training step on many devices: its timeline, and what it consumes."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from foretell.core.errors import NotFoundError

if TYPE_CHECKING:
    from foretell.distributed._base import ConsumptionModel

DEFAULT_METHOD = "timeline"
METHODS: Mapping[str, str] = {
    DEFAULT_METHOD: "foretell.distributed.timeline_model:TimelineModel",
    "driple": "foretell.distributed.driple:DripleModel",
    "totals": "foretell.distributed.consumption_baselines:TotalsModel",
    "bandwidth": "foretell.distributed.consumption_baselines:BandwidthModel",
}


def get_method(name: str) -> "type[ConsumptionModel]":
    """The model class of a method, imported when it is asked for.

    Raises:
        NotFoundError: There is no such method.
    """
    if name not in METHODS:
        raise NotFoundError("method", name, known=METHODS)
    module, _, attribute = METHODS[name].partition(":")
    model: type[ConsumptionModel] = getattr(import_module(module), attribute)
    return model
