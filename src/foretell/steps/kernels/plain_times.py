"""Times of kernels by the figures of the device alone, for kinds of kernels without a fitted model."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels._base import Evidence, KernelTimeModel
from foretell.steps.kernels.kernel_bounds import PRECISIONS, KernelBounds
from foretell.steps.kernels.kernel_calls import KernelCall
from foretell.steps.kernels.sustained_peaks import find_sustained

COMPUTE_SHARE, MEMORY_SHARE = 0.6, 0.75  # of the peaks that usual kernels reach
LAUNCH_S = 2e-6


class PlainTimeModel(KernelTimeModel[KernelCall]):
    """The larger of computing and moving, at usual shares of the peaks; nothing is learned."""

    kind: ClassVar[str] = "plain"

    def fit(self, calls: Sequence[KernelCall], devices: Sequence[Device], seconds: Floats) -> Self:
        return self

    def predict(self, calls: Sequence[KernelCall], device: Device) -> Floats:
        return predict_bounds(KernelBounds.count(calls), device)

    def find_evidence(self, device: Device, precision: str) -> Evidence:
        return Evidence.FIGURES

    def calibrate(self, calls: Sequence[KernelCall], device: Device, seconds: Floats) -> Self:
        return self

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        return cls()


def predict_bounds(bounds: KernelBounds, device: Device) -> Floats:
    """Seconds of kernels of which only the operations and the bytes are used."""
    reached = COMPUTE_SHARE * np.array([find_sustained(device, name) for name in (*PRECISIONS, "fp32")])
    compute = bounds.compute_s(device) / reached[bounds.precision]
    work = np.maximum(compute, bounds.memory_s(device) / MEMORY_SHARE)
    return np.asarray(work + LAUNCH_S * bounds.launches)
