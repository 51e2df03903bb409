"""Calls that PyTorch itself refuses on meta tensors, or runs otherwise there than on a GPU."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional


def find_result(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """The empty result of a call on meta tensors; None if PyTorch knows it."""
    build = _BUILDERS.get(func)
    if build is None or args[0].device.type != "meta":
        return None
    return build(args, kwargs)


def _multiply_groups(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """Of products of groups, which PyTorch accepts on meta tensors in bfloat16 only, but on devices in all types."""
    first, second = args[:2]
    offsets = kwargs.get("offs", args[2] if len(args) > 2 else None)
    dtype = kwargs.get("out_dtype") or first.dtype
    shape: tuple[int, ...] = (first.shape[-2], second.shape[-1])
    if first.dim() == second.dim():  # both in groups already, or the inner dimension is divided
        shape = (offsets.shape[0] if first.dim() == 2 else first.shape[0], *shape)
    return torch.empty(shape, dtype=dtype, device="meta")


_BUILDERS: dict[Any, Callable[[Sequence[Any], Mapping[str, Any]], torch.Tensor]] = (
    {torch.ops.aten._grouped_mm.default: _multiply_groups} if hasattr(torch.ops.aten, "_grouped_mm") else {}
)


# Attention inside of a multi-head attention: one kernel on a GPU, products and a softmax on meta tensors


@contextmanager
def use_fused_attention(kind: str) -> Iterator[None]:
    """Let a multi-head attention call the kernel that a GPU would run."""
    if kind != "multi_head_attention_forward":
        yield
        return
    own = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = _attend  # type: ignore[assignment]
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = own


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **_others: Any,
) -> torch.Tensor:
    """Attention by the flash kernel, or by the one that takes a mask."""
    if attn_mask is None and query.dtype in (torch.float16, torch.bfloat16):
        found = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal)
    else:
        mask = None
        if attn_mask is not None:
            mask = attn_mask.expand(*query.shape[:-1], key.shape[-2]).to(query.dtype)
        learns = torch.is_grad_enabled()
        found = torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, mask, learns, dropout_p, is_causal
        )
    return torch.as_tensor(found[0])
