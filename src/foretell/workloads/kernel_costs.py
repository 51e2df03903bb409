"""The cost of one ATen call, from its input and output tensors.

A call whose cost is not known, such as that of an extension, counts as unknown and as one pass over its tensors.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from foretell.workloads.known_kernels import LINEAR_ALGEBRA, count_fourier, is_one_pass

_aten = torch.ops.aten


class KernelCost(NamedTuple):
    """The cost that a call adds to its operator."""

    flops: float
    bytes_moved: float
    kernels: int
    unknown: int = 0  # 1 if what it computes is not known
    products: float = 0.0  # those of the operations that belong to matrix products and convolutions


Rule: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any], Any], KernelCost | None]

_FREE = frozenset({
    "_unsafe_view", "_conj", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
    "resize_", "set_", "_local_scalar_dense", "_has_compatible_shallow_copy_type", "is_same_size", "sym_size",
    "sym_numel", "sym_stride", "_assert_tensor_metadata", "lift", "lift_fresh", "lift_fresh_copy",
    "record_stream", "_assert_async", "is_pinned", "split_with_sizes", "unsafe_split", "unsafe_chunk",
    "detach_", "scalar_tensor", "squeeze_", "unsqueeze_", "transpose_", "t_", "as_strided_", "swapaxes_",
    "unsafe_split_with_sizes", "empty_permuted", "_pin_memory", "set", "_functional_assert_async",
    "_functional_assert_scalar", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size",
    "_has_same_storage_numel", "_linalg_check_errors", "is_set_to", "_print",
    "_fused_sdp_choice", "_debug_has_internal_overlap",
})  # fmt: skip
_MOVES = frozenset({
    "clone", "copy", "copy_", "_to_copy", "cat", "stack", "_stack", "_chunk_cat", "constant_pad_nd",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "roll", "flip", "rot90", "repeat",
    "repeat_interleave", "select_backward", "slice_backward", "diagonal_backward", "tril", "tril_", "triu", "triu_",
    "masked_fill", "masked_fill_", "slice_scatter", "select_scatter", "upsample_nearest2d", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "diag", "complex", "_conj_physical", "resize", "resize_as", "resize_as_",
    "_pack_padded_sequence", "_pad_packed_sequence", "alias_copy", "as_strided_copy", "detach_copy", "diagonal_copy",
    "expand_copy", "narrow_copy", "permute_copy", "_reshape_copy", "select_copy", "slice_copy", "split_copy",
    "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unfold_copy",
    "unsqueeze_copy", "view_copy", "_fw_primal_copy",
})  # fmt: skip
_FILLS = frozenset({
    "fill_", "fill", "zero_", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_zeros", "new_ones",
    "new_full", "arange",
})  # fmt: skip
_GATHERS = frozenset({"embedding", "index", "_unsafe_index", "index_select", "gather", "take", "masked_select"})
_SCATTERS = frozenset({  # in place: write only the given values
    "index_put_", "_index_put_impl_", "index_add_", "index_copy_", "index_fill_", "scatter_add_", "scatter_",
    "scatter_reduce_", "masked_scatter_", "put_", "index_reduce_",
})  # fmt: skip
_COPYING_SCATTERS = frozenset({name.removesuffix("_") for name in _SCATTERS} | {"_index_put_impl", "_unsafe_index_put"})
_SCANS = frozenset({
    "cumsum", "cumsum_", "cumprod", "cumprod_", "cummax", "cummin", "_cummax_helper", "_cummin_helper", "logcumsumexp",
    "_logcumsumexp", "cumulative_trapezoid",
})  # fmt: skip
_SORTS = frozenset({"sort", "argsort", "msort", "unique_dim", "unique_consecutive", "_unique", "_unique2", "randperm"})
_SELECTIONS = frozenset({"topk", "kthvalue", "median", "nanmedian", "mode", "quantile"})
_RADIX_PASSES = 4  # over keys of 32 bits, 8 at once: https://nvidia.github.io/cccl/cub/
_rules: dict[Any, Rule | None] = {}


def cost_kernel(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    """The cost of a call; None if it runs no kernel."""
    try:
        rule = _rules[func]
    except KeyError:
        rule = _rules[func] = _find_rule(func)
    return None if rule is None else rule(args, kwargs, out)


def _find_rule(func: Any) -> Rule | None:
    packet = getattr(func, "overloadpacket", func)  # higher-order operators have none
    name = packet.__name__
    if getattr(func, "is_view", False) or name in _FREE:
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
    if name in _SCATTERS or name in _COPYING_SCATTERS:
        return _scatter if name in _SCATTERS else _copy_and_scatter
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name in LINEAR_ALGEBRA:
        return _solved(LINEAR_ALGEBRA[name])
    if name in _MOVES:
        return _move
    return _compute if is_one_pass(func) else _guess


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _elements(tensor: torch.Tensor) -> int:
    """Elements in memory; expanded dimensions count once, of sparse tensors only what they hold."""
    if tensor.layout is torch.sparse_coo:
        return tensor._nnz() * math.prod(tensor.shape[tensor.sparse_dim() :])
    if 0 not in tensor.stride():
        return tensor.numel()
    return math.prod(size for size, step in zip(tensor.shape, tensor.stride(), strict=True) if step)


def _sizes(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> tuple[float, float]:
    """Elements of the largest tensor, and bytes of all tensors on the device."""
    largest = moved = 0
    tensors = list(_tensors((*args, *kwargs.values(), out)))
    held = [_elements(tensor) for tensor in tensors if tensor.layout is torch.sparse_coo]
    for tensor in tensors:
        if isinstance(tensor, FakeTensor) or tensor.dim():  # numbers with data are on the host
            elements = _elements(tensor)
            if held and len(tensors) <= 3:  # of a dense tensor, a sparse one changes some rows only
                elements = min(elements, 2 * max(held))
            largest = max(largest, elements, tensor.numel() if not held else 0)
            moved += elements * tensor.element_size()
    return largest, moved


def _compute(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    largest, moved = _sizes(args, kwargs, out)
    return KernelCost(largest, moved, 1) if moved else None


def _guess(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    """As if it were element-wise, which the cost says."""
    largest, moved = _sizes(args, kwargs, out)
    return KernelCost(largest, moved, 1, unknown=1) if moved else None


def _move(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    _, moved = _sizes(args, kwargs, out)
    return KernelCost(0.0, moved, 1) if moved else None


def _fill(_args: Sequence[Any], _kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    _, moved = _sizes((), {}, out)
    return KernelCost(0.0, moved, 1) if moved else None


def _for_each(args: Sequence[Any], kwargs: Mapping[str, Any], _out: Any) -> KernelCost:
    """One kernel for many tensors, which writes as much as the first list holds."""
    _, moved = _sizes(args, kwargs, ())
    first = next(filter(None, (list(_tensors((each,))) for each in args)))  # after a number, as a base of powers
    elements = sum(_elements(tensor) for tensor in first)
    return KernelCost(elements, moved + elements * max(tensor.element_size() for tensor in first), 1)


def _gather(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost | None:
    _, indices = _sizes(args[1:], kwargs, ())
    return KernelCost(0.0, 2 * out.numel() * out.element_size() + indices, 1)


def _sum_rows(place: int) -> Rule:
    """Sums of rows of the table at this position, by the indices after it: no more of the table is read."""

    def rule(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
        table, indices = args[place : place + 2]
        elements = indices.numel() * table.shape[-1]
        _, others = _sizes((*args[:place], *args[place + 1 :]), kwargs, out)
        return KernelCost(elements, elements * table.element_size() + others, 1)

    return rule


def _scatter(args: Sequence[Any], kwargs: Mapping[str, Any], _out: Any) -> KernelCost | None:
    values = next((value for value in reversed(args) if isinstance(value, torch.Tensor)), args[0])
    _, given = _sizes(args[1:], kwargs, ())
    return KernelCost(values.numel(), given + 2 * values.numel() * values.element_size(), 1)


def _copy_and_scatter(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    """The first tensor is copied, then the values are written."""
    written = _scatter(args, kwargs, out)
    _, whole = _sizes((), {}, out)
    return None if written is None else KernelCost(written.flops, written.bytes_moved + 2 * whole, 2)


def _scan(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    """A scan reads twice: first the sums of blocks, then their elements."""
    largest, moved = _sizes(args[:1], {}, out)
    _, read = _sizes(args[:1], {}, ())
    return KernelCost(largest, moved + read, 1) if moved else None


def _sort(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    """Each pass of a radix sort reads and writes the keys and their places."""
    largest, moved = _sizes(args[:1], {}, out)
    row = _find_row(args)
    return KernelCost(largest * math.log2(max(2, row)), _RADIX_PASSES * moved, _RADIX_PASSES) if moved else None


def _find_row(args: Sequence[Any]) -> int:
    """The elements of the dimension along which a tensor is sorted."""
    first = next(_tensors(args), None)
    return first.shape[-1] if first is not None and first.dim() else 1


def _choose(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    """A radix selection reads the input once for each digit, then what it returns is sorted."""
    largest, read = _sizes(args[:1], {}, ())
    _, written = _sizes((), {}, out)
    return KernelCost(_RADIX_PASSES * largest, _RADIX_PASSES * read + 3 * written, 2) if read else None


def _transform(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
    """A Fourier transform: one kernel for each dimension reads and writes all values."""
    _, moved = _sizes(args[:1], {}, out)
    dimensions = max(1, len(args[1]))
    return KernelCost(count_fourier(args, out), moved * dimensions, dimensions) if moved else None


def _solved(formula: Callable[..., float]) -> Rule:
    def rule(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
        _, moved = _sizes(args, kwargs, out)
        return KernelCost(formula(*args, **kwargs), moved, 1) if moved else None

    return rule


def _counted(formula: Callable[..., int]) -> Rule:
    def rule(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
        _, moved = _sizes(args, kwargs, out)
        flops = float(formula(*args, **kwargs, out_val=out))
        return KernelCost(flops, moved, 1, products=flops)

    return rule


def _product(position: int) -> Rule:
    """A matrix product whose first factor is the argument at this position."""

    def rule(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost:
        _, moved = _sizes(args, kwargs, out)
        flops = 2.0 * out.numel() * args[position].shape[-1]
        return KernelCost(flops, moved, 1, products=flops)

    return rule


def _convolution_flops(data: torch.Tensor, weight: torch.Tensor, result: torch.Tensor, *, transposed: bool) -> float:
    positions = data.numel() if transposed else result.numel()
    return 2.0 * positions * math.prod(weight.shape[1:])


def _convolution(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost:
    _, moved = _sizes(args, kwargs, out)
    flops = _convolution_flops(args[0], args[1], out, transposed=args[6])
    return KernelCost(flops, moved, 1, products=flops)


def _convolution_backward(args: Sequence[Any], _kwargs: Mapping[str, Any], out: Sequence[Any]) -> KernelCost:
    """One pass for each requested gradient."""
    gradient, data, weight, transposed = args[0], args[1], args[2], args[7]
    passes = [result is not None for result in out]
    flops = _convolution_flops(data, weight, gradient, transposed=transposed) * sum(passes[:2])
    elements = (gradient.numel() + data.numel() + weight.numel()) * sum(passes[:2])
    products = flops
    if passes[2]:
        flops += gradient.numel()
        elements += gradient.numel() + out[2].numel()
    return KernelCost(flops, elements * gradient.element_size(), sum(passes), products=products)


def _grouped_product(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost:
    """One product for each group; the rows, the columns or the inner dimension are divided among the groups."""
    _, moved = _sizes(args, kwargs, out)
    first, second = args[:2]
    results = first.shape[0] * second.shape[-1] if first.dim() == second.dim() == 2 else out.numel()
    flops = 2.0 * results * first.shape[-1]
    return KernelCost(flops, moved, 1, products=flops)


def _all_products(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost:
    """Products of a batch, which are added."""
    _, moved = _sizes(args, kwargs, out)
    flops = 2.0 * args[1].numel() * args[2].shape[-1]
    return KernelCost(flops, moved, 1, products=flops)


def _three_factors(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost:
    """A bilinear layer: each row of the first factor meets the whole weight."""
    _, moved = _sizes(args, kwargs, out)
    flops = 2.0 * args[0].numel() / max(1, args[0].shape[-1]) * args[1].numel()
    return KernelCost(flops, moved, 1, products=flops)


def _time_convolution(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost:
    _, moved = _sizes(args, kwargs, out)
    flops = 2.0 * out.numel() * args[1].shape[0] * args[1].shape[1]
    return KernelCost(flops, moved, 1, products=flops)


def _attend(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost:
    _, moved = _sizes(args, kwargs, out)
    flops = float(sdpa_flop_count(*(each.shape for each in args[:3])))  # type: ignore[no-untyped-call]
    return KernelCost(flops, moved, 1, products=flops)


def _attend_backward(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost:
    _, moved = _sizes(args, kwargs, out)
    flops = float(sdpa_backward_flop_count(*(each.shape for each in args[:4])))  # type: ignore[no-untyped-call]
    return KernelCost(flops, moved, 1, products=flops)


def _distances(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost:
    _, moved = _sizes(args, kwargs, out)
    return KernelCost(3.0 * out.numel() * args[0].shape[-1], moved, 1)


def _inner_product(args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> KernelCost:
    _, moved = _sizes(args, kwargs, out)
    return KernelCost(2.0 * args[0].numel(), moved, 1)


_PRODUCTS: dict[Any, Rule] = {
    _aten.mm: _product(0),
    _aten.bmm: _product(0),
    _aten.addmm: _product(1),
    _aten.baddbmm: _product(1),
    _aten.convolution: _convolution,
    _aten.convolution_backward: _convolution_backward,
    **{
        getattr(_aten, name): rule
        for name, rule in {
            "mv": _product(0),
            "addmv": _product(1),
            "_addmm_activation": _product(1),
            "_int_mm": _product(0),
            "_weight_int8pack_mm": _product(0),
            "_weight_int4pack_mm": _product(0),
            "_grouped_mm": _grouped_product,
            "_scaled_grouped_mm": _grouped_product,
            "_scaled_grouped_mm_v2": _grouped_product,
            "_scaled_mm_v2": _product(0),
            "addmm_": _product(1),
            "baddbmm_": _product(1),
            "addmv_": _product(1),
            "addbmm": _all_products,
            "addbmm_": _all_products,
            "_trilinear": _three_factors,
            "conv_tbc": _time_convolution,
            "_scaled_dot_product_flash_attention_for_cpu": _attend,
            "_scaled_dot_product_fused_attention_overrideable": _attend,
            "_scaled_dot_product_flash_attention_for_cpu_backward": _attend_backward,
            "_scaled_dot_product_fused_attention_overrideable_backward": _attend_backward,
        }.items()
        if hasattr(_aten, name)  # some are newer than the oldest version that is supported
    },
}
_BY_NAME: dict[str, Rule] = {
    **dict.fromkeys(_SCANS, _scan),
    **dict.fromkeys(_SORTS, _sort),
    **dict.fromkeys(_SELECTIONS, _choose),
    **dict.fromkeys(("_fft_c2c", "_fft_r2c", "_fft_c2r"), _transform),
    **dict.fromkeys(("dot", "vdot"), _inner_product),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _sum_rows(0)),
    "_embedding_bag_per_sample_weights_backward": _sum_rows(1),
    **dict.fromkeys(("_cdist_forward", "_euclidean_dist", "_pdist_forward"), _distances),
}
