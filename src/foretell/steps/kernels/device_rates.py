"""What a device can do at most in a type of numbers, with usual figures where its own are unknown."""

import math
from dataclasses import dataclass

from foretell.core.devices import Device

# A type that a device lacks is computed in another one.
_INSTEAD = {"fp8": ("fp8", "bf16", "fp16"), "bf16": ("bf16",), "fp16": ("fp16",), "tf32": ("tf32",), "fp32": ()}
_ITEM = {"fp8": 1, "bf16": 2, "fp16": 2}
_CLASS = {"bf16": "half", "fp16": "half"}

# Usual figures of a GPU of these years, for those that are unknown.
_CLOCK_HZ = 1.7e9
_L2_A_UNIT = 300e3
_WATTS_A_PEAK = 1e-12

_LEAST_WATTS, _MOST_WATTS = 0.2, 20.0
_MOST_SHARE = 1.1  # devices may exceed the clock that their peak is stated for


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """A device computing in one type."""

    flops: float  # a second, of all units
    bandwidth: float
    units: int
    l2_bytes: float
    clock_hz: float
    watts_a_flop: float
    item: int  # bytes of an input
    item_out: int
    matrix: bool  # by matrix units
    cast: bool  # the inputs are converted before

    @property
    def generation(self) -> float:
        """The power of two next to the operations of a unit in a cycle, which doubles with most generations."""
        return round(math.log2(self.flops * self.item / 2 / self.units / self.clock_hz))

    def reach(self, share: float, power: float) -> float:
        """Operations a second of one unit at a share of the peak: less where there is little power for them."""
        watts = min(max(self.watts_a_flop * 2e12 / self.item, _LEAST_WATTS), _MOST_WATTS)  # for 10^12 of 16 bits
        return self.flops / self.units * min(share * float(watts**power), _MOST_SHARE)


def find_rates(device: Device, precision: str) -> Rates:
    """The rates of a device in a type of numbers, or in the one that it uses instead."""
    known = dict(device.matrix_flops)
    used = next((name for name in _INSTEAD.get(precision, ()) if known.get(name)), "fp32")
    flops = known.get(used) or device.peak_flops
    item = _ITEM.get(precision, 4)
    return Rates(
        flops=flops,
        bandwidth=device.bandwidth_bytes,
        units=device.units,
        l2_bytes=device.l2_bytes or _L2_A_UNIT * device.units,
        clock_hz=device.clock_hz or _CLOCK_HZ,
        watts_a_flop=(device.power_w or _WATTS_A_PEAK * flops) / flops,
        item=item,
        item_out=max(2, item),
        matrix=used != "fp32" or flops > _VECTOR * device.peak_flops,
        cast=precision == "fp8",
    )


_VECTOR = 1.05  # single precision faster than this times the peak outside matrix units runs in matrix units


def classify_precision(precision: str) -> str:
    """Types whose products take the same time have the same class."""
    return _CLASS.get(precision, precision)
