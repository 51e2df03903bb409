"""Attention inside of a multi-head attention: one kernel on a GPU, products and a softmax without one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional


@contextmanager
def use_fused_attention(kind: str, *, on_gpu: bool = True) -> Iterator[None]:
    """Let a multi-head attention call the kernel that a GPU would run, or a CPU."""
    if kind != "multi_head_attention_forward":
        yield
        return
    own = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = attend if on_gpu else attend_on_cpu  # type: ignore[assignment]
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = own


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **_others: Any,
) -> torch.Tensor:
    """Attention by the flash kernel, or by the one that takes a mask, or step by step where neither can."""
    half = query.dtype in (torch.float16, torch.bfloat16)
    if query.shape[-3] != key.shape[-3] and not (half and attn_mask is None):  # only flash shares keys among heads
        found = torch.ops.aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, enable_gqa=True
        )
    elif attn_mask is None and half:
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


def attend_on_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **others: Any,
) -> torch.Tensor:
    """Attention by the fused kernel of a CPU, or step by step where it cannot: with dropout, or learned masks."""
    if query.dim() != 4 or dropout_p or (attn_mask is not None and attn_mask.requires_grad):
        math = torch.ops.aten._scaled_dot_product_attention_math
        return torch.as_tensor(math(query, key, value, attn_mask, dropout_p, is_causal, **others)[0])
    mask = attn_mask
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return torch.as_tensor(kernel(query, key, value, 0.0, is_causal, attn_mask=mask, scale=others.get("scale"))[0])
