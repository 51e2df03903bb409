"""Operations and bytes of kernels, and the time that a device needs for them at its peaks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels.kernel_calls import Attention, Convolution, KernelCall, MemoryPass, Product

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
# What runs instead where a device has no matrix units of a type.
INSTEAD = {"fp8": ("bf16", "fp16"), "bf16": ("tf32",), "fp16": ("tf32",), "tf32": ()}
# Filters of Winograd's algorithm need fewer multiplications: https://arxiv.org/abs/1509.09308
_WINOGRAD = 2.25
_WINOGRAD_KERNEL = (3, 3)

Cost: TypeAlias = tuple[float, float]  # operations, bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBounds:
    """What kernels compute and move, as arrays."""

    flops: Floats
    least_flops: Floats  # of the algorithm that computes least
    bytes_moved: Floats
    launches: Floats
    precision: np.ndarray  # places in PRECISIONS

    @classmethod
    def count(cls, calls: Sequence[KernelCall]) -> "KernelBounds":
        """Those of these kernels."""
        costs = [_COSTS[type(call)](call) for call in calls]
        return cls(
            flops=np.array([flops for flops, _ in costs], dtype=float),
            least_flops=np.array([flops / _find_saving(call) for call, (flops, _) in zip(calls, costs, strict=True)]),
            bytes_moved=np.array([moved for _, moved in costs], dtype=float),
            launches=np.array([call.kernels if isinstance(call, MemoryPass) else 1 for call in calls], dtype=float),
            precision=np.array([_find_place(call) for call in calls], dtype=int),
        )

    def compute_s(self, device: Device, *, least: bool = False) -> Floats:
        """Seconds of each kernel at the peak of its type."""
        peaks = np.array([find_rate(device, precision) for precision in PRECISIONS] + [device.peak_flops])
        flops: Floats = self.least_flops if least else self.flops
        return np.asarray(flops / peaks[self.precision])

    def memory_s(self, device: Device) -> Floats:
        """Seconds of each kernel at the bandwidth of the memory."""
        return np.asarray(self.bytes_moved / device.bandwidth_bytes)

    def necessary_s(self, device: Device, count: Floats) -> float:
        """No device can do so many of each kernel faster: its peaks, and its bandwidth without what its cache holds."""
        kept = 2.0 * device.l2_bytes * self.launches
        moved = np.maximum(self.bytes_moved - kept, 0.0) / device.bandwidth_bytes
        return float(max(self.compute_s(device, least=True) @ count, moved @ count)) if len(count) else 0.0


def find_rate(device: Device, precision: str) -> float:
    """The peak of a type, or of the type that runs instead where the device does not have it."""
    for name in (precision, *INSTEAD.get(precision, ())):
        found = device.find_peak(name)
        if found:
            return found
    return device.find_peak("fp32") or device.peak_flops


def _find_place(call: KernelCall) -> int:
    """Passes run outside the matrix units."""
    return len(PRECISIONS) if isinstance(call, MemoryPass) else PRECISIONS.index(call.precision)


def _find_saving(call: KernelCall) -> float:
    plain = isinstance(call, Convolution) and call.kernel == _WINOGRAD_KERNEL and call.stride == 1
    return _WINOGRAD if plain else 1.0


def _cost_product(call: Product) -> Cost:
    rows, columns, inner = call.rows, call.columns, call.inner
    moved = rows * inner + inner * columns + rows * columns
    return 2.0 * call.many * rows * columns * inner, float(call.many * moved * BYTES[call.precision])


def _cost_attention(call: Attention) -> Cost:
    pairs = call.queries * call.keys * (0.5 if call.causal else 1.0)
    flops = 4.0 * call.batch * call.heads * pairs * call.width * (2.5 if call.backward else 1.0)
    size = call.width * call.batch * (2 * call.heads * call.queries + 2 * call.key_heads * call.keys)
    return flops, float(size * BYTES[call.precision] * (2 if call.backward else 1))


def _cost_convolution(call: Convolution) -> Cost:
    weights = call.filters * call.channels / call.groups * math.prod(call.kernel)
    flops = 2.0 * call.images * math.prod(call.size_out) * weights
    given, made = call.channels * math.prod(call.size_in), call.filters * math.prod(call.size_out)
    return flops, float((call.images * (given + made) + weights) * BYTES[call.precision])


def _cost_pass(call: MemoryPass) -> Cost:
    return call.flops, call.bytes_moved


_COSTS: dict[type, Callable[[Any], Cost]] = {
    Product: _cost_product,
    Attention: _cost_attention,
    Convolution: _cost_convolution,
    MemoryPass: _cost_pass,
}
