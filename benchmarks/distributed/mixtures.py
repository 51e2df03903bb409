"""Mixtures of experts and attention with latent keys, as Megatron-Core runs them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureShape:
    """The sizes of a mixture of experts."""

    experts: int
    chosen: int  # for each token
    inner: int  # of each expert
    shared: int = 0  # inner size of the expert that all tokens pass


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentShape:
    """The sizes of multi-head latent attention (https://arxiv.org/abs/2405.04434, section 2.1)."""

    queries: int  # latent
    keys: int  # latent
    plain: int  # width of a head without rotary embeddings
    rotary: int
    value: int


class Mixture(nn.Module):
    """Experts that tokens are sent to, all equally often."""

    def __init__(self, width: int, shape: MixtureShape) -> None:
        super().__init__()
        self.chosen = shape.chosen
        self.router = nn.Linear(width, shape.experts, bias=False)
        self.experts = _Experts(width, shape)
        self.shared_experts = _Shared(width, shape.shared) if shape.shared else None

    def forward(self, hidden: Tensor) -> Tensor:
        tokens = hidden.flatten(0, 1)
        scores = torch.softmax(self.router(tokens).float(), dim=-1)
        weights, _ = torch.topk(scores, self.chosen, dim=-1)
        after: Tensor = self.experts(tokens, weights.to(hidden.dtype)).view_as(hidden)
        return after if self.shared_experts is None else after + self.shared_experts(hidden)


class _Experts(nn.Module):
    """Tokens sorted by their experts, two grouped products, and the weighted sum of the results."""

    def __init__(self, width: int, shape: MixtureShape) -> None:
        super().__init__()
        self.count, self.chosen = shape.experts, shape.chosen
        self.gate_up_proj = nn.Parameter(torch.empty(shape.experts, width, 2 * shape.inner))
        self.down_proj = nn.Parameter(torch.empty(shape.experts, shape.inner, width))

    def forward(self, tokens: Tensor, weights: Tensor) -> Tensor:
        rows = tokens.shape[0] * self.chosen
        order = torch.empty(rows, dtype=torch.int64, device=tokens.device)
        ends = torch.empty(self.count, dtype=torch.int32, device=tokens.device)
        given: Tensor = _Permute.apply(tokens, order, self.chosen)  # type: ignore[no-untyped-call]
        gate, value = functional.grouped_mm(given, self.gate_up_proj, offs=ends).chunk(2, dim=-1)
        inner = functional.silu(gate) * value * weights.reshape(-1, 1)
        results = functional.grouped_mm(inner, self.down_proj, offs=ends)
        after: Tensor = _Unpermute.apply(results, order, self.chosen)  # type: ignore[no-untyped-call]
        return after


class _Permute(torch.autograd.Function):
    """Each token to all of its experts; backward, the sum of its gradients, in one kernel each.

    ``moe_permute_fusion`` of Megatron-Core, by the kernels in
    https://github.com/NVIDIA/TransformerEngine/blob/main/transformer_engine/pytorch/permutation.py.
    """

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, order: Tensor, chosen: int) -> Tensor:
        ctx.save_for_backward(order)
        ctx.chosen = chosen
        return tokens.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0].view(-1, ctx.chosen, gradients[0].shape[1]).sum(dim=1), None, None


class _Unpermute(torch.autograd.Function):
    """The sum of what a token's experts give, in one kernel; backward, its gradient for each of them."""

    @staticmethod
    def forward(ctx: Any, results: Tensor, order: Tensor, chosen: int) -> Tensor:
        ctx.save_for_backward(order)
        return results.view(-1, chosen, results.shape[1]).sum(dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (order,) = ctx.saved_tensors
        return gradients[0].index_select(0, order), None, None


class _Shared(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(width, 2 * inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        gate, value = self.gate_up_proj(hidden).chunk(2, dim=-1)
        after: Tensor = self.down_proj(functional.silu(gate) * value)
        return after


class LatentAttention(nn.Module):
    """Attention whose queries and keys are made from small latent vectors."""

    def __init__(self, width: int, heads: int, shape: LatentShape) -> None:
        super().__init__()
        self.heads, self.shape = heads, shape
        self.query_down = nn.Linear(width, shape.queries, bias=False)
        self.query_norm = nn.RMSNorm(shape.queries)
        self.q_proj = nn.Linear(shape.queries, heads * (shape.plain + shape.rotary), bias=False)
        self.key_down = nn.Linear(width, shape.keys + shape.rotary, bias=False)
        self.key_norm = nn.RMSNorm(shape.keys)
        self.k_proj = nn.Linear(shape.keys, heads * (shape.plain + shape.value), bias=False)
        self.o_proj = nn.Linear(heads * shape.value, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, tokens, _ = hidden.shape
        shape, heads = self.shape, self.heads
        query = self.q_proj(self.query_norm(self.query_down(hidden))).view(batch, tokens, heads, -1)
        latent, turned = self.key_down(hidden).split((shape.keys, shape.rotary), dim=-1)
        mixed = self.k_proj(self.key_norm(latent)).view(batch, tokens, heads, -1)
        plain, value = mixed.split((shape.plain, shape.value), dim=-1)
        sines = torch.empty(tokens, 1, shape.rotary, dtype=hidden.dtype, device=hidden.device)
        still, moving = query.split((shape.plain, shape.rotary), dim=-1)
        query = torch.cat((still, moving * sines), dim=-1)
        shared = (turned.unsqueeze(2) * sines).expand(-1, -1, heads, -1)
        key = torch.cat((plain, shared), dim=-1)
        context = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        after: Tensor = self.o_proj(context.transpose(1, 2).reshape(batch, tokens, -1))
        return after
