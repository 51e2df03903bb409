"""The kernels of a step by what limits them: matrix products, attention, convolutions, and passes over memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar

Kind = TypeVar("Kind")
Value = TypeVar("Value")

# Types of numbers, as devices list them: fp32, tf32, fp16, bf16, fp8.


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """``many`` products of ``rows`` x ``inner`` and ``inner`` x ``columns``, in one kernel."""

    rows: int
    columns: int
    inner: int
    many: int = 1
    precision: str = "fp32"


FLASH_2 = "flash-2"  # what PyTorch runs unless another is chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Scaled dot-product attention in its fused (flash) form; the whole backward pass is one call."""

    batch: int
    heads: int
    key_heads: int  # fewer than heads if they are shared
    queries: int
    keys: int
    width: int  # of a head
    causal: bool = False
    backward: bool = False
    precision: str = "bf16"
    library: str = ""  # FLASH_2, or one with kernels of its own for each device


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution in one direction: ``forward``, ``data`` (gradient of the input) or ``weights``.

    Sizes are those of the forward convolution; one- and three-dimensional ones are given as two-dimensional.
    """

    images: int
    channels: int  # in, of all groups
    filters: int  # out, of all groups
    groups: int
    size_in: tuple[int, int]
    size_out: tuple[int, int]
    kernel: tuple[int, int]
    stride: int = 1
    direction: str = "forward"
    channels_last: bool = False
    precision: str = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPass:
    """A kernel that is limited by memory: element-wise, a normalization, a copy, an optimizer's update."""

    kind: str  # the operator it belongs to
    backward: bool = False
    elements: int  # of its largest tensor
    row: int  # the last dimension of that tensor
    bytes_moved: float
    flops: float = 0.0
    kernels: int = 1


KernelCall = Product | Attention | Convolution | MemoryPass


def keep_last(function: Callable[[Sequence[Kind]], Value]) -> Callable[[Sequence[Kind]], Value]:
    """The function, computed once while the same tuple of calls is predicted on one device after the other."""
    last: list[tuple[Sequence[Kind], Value]] = []

    @wraps(function)
    def find(calls: Sequence[Kind]) -> Value:
        kept = last[0] if last else None
        if kept is None or kept[0] is not calls or not isinstance(calls, tuple):
            last[:] = [kept := (calls, function(calls))]
        return kept[1]

    return find
