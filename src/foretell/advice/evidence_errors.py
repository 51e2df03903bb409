"""Which part of an error is shared by predictions of the same application: by all, on a device, in a setting.

The logarithm of measured over predicted is the sum of three parts: of the network, on every device; of the device; and
of the setting (batch and layout) on it. Few networks err by far more than the others, and they do so everywhere, so
that the first and the last part have a t distribution. The interval of each prediction says how large its error may be.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from foretell.core.intervals import Floats
from foretell.core.prediction import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorShares:
    """Shares of the squared error of a prediction for a device that whole networks were measured on.

    What a prediction errs more than the best known one belongs to its device. ``batch_doublings`` is the distance at
    which the parts of two batches on a device have little in common; ``freedom`` is that of the t distribution.
    """

    network: float
    device: float
    freedom: float
    batch_doublings: float
    device_freedom: float = 1.0  # of the errors of devices: a large one says little of other devices
    layout: float = 0.5  # of the error on a device, what different layouts have in common: assumed, not measured

    @property
    def setting(self) -> float:
        """What is left for the batch and the layout."""
        return 1.0 - self.network - self.device


MEASURED_LOG = 0.235  # half the width of the 90 % intervals of devices that whole networks were measured on
# Image models of timm and Profet, and language models of NeuSight: ``python -m benchmarks.advise.shared_errors``.
SHARES = ErrorShares(network=0.73, device=0.01, freedom=2.4, batch_doublings=2.7)
PRODUCT_SHARES = ErrorShares(network=0.14, device=0.17, freedom=3.1, batch_doublings=1.0)


def choose_shares(*, convolutions: bool) -> ErrorShares:
    """Of a network with convolutions, whose errors are much its own, or of one of matrix products and attention."""
    return SHARES if convolutions else PRODUCT_SHARES


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlace:
    """Where a step runs: the device, how many of them share the step and how, and the examples of one GPU.

    A step on a CPU has no GPUs, but cores.
    """

    device: str
    gpus: int = 1
    layout: str = ""  # as ``str(Layout)``; nothing for one GPU
    batch: int | None = None
    cores: int | None = None

    @property
    def sharing(self) -> tuple[int, str, int | None]:
        """How the step is shared."""
        return self.gpus, self.layout if self.gpus > 1 else "", self.cores

    def __str__(self) -> str:
        layout = f" by {self.layout}" if self.layout and self.gpus > 1 else ""
        cores = f", {self.cores} core{'s' if self.cores > 1 else ''}" if self.cores else ""
        batch = f", batch {self.batch}" if self.batch else ""
        return f"{f'{self.gpus} x ' if self.gpus > 1 else ''}{self.device}{layout}{cores}{batch}"


def find_scale(estimate: Estimate, freedom: float) -> float:
    """The scale of the error, in logs, that an interval says."""
    low, high = max(estimate.low, 1e-12 * estimate.value), max(estimate.high, estimate.value)
    return float(np.log(high / low)) / 2 / t_quantile(0.5 + estimate.level / 2, freedom)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCovariance:
    """What errors at several places have in common.

    ``network`` is the variance of the part of the network, ``devices`` that of devices, ``settings`` that of batches
    and layouts on them. The first is ``width`` times as large, which is not known; each device has a width of its own;
    and settings err as much more as both together do.
    """

    network: float
    settings: Floats
    devices: Floats

    def build(self, width: float, device_widths: Floats) -> Floats:
        """Of the whole errors."""
        own = np.diag(self.devices)
        both = (width * self.network + device_widths * own) / (self.network + own)
        settings = self.settings * np.sqrt(np.outer(both, both))
        return np.asarray(
            width * self.network + settings + self.devices * np.sqrt(np.outer(device_widths, device_widths))
        )

    def select(self, first: int) -> "ErrorCovariance":
        """That of the places from one on."""
        return ErrorCovariance(
            network=self.network, settings=self.settings[first:, first:], devices=self.devices[first:, first:]
        )


def build_covariance(
    places: Sequence[StepPlace], scales: Floats, known: Sequence[bool], shares: ErrorShares
) -> ErrorCovariance:
    """The scale matrices of the errors at these places; ``known`` are devices that whole networks were measured on."""
    usual = MEASURED_LOG / t_quantile(0.95, shares.freedom)
    limits = [scale if one else min(scale, usual) for scale, one in zip(scales.tolist(), known, strict=True)]
    least = min(limits, default=usual) ** 2
    device = scales**2 - (shares.network + shares.setting) * least
    same, alike = _compare_places(places, shares)
    return ErrorCovariance(
        network=shares.network * least,
        settings=alike * shares.setting * least,
        devices=same * np.minimum.outer(device, device),
    )


def _compare_places(places: Sequence[StepPlace], shares: ErrorShares) -> tuple[Floats, Floats]:
    """What the errors of devices at two places have in common, and those of settings."""
    device = _number([each.device for each in places])
    sharing = _number([each.sharing for each in places])
    batch = np.array([np.log2(each.batch) if each.batch else np.nan for each in places])
    on_same = device[:, None] == device
    shared_alike = on_same & (sharing[:, None] == sharing)
    apart = np.abs(batch[:, None] - batch)
    apart = np.where(np.isnan(batch[:, None]) & np.isnan(batch), 0.0, np.where(np.isnan(apart), np.inf, apart))
    same = np.where(shared_alike, 1.0, np.where(on_same, shares.layout, 0.0))
    return same, np.where(shared_alike, np.exp(-apart / shares.batch_doublings), 0.0)


def _number(values: Sequence[Hashable]) -> NDArray[np.int_]:
    """Equal values have the same number."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(each, len(numbers)) for each in values], dtype=int)


@cache
def t_quantile(chance: float, freedom: float) -> float:
    """The quantile of Student's t distribution, by bisection of its integral; it needs no SciPy."""
    if freedom > _NORMAL:
        return NormalDist().inv_cdf(chance)
    if chance < 0.5:
        return -t_quantile(1 - chance, freedom)
    low, high = 0.0, 1e4
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_chance(middle, freedom) < chance else (low, middle)
    return (low + high) / 2


_NORMAL, _HALVINGS, _POINTS = 1000.0, 60, 2001


def _t_chance(value: float, freedom: float) -> float:
    """The chance of a smaller value: with t = sqrt(f) tan(a), the density in a is cos(a) to the power f - 1."""
    angles = np.linspace(-np.pi / 2, np.pi / 2, _POINTS)
    whole = _integrate(np.cos(angles) ** (freedom - 1), angles)
    part = np.linspace(0.0, float(np.arctan(value / np.sqrt(freedom))), _POINTS)
    return 0.5 + _integrate(np.cos(part) ** (freedom - 1), part) / whole


def _integrate(values: Floats, at: Floats) -> float:
    """Simpson's rule."""
    weights = np.ones(len(values))
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    return float(values @ weights * (at[1] - at[0]) / 3)
