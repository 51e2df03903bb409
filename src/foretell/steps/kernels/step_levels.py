"""Corrections of kernels that were learned from whole models: a factor for each group of alike kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels.convolution_physics import find_type
from foretell.steps.kernels.kernel_bounds import BYTES
from foretell.steps.kernels.kernel_calls import Attention, Convolution, KernelCall, MemoryPass, Product

MOST_LOG = 0.7  # a factor of two
_LOW, _HIGH = 60.0, 200.0  # operations a byte
CLASSES = {"fp16": "half", "bf16": "half", "fp8": "fp8", "fp32": "single", "tf32": "single"}


def name_group(call: KernelCall) -> str:
    """The group of a kernel: kernels that are alike have a correction in common."""
    if isinstance(call, Product):
        return f"product/{'one' if call.many == 1 else 'many'}/{CLASSES[call.precision]}"
    if isinstance(call, Attention):
        return f"attention/{CLASSES[call.precision]}/{'backward' if call.backward else 'forward'}"
    if isinstance(call, Convolution):
        return f"convolution/{_name_shape(call)}/{CLASSES[call.precision]}/{call.direction}/{_name_intensity(call)}"
    assert isinstance(call, MemoryPass)
    return f"pass/{call.kind}/{'backward' if call.backward else 'forward'}"


def _name_intensity(call: Convolution) -> str:
    """By operations a byte: limited by memory on every device, on some, or on none."""
    groups = call.groups
    window = call.kernel[0] * call.kernel[1]
    outputs = call.images * call.size_out[0] * call.size_out[1]
    moved = call.images * call.channels * call.size_in[0] * call.size_in[1] + outputs * call.filters
    moved += call.filters * call.channels // groups * window
    each = 2.0 * outputs * call.filters * call.channels / groups * window / (moved * BYTES[call.precision])
    return "low" if each < _LOW else "high" if each > _HIGH else "middle"


def _name_shape(call: Convolution) -> str:
    if call.groups > 1:
        return "depthwise" if call.groups == call.channels else "grouped"
    if call.kernel == (1, 1):
        return "pointwise"
    return "first" if call.channels <= 4 else "dense"


def name_levels(group: str, device: Device) -> tuple[str, ...]:
    """The levels that apply to a group on a device: its own, of kernels of its class on the vendor, and of both.

    Convolutions in single precision run in TF32 where there are units for it, and by other kernels elsewhere.
    """
    if group.startswith("convolution") and find_type("tf32", device) == "fp32":
        group = group.replace("/single/", "/plain/")
    common = next((name for name in dict.fromkeys(CLASSES.values()) if f"/{name}" in group), group.partition("/")[0])
    return group, f"{common}@{device.vendor}", f"{group}@{device.vendor}", f"{group}@{device.architecture}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLevels:
    """Logarithms of factors by group, and further ones by place (``GROUP@NAME``): a vendor or an architecture.

    All passes, and all kernels of a class of precisions, have one in common on a vendor (``CLASS@NAME``).
    """

    levels: Mapping[str, float] = field(default_factory=dict)

    def find(self, groups: Sequence[str], device: Device) -> Floats:
        """Of each group on a device."""
        found = np.array([sum(self.levels.get(name, 0.0) for name in name_levels(each, device)) for each in groups])
        return np.asarray(np.clip(found, -MOST_LOG, MOST_LOG))
