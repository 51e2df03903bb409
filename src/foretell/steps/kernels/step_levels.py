"""Corrections of kernels that were learned from whole models: a factor for each group of alike kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels.kernel_calls import Attention, Convolution, KernelCall, MemoryPass, Product

MOST_LOG = 0.7  # a factor of two
_CLASSES = {"fp16": "half", "bf16": "half", "fp8": "fp8", "fp32": "single", "tf32": "single"}


def name_group(call: KernelCall) -> str:
    """The group of a kernel: kernels that are alike have a correction in common."""
    if isinstance(call, Product):
        return f"product/{'one' if call.many == 1 else 'many'}/{_CLASSES[call.precision]}"
    if isinstance(call, Attention):
        return f"attention/{_CLASSES[call.precision]}/{'backward' if call.backward else 'forward'}"
    if isinstance(call, Convolution):
        return f"convolution/{_name_shape(call)}/{_CLASSES[call.precision]}/{call.direction}"
    assert isinstance(call, MemoryPass)
    return f"pass/{call.kind}/{'backward' if call.backward else 'forward'}"


def _name_shape(call: Convolution) -> str:
    if call.groups > 1:
        return "depthwise" if call.groups == call.channels else "grouped"
    if call.kernel == (1, 1):
        return "pointwise"
    return "first" if call.channels <= 4 else "dense"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLevels:
    """Logarithms of factors by group, and further ones by group and architecture (``GROUP@ARCHITECTURE``)."""

    levels: Mapping[str, float] = field(default_factory=dict)

    def find(self, groups: Sequence[str], device: Device) -> Floats:
        """Of each group on a device."""
        known = {
            group: self.levels.get(group, 0.0) + self.levels.get(f"{group}@{device.architecture}", 0.0)
            for group in dict.fromkeys(groups)
        }
        found = np.array([known[group] for group in groups], dtype=float)
        return np.asarray(np.clip(found, -MOST_LOG, MOST_LOG))
