"""How much of a device's memory a step takes, with its uncertainty."""

from dataclasses import dataclass

from foretell.core.devices import Device
from foretell.core.prediction import Estimate
from foretell.memory.usage import MemoryUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryForecast:
    """Bytes of the device as ``nvidia-smi`` shows them: what the allocator reserves, and the context of CUDA."""

    needed: Estimate
    context_bytes: int
    quantiles: tuple[float, ...]  # of the need, in bytes, evenly spaced from the lowest to the highest

    def find_risk(self, usable_bytes: int) -> float:
        """The chance that the step does not fit."""
        above = sum(1 for each in self.quantiles if each > usable_bytes)
        return above / len(self.quantiles)


_CONTEXT = 500 * 2**20
_SPREAD = 0.1


def forecast(usage: MemoryUsage, device: Device | None, *, level: float) -> MemoryForecast:
    """The need of a step on a device; on a usual one if none is named."""
    value = float(usage.reserved_bytes + usage.trace.outside_bytes + _CONTEXT)
    quantiles = tuple(value * (1 + _SPREAD * (each / 50 - 1)) for each in range(101))
    low, high = quantiles[5], quantiles[95]
    return MemoryForecast(
        needed=Estimate(value=value, low=low, high=high, level=level), context_bytes=_CONTEXT, quantiles=quantiles
    )
