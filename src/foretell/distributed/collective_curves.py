"""Measured times of collectives relative to the law, by device, operation, GPUs and size."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.devices import Device, find_device
from foretell.core.workload import Floats

_RATIO = 5.0  # the most that a measured time may differ from the law, as a logarithm: more is a broken file


class Evidence(StrEnum):
    """What a time was predicted by."""

    MEASURED = "measured"  # this operation on this device
    SIMILAR = "similar"  # on a device of its architecture with the same links
    FIGURES = "figures"  # public figures alone
    NETWORK = "network"  # the figure of the network


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Logarithms of measured times over those of the law."""

    device: str
    operation: str
    gpus: int
    sizes: Floats  # log2 of bytes, ascending
    shifts: Floats


class MeasuredCurves:
    """The curves of devices, and what they say about others of their kind."""

    def __init__(self, curves: Iterable[Curve] = ()) -> None:
        self.curves = tuple(curves)
        self._of: dict[tuple[str, str], dict[int, list[Curve]]] = {}
        self._kin: dict[str, list[str]] = {}
        for curve in self.curves:
            by_gpus = self._of.setdefault((curve.device, curve.operation), {})
            by_gpus.setdefault(curve.gpus, []).append(curve)
            names = self._kin.setdefault(_name_kind(find_device(curve.device)), [])
            if curve.device not in names:
                names.append(curve.device)

    def find_shifts(self, device: Device, operation: str, gpus: int, sizes: Floats) -> tuple[Floats, Evidence]:
        """What to add to the logarithm of the law's times, and by which evidence."""
        own = self._of.get((device.name, operation))
        if own:
            return _interpolate(own, gpus, sizes), Evidence.MEASURED
        kin = [self._of.get((name, operation), {}) for name in self._kin.get(_name_kind(device), ())]
        joined: dict[int, list[Curve]] = {}
        for by_gpus in kin:
            for count, curves in by_gpus.items():
                joined.setdefault(count, []).extend(curves)
        if joined:
            return _interpolate(joined, gpus, sizes), Evidence.SIMILAR
        return np.zeros(len(sizes)), Evidence.FIGURES

    def to_state(self) -> tuple[list[Any], dict[str, NDArray[Any]]]:
        """Names and lengths of curves, and all their values one after the other."""
        record = [[curve.device, curve.operation, curve.gpus, len(curve.sizes)] for curve in self.curves]
        empty = [np.zeros(0)]
        sizes = np.concatenate([curve.sizes for curve in self.curves] or empty)
        shifts = np.concatenate([curve.shifts for curve in self.curves] or empty)
        return record, {"sizes": sizes.astype(np.float32), "shifts": shifts.astype(np.float32)}

    @classmethod
    def from_state(cls, record: Iterable[Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The curves with this state.

        Raises:
            LookupError, TypeError, ValueError: The state is not valid.
        """
        sizes, shifts = arrays["sizes"].astype(float), arrays["shifts"].astype(float)
        found, start = [], 0
        for device, operation, gpus, length in record:
            part = slice(start, start + int(length))
            start = part.stop
            values = Curve(
                device=str(device),
                operation=str(operation),
                gpus=int(gpus),
                sizes=sizes[part],
                shifts=shifts[part],
            )
            _check(values, int(length))
            found.append(values)
        return cls(found)


def _check(curve: Curve, length: int) -> None:
    values = len(curve.sizes) == len(curve.shifts) == length > 0 and curve.gpus > 1
    if not values or not (np.diff(curve.sizes) > 0).all() or not (np.abs(curve.shifts) < _RATIO).all():
        raise ValueError(f"the measured times of {curve.device} are not a curve")


def _interpolate(by_gpus: Mapping[int, list[Curve]], gpus: int, sizes: Floats) -> Floats:
    """Between the nearest measured numbers of GPUs; beyond them, the shifts of the nearest."""
    counts = np.array(sorted(by_gpus))
    above = int(np.searchsorted(counts, gpus))
    low, high = counts[max(0, above - 1)], counts[min(above, len(counts) - 1)]
    share = 1.0 if low == high else float(np.clip(np.log(gpus / low) / np.log(high / low), 0.0, 1.0))
    return (1 - share) * _join(by_gpus[int(low)], sizes) + share * _join(by_gpus[int(high)], sizes)


def _join(curves: Iterable[Curve], sizes: Floats) -> Floats:
    """The mean of curves; each has its end beyond the sizes that were measured."""
    return np.asarray(np.mean([np.interp(sizes, curve.sizes, curve.shifts) for curve in curves], axis=0))


@cache
def _name_kind(device: Device | None) -> str:
    """The same for boards with the same links."""
    return f"{device.architecture} {device.link_bytes:g}" if device else ""
