"""What a device can do at most in a type of numbers, with usual figures where its own are unknown."""

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
    def flops_a_cycle(self) -> float:
        """Of one unit."""
        return self.flops / self.units / self.clock_hz


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
