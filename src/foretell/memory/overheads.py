"""What a step takes from a device beyond its own blocks, and how far measured memory lies from what was computed.

Convolutions need workspace: most kernels of cuDNN for tensor cores copy images, filters and results into another
layout, and Winograd's algorithm transforms them. The allocator keeps the largest workspace. How much of it is used,
and the context of CUDA with its libraries, are learned from measured peaks with ``torch.backends.cudnn.benchmark``.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from foretell.core.devices import Device
from foretell.core.intervals import QuantileSpread
from foretell.core.memory import Convolution, MemoryTrace
from foretell.core.model_files import load_model, read_rising
from foretell.core.units import parse_bytes

QUANTILES = 101
CONVOLUTIONAL, OTHER = GROUPS = ("convolutional", "other")
_REMEDY = "install Foretell again"
_WINOGRAD = 2.25  # values of a transformed tile of 6 x 6 for each result of 4 x 4
_WINOGRAD_FILTER = 4  # of 3 x 3 values become 6 x 6
_IMAGE_CHANNELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceNeeds:
    """The largest workspaces, in bytes, that the convolutions of a step would need for each kind of kernel."""

    layout_bytes: float = 0.0  # copies of images, filters and results in another layout
    winograd_bytes: float = 0.0
    convolutions: bool = False  # whether there are any for which cuDNN tries kernels, also of points

    @property
    def group(self) -> str:
        """The kind of step, by which errors are learned."""
        return CONVOLUTIONAL if self.convolutions else OTHER


def find_workspaces(trace: MemoryTrace) -> WorkspaceNeeds:
    """What the convolutions of a step need. Those that only cut an image into patches need little."""
    spatial = [each for each in trace.convolutions if _is_spatial(each)]
    return WorkspaceNeeds(
        layout_bytes=max((_copy_layout(each) for each in spatial), default=0.0),
        winograd_bytes=max((_transform(each) for each in spatial if _suits_winograd(each)), default=0.0),
        convolutions=any(_is_spatial(each) or max(each.filters[2:]) == 1 for each in trace.convolutions),
    )


def _is_spatial(each: Convolution) -> bool:
    """Whether cuDNN runs it, with a kernel that is larger than a point."""
    depthwise = each.groups > 1 and each.filters[1] == 1
    cuts = each.images[1] < _IMAGE_CHANNELS and max(each.stride) > 1
    return max(each.filters[2:]) > 1 and not depthwise and not cuts


def _copy_layout(each: Convolution) -> float:
    return float(each.itemsize * (prod(each.images) + prod(each.results) + prod(each.filters)))


def _suits_winograd(each: Convolution) -> bool:
    return each.groups == 1 and each.filters[2:] == (3, 3) and set(each.stride + each.dilation) == {1}


def _transform(each: Convolution) -> float:
    tiles = _WINOGRAD * (prod(each.images) + prod(each.results))
    return each.itemsize * (tiles + _WINOGRAD_FILTER * prod(each.filters))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSize:
    """Bytes of CUDA and its libraries, outside of PyTorch's allocator: what ``nvidia-smi`` shows in addition."""

    value: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """What a step takes beyond what the allocator reserves for its blocks.

    ``spread`` has the distribution of log(measured / predicted) of the memory of the device.
    """

    context: ContextSize
    workspace_bytes: int  # inside of the allocator
    spread: QuantileSpread


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedOverheads:
    """What was learned from measured peaks."""

    kind: ClassVar[str] = "memory-overheads"
    context_bytes: float = 0.0  # of the device that was measured
    layout: float = 0.0  # share of the copies in another layout
    winograd: float = 0.0
    spreads: Mapping[str, QuantileSpread] = field(default_factory=dict)
    device: str = ""  # that was measured

    def find_workspace(self, needs: WorkspaceNeeds) -> float:
        """Bytes that the allocator reserves for workspaces."""
        return self.layout * needs.layout_bytes + self.winograd * needs.winograd_bytes

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """As JSON values."""
        return {
            "context_bytes": round(self.context_bytes),
            "layout": round(self.layout, 4),
            "winograd": round(self.winograd, 4),
            "spreads": {name: spread.round() for name, spread in self.spreads.items()},
            "device": self.device,
        }, {}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Those of a state.

        Raises:
            ValueError, TypeError, LookupError: The state is not one of such overheads.
        """
        return cls(
            context_bytes=float(record["context_bytes"]),
            layout=float(record["layout"]),
            winograd=float(record["winograd"]),
            spreads={
                str(name): QuantileSpread(quantiles=tuple(read_rising(values, count=QUANTILES).tolist()))
                for name, values in record["spreads"].items()
            },
            device=str(record["device"]),
        )


def predict_overheads(trace: MemoryTrace, device: Device | None = None) -> Overheads:
    """The overheads of a step on a device; on a usual one if none is named."""
    learned = load_overheads()
    needs = find_workspaces(trace)
    return Overheads(
        context=_find_context(learned, device),
        workspace_bytes=round(learned.find_workspace(needs)),
        spread=learned.spreads[needs.group],
    )


def _find_context(learned: LearnedOverheads, device: Device | None) -> ContextSize:
    """As measured on the same device; on others from the least that is known, which is expected, to that.

    CUDA 11.7 and later load kernels only when they are called.
    """
    measured = round(learned.context_bytes)
    if device is not None and device.name == learned.device:
        return ContextSize(value=measured, low=measured, high=measured)
    least = min(load_least_context(), measured)
    return ContextSize(value=least + (measured - least) // 8, low=least, high=measured)


@cache
def load_least_context() -> int:
    """Bytes that CUDA takes before anything is allocated."""
    text = resources.files("foretell.memory").joinpath("data/contexts.toml").read_text(encoding="utf-8")
    return parse_bytes(tomllib.loads(text)["usual"]["bytes"])


@cache
def load_overheads() -> LearnedOverheads:
    """What ships with the package."""
    found, _facts = load_model(find_weights(), [LearnedOverheads], remedy=_REMEDY)
    return found


def find_weights() -> Path:
    """The file of what was learned."""
    return Path(str(resources.files("foretell.memory") / "weights" / "overheads.safetensors"))
