"""The share of its published peak that a device can sustain within its power."""

import numpy as np

from foretell.core.devices import Device

# Operations a second for each watt that products in single precision outside matrix units reach, by year of the chip:
# a T4 (70 W) reaches half of its peak in convolutions, a 2080 Ti of the same architecture (250 W) all of it, both
# 54 GFLOPS/W. Later years: measured products of A10, L4 and RTX 4090 are near their limits of power too.
_YEARS = (2016, 2018, 2020, 2022, 2026)
_PLAIN = (75e9, 58e9, 100e9, 180e9, 200e9)
_MATRIX = (300e9, 360e9, 800e9, 1000e9, 1100e9)  # half precision in matrix units
_LEAST = 0.3
_MILDER = 0.75  # not every kernel draws all power


def find_sustained(device: Device, precision: str = "fp32") -> float:
    """The share of the peak that lasts; 1 where power or year are not known."""
    if device.kind != "gpu" or not device.power_w or not device.year:
        return 1.0
    matrix = precision in dict(device.matrix_flops) and precision != "fp32"
    peak = device.find_peak(precision) or device.peak_flops
    scale = {"tf32": 0.5, "fp8": 2.0}.get(precision, 1.0)
    each_watt = scale * float(np.interp(device.year, _YEARS, _MATRIX if matrix else _PLAIN))
    share = max(_LEAST, min(1.0, each_watt * device.power_w / peak))
    return share if matrix else float(share**_MILDER)
