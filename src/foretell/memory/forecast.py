"""How much of a device's memory a step takes, with its uncertainty."""

import math
from dataclasses import dataclass

import numpy as np

from foretell.core.devices import Device
from foretell.core.prediction import Estimate
from foretell.memory.overheads import ContextSize, predict_overheads
from foretell.memory.usage import MemoryUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryForecast:
    """Bytes of the device as ``nvidia-smi`` shows them: what the allocator reserves, and the context of CUDA."""

    needed: Estimate
    context_bytes: int
    workspace_bytes: int  # of convolutions, inside of what is reserved
    quantiles: tuple[float, ...]  # of the need, in bytes, evenly spaced from the lowest to the highest

    def find_risk(self, usable_bytes: int) -> float:
        """The chance that the step does not fit."""
        above = sum(1 for each in self.quantiles if each > usable_bytes)
        return above / len(self.quantiles)


_SKEW = 3  # so that the middle is the value: an eighth of the way to the largest context
UNSEEN_SHARE = 0.1  # of the need, by which the upper bound is higher where operators may allocate unseen


def forecast(usage: MemoryUsage, device: Device | None, *, level: float) -> MemoryForecast:
    """The need of a step on a device; on a usual one if none is named.

    The lowest quantiles have the smallest context that is possible, the highest ones the largest.
    """
    overheads = predict_overheads(usage.trace, device)
    context = overheads.context
    reserved = usage.reserved_bytes + overheads.workspace_bytes
    value = float(reserved + context.value + usage.trace.outside_bytes)
    unseen = UNSEEN_SHARE if usage.trace.extensions else 0.0
    last = len(overheads.spread.quantiles) - 1
    quantiles = tuple(
        max(
            value * (math.exp(error) + unseen * place / last) + _find_offset(context, place / last),
            float(usage.allocated_bytes),
        )
        for place, error in enumerate(overheads.spread.quantiles)
    )
    chance = (1 - level) / 2
    needed = Estimate(
        value=value,
        low=min(value, float(np.quantile(quantiles, chance))),
        high=max(value, float(np.quantile(quantiles, 1 - chance))),
        level=level,
    )
    return MemoryForecast(
        needed=needed, context_bytes=context.value, workspace_bytes=overheads.workspace_bytes, quantiles=quantiles
    )


def _find_offset(context: ContextSize, share: float) -> float:
    """Bytes that the context differs from its value, from the least to the most: small ones are more likely."""
    return context.low + share**_SKEW * (context.high - context.low) - context.value
