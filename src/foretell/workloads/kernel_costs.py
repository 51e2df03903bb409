"""The cost of one ATen call, from its input and output tensors."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils.flop_counter import flop_registry

_aten = torch.ops.aten


class KernelCost(NamedTuple):
    """The cost that a call adds to its operator."""

    flops: float
    bytes_moved: float
    kernels: int
    unknown: int = 0  # 1 if what it computes is not known


Rule: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any], Any], KernelCost | None]

_FREE = frozenset({
    "_unsafe_view", "_conj", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
    "resize_", "set_", "_local_scalar_dense", "_has_compatible_shallow_copy_type", "is_same_size", "sym_size",
    "sym_numel", "sym_stride", "_assert_tensor_metadata", "lift", "lift_fresh", "lift_fresh_copy",
    "record_stream", "_assert_async", "is_pinned", "split_with_sizes", "unsafe_split", "unsafe_chunk",
    "detach_", "scalar_tensor",
})  # fmt: skip
_MOVES = frozenset({
    "clone", "copy", "copy_", "_to_copy", "cat", "stack", "constant_pad_nd", "reflection_pad2d", "roll", "flip",
    "repeat", "select_backward", "slice_backward", "tril", "triu", "masked_fill", "masked_fill_", "slice_scatter",
    "select_scatter", "upsample_nearest2d",
})  # fmt: skip
_FILLS = frozenset({
    "fill_", "fill", "zero_", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_zeros", "new_ones",
    "new_full", "arange",
})  # fmt: skip
_GATHERS = frozenset({"embedding", "index", "index_select", "gather"})  # read only what they return
_SCATTERS = frozenset(
    {"index_put", "index_put_", "_index_put_impl_", "index_add_", "scatter_add_", "scatter_"}
)  # write only the given values
_rules: dict[Any, Rule | None] = {}


def cost_kernel(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    """The cost of a call; None if it runs no kernel."""
    try:
        rule = _rules[func]
    except KeyError:
        rule = _rules[func] = _find_rule(func)
    return None if rule is None else rule(args, kwargs, out)


def _find_rule(func: Any) -> Rule | None:
    packet = func.overloadpacket
    name = packet.__name__
    if func.is_view or name in _FREE:
        return None
    if packet in _PRODUCTS:
        return _PRODUCTS[packet]
    if packet in flop_registry:
        return _counted(flop_registry[packet])
    if name.startswith("_foreach_"):
        return _for_each
    if name in _FILLS:
        return _fill
    if name in _GATHERS:
        return _gather
    if name in _SCATTERS:
        return _scatter
    return _move if name in _MOVES else _compute


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _elements(tensor: torch.Tensor) -> int:
    """Elements in memory; expanded dimensions count once."""
    if 0 not in tensor.stride():
        return tensor.numel()
    return math.prod(size for size, step in zip(tensor.shape, tensor.stride(), strict=True) if step)


def _sizes(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> tuple[float, float]:
    """Elements of the largest tensor, and bytes of all tensors on the device."""
    largest = moved = 0
    for tensor in _tensors((*args, *kwargs.values(), out)):
        if tensor.device.type == "meta":
            elements = _elements(tensor)
            largest = max(largest, elements, tensor.numel())
            moved += elements * tensor.element_size()
    return largest, moved


def _compute(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    largest, moved = _sizes(args, kwargs, out)
    return KernelCost(largest, moved, 1) if moved else None


def _move(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    _, moved = _sizes(args, kwargs, out)
    return KernelCost(0.0, moved, 1) if moved else None


def _fill(_args: Sequence[Any], _kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    _, moved = _sizes((), {}, out)
    return KernelCost(0.0, moved, 1) if moved else None


def _for_each(args: Sequence[Any], kwargs: Mapping[str, Any], _out: Any) -> KernelCost:
    """One kernel for many tensors, which writes as much as the first list holds."""
    _, moved = _sizes(args, kwargs, ())
    first = list(_tensors(args[:1]))
    elements = sum(tensor.numel() for tensor in first)
    return KernelCost(elements, moved + elements * max(tensor.element_size() for tensor in first), 1)


def _gather(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost | None:
    _, indices = _sizes(args[1:], kwargs, ())
    return KernelCost(0.0, 2 * out.numel() * out.element_size() + indices, 1)


def _scatter(args: Sequence[Any], kwargs: Mapping[str, Any], _out: Any) -> KernelCost | None:
    values = next((value for value in reversed(args) if isinstance(value, torch.Tensor)), args[0])
    _, given = _sizes(args[1:], kwargs, ())
    return KernelCost(values.numel(), given + 2 * values.numel() * values.element_size(), 1)


def _counted(formula: Callable[..., int]) -> Rule:
    def rule(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
        _, moved = _sizes(args, kwargs, out)
        return KernelCost(formula(*args, **kwargs, out_val=out), moved, 1)

    return rule


def _product(position: int) -> Rule:
    """A matrix product whose first factor is the argument at this position."""

    def rule(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost:
        _, moved = _sizes(args, kwargs, out)
        return KernelCost(2.0 * out.numel() * args[position].shape[-1], moved, 1)

    return rule


def _convolution_flops(data: torch.Tensor, weight: torch.Tensor, result: torch.Tensor, *, transposed: bool) -> float:
    positions = data.numel() if transposed else result.numel()
    return 2.0 * positions * math.prod(weight.shape[1:])


def _convolution(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost:
    _, moved = _sizes(args, kwargs, out)
    return KernelCost(_convolution_flops(args[0], args[1], out, transposed=args[6]), moved, 1)


def _convolution_backward(args: Sequence[Any], _kwargs: Mapping[str, Any], out: Sequence[Any]) -> KernelCost:
    """One pass for each requested gradient."""
    gradient, data, weight, transposed = args[0], args[1], args[2], args[7]
    passes = [result is not None for result in out]
    flops = _convolution_flops(data, weight, gradient, transposed=transposed) * sum(passes[:2])
    elements = (gradient.numel() + data.numel() + weight.numel()) * sum(passes[:2])
    if passes[2]:
        flops += gradient.numel()
        elements += gradient.numel() + out[2].numel()
    return KernelCost(flops, elements * gradient.element_size(), sum(passes))


_PRODUCTS: dict[Any, Rule] = {
    _aten.mm: _product(0),
    _aten.bmm: _product(0),
    _aten.addmm: _product(1),
    _aten.baddbmm: _product(1),
    _aten.convolution: _convolution,
    _aten.convolution_backward: _convolution_backward,
}
