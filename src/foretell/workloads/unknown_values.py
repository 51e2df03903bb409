"""Examples for values that are unknown because their tensor has no data.

The expected mean of a tensor's elements, where the call determines it, is kept with the storage, which views share: 1
for the result of ``isfinite``, 0 for that of ``isnan``, 1 / classes for ``one_hot``. Where nothing is known, ``all``
holds and ``any`` does not, comparisons do not hold, half of the elements of a mask are set, and numbers are 1.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from foretell.workloads.known_tensors import is_known

HALF = 0.5  # of the elements of a mask of which nothing is known
_MEAN = "_foretell_mean"


def find_mean(value: Any) -> float | None:
    """The expected mean of a tensor's elements; None if unknown."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return getattr(value.untyped_storage(), _MEAN, None)


def mark_mean(tensor: torch.Tensor, mean: float) -> None:
    """Keep the expected mean of a tensor's elements."""
    setattr(tensor.untyped_storage(), _MEAN, mean)


def derive_mean(func: Any, args: Sequence[Any], out: Any) -> None:
    """Keep the expected mean of a result, if the arguments or the call determine it."""
    rule = _RULES.get(func.overloadpacket.__name__)
    if rule is None or not isinstance(out, torch.Tensor):
        return
    mean = rule(args, out)
    if mean is not None and out.layout is torch.strided:
        mark_mean(out, mean)


def read_example(tensor: torch.Tensor) -> bool | int | float | complex:
    """An example for the value of a tensor with one element."""
    return build_example(tensor).flatten()[0].item()


def build_example(tensor: torch.Tensor) -> torch.Tensor:
    """An example for the values of a tensor, with the expected mean if there is one."""
    shape, dtype = tuple(tensor.shape), tensor.dtype
    mean = find_mean(tensor)
    if dtype is torch.bool:
        share = round(mean or 0.0) if tensor.numel() == 1 else mean or 0.0
        return _spread(shape, share).bool()
    if mean is None or dtype.is_floating_point or dtype.is_complex:
        return torch.full(shape, 1 if mean is None else mean, dtype=dtype)
    return _spread(shape, mean).to(dtype)


def find_indices(mask: torch.Tensor) -> torch.Tensor:
    """Example positions of the elements of a mask that are set, evenly spread, as ``nonzero`` gives them."""
    mean = find_mean(mask)
    total = mask.numel()
    count = round(total * min(1.0, max(0.0, HALF if mean is None else mean)))
    flat = torch.arange(count) * total // max(count, 1)
    return torch.stack(torch.unravel_index(flat, mask.shape), 1) if mask.dim() else flat[:, None][:, :0]


def _spread(shape: tuple[int, ...], mean: float) -> torch.Tensor:
    """Whole numbers with this mean, evenly spread."""
    steps = torch.floor(torch.arange(math.prod(shape) + 1, dtype=torch.float64) * mean + 1e-9)
    return steps.diff().reshape(shape)


def _is_infinite(value: Any, sign: int = 0) -> bool:
    return isinstance(value, float) and math.isinf(value) and (not sign or math.copysign(1, value) == sign)


def _equals(args: Sequence[Any], out: torch.Tensor) -> float | None:
    if args[0] is args[1]:
        return 1.0
    classes = args[1] if isinstance(args[1], torch.Tensor) else torch.empty(())
    if classes.dim() == 1 and not classes.is_floating_point() and is_known(classes) and len(classes) == out.shape[-1]:
        return 1 / max(len(classes), 1)  # as one_hot compares
    return 0.0 if _is_infinite(args[1]) else None


def _differs(args: Sequence[Any], out: torch.Tensor) -> float | None:
    equal = _equals(args, out)
    if equal is None and args[1] == 0 and not isinstance(args[1], torch.Tensor):
        return _exceeds(args, out)
    return None if equal is None else 1 - equal


def _exceeds(args: Sequence[Any], _out: torch.Tensor) -> float | None:
    if isinstance(args[1], torch.Tensor):
        return None
    if _is_infinite(args[1]):
        return 1.0 if args[1] < 0 else 0.0
    mean = find_mean(args[0])
    return None if mean is None else min(1.0, max(0.0, mean - args[1]))


def _is_below(args: Sequence[Any], _out: torch.Tensor) -> float | None:
    return (1.0 if args[1] > 0 else 0.0) if _is_infinite(args[1]) else None


def _all(args: Sequence[Any], _out: torch.Tensor) -> float:
    mean = find_mean(args[0])
    return 1.0 if mean is None or mean >= 1 else 0.0


def _any(args: Sequence[Any], _out: torch.Tensor) -> float:
    return 1.0 if find_mean(args[0]) else 0.0


def _not(args: Sequence[Any], _out: torch.Tensor) -> float | None:
    mean = find_mean(args[0])
    return None if mean is None or args[0].dtype is not torch.bool else 1 - mean


def _and(args: Sequence[Any], out: torch.Tensor) -> float | None:
    means = [find_mean(each) for each in args[:2]]
    if out.dtype is not torch.bool:
        return None
    return 0.0 if 0.0 in means else None if None in means else math.prod(means)  # type: ignore[arg-type]


def _or(args: Sequence[Any], out: torch.Tensor) -> float | None:
    means = [find_mean(each) for each in args[:2]]
    if out.dtype is not torch.bool or None in means:
        return None
    return max(each for each in means if each is not None)


def _sum(args: Sequence[Any], out: torch.Tensor) -> float | None:
    mean = find_mean(args[0])
    return None if mean is None else mean * args[0].numel() / max(out.numel(), 1)


def _keep(args: Sequence[Any], _out: torch.Tensor) -> float | None:
    return find_mean(args[0])


def _scatter(args: Sequence[Any], out: torch.Tensor) -> float | None:
    """Of ones written into zeros, as ``one_hot`` does."""
    return args[2].numel() / max(out.numel(), 1) if isinstance(args[3], int) and args[3] == 1 else None


def _count(args: Sequence[Any], out: torch.Tensor) -> float:
    return float(args[0].numel() / max(out.numel(), 1))


_RULES: dict[str, Callable[[Sequence[Any], torch.Tensor], float | None]] = {
    "eq": _equals, "ne": _differs, "gt": _exceeds, "ge": _exceeds, "lt": _is_below, "le": _is_below,
    "isnan": lambda _args, _out: 0.0, "isinf": lambda _args, _out: 0.0, "all": _all, "any": _any,
    "logical_not": _not, "bitwise_not": _not, "logical_and": _and, "bitwise_and": _and, "__and__": _and, "mul": _and,
    "logical_or": _or, "bitwise_or": _or, "__or__": _or, "sum": _sum, "mean": _keep, "_to_copy": _keep,
    "clone": _keep, "scatter_": _scatter, "scatter": _scatter, "histc": _count, "bincount": _count,
}  # fmt: skip
