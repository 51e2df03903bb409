"""MPT as LLM Foundry trained it: PyTorch, flash attention, norms in half precision, nothing compiled.

The loss is that of flash-attn, which reads the scores of words once, and once more for their gradients.

https://github.com/mosaicml/llm-foundry/blob/main/llmfoundry/models/mpt/modeling_mpt.py; the benchmark sets
``low_precision_layernorm``: https://github.com/mosaicml/llm-foundry/blob/main/scripts/train/benchmarking/submit_benchmarks.py
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_WORDS = 50368


@dataclass(frozen=True, slots=True, kw_only=True)
class MptShape:
    """The sizes of an MPT."""

    layers: int
    width: int
    heads: int


# https://github.com/mosaicml/llm-foundry/tree/main/scripts/train/yamls/pretrain
SHAPES = {
    "125m": MptShape(layers=12, width=768, heads=12),
    "350m": MptShape(layers=24, width=1024, heads=16),
    "760m": MptShape(layers=24, width=1536, heads=12),
    "1b": MptShape(layers=24, width=2048, heads=16),
    "3b": MptShape(layers=32, width=2560, heads=20),
    "7b": MptShape(layers=32, width=4096, heads=32),
    "13b": MptShape(layers=40, width=5120, heads=40),
    "30b": MptShape(layers=48, width=7168, heads=56),
    "70b": MptShape(layers=80, width=8192, heads=64),
}


class Mpt(nn.Module):
    """An MPT that returns its loss."""

    def __init__(self, shape: MptShape, tokens: int) -> None:
        super().__init__()
        self.num_attention_heads = shape.heads
        self.wte = nn.Embedding(_WORDS, shape.width)
        self.wpe = nn.Embedding(tokens, shape.width)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.layers))
        self.norm_f = _Norm(shape.width)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        hidden = (self.wte(ids) + self.wpe(places)).to(torch.bfloat16)
        for block in self.blocks:
            hidden = block(hidden)
        logits = functional.linear(self.norm_f(hidden), self.wte.weight)
        loss: Tensor = _CrossEntropy.apply(logits.flatten(0, 1), ids.flatten())  # type: ignore[no-untyped-call]
        return loss.mean()


class _CrossEntropy(torch.autograd.Function):
    """https://github.com/Dao-AILab/flash-attention/blob/main/flash_attn/losses/cross_entropy.py."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        ctx.save_for_backward(logits, targets)
        return logits.amax(dim=-1).float()  # reads as much as the sum of exponentials

    @staticmethod
    def backward(ctx: Any, *_gradients: Tensor) -> Any:
        logits, _targets = ctx.saved_tensors
        return torch.softmax(logits, dim=-1), None


class _Norm(nn.LayerNorm):
    def forward(self, hidden: Tensor) -> Tensor:
        with torch.autocast("cuda", enabled=False):
            weight, bias = self.weight.to(hidden.dtype), self.bias.to(hidden.dtype)
            return functional.layer_norm(hidden, self.normalized_shape, weight, bias, self.eps)


class _Block(nn.Module):
    def __init__(self, shape: MptShape) -> None:
        super().__init__()
        self.norm_1 = _Norm(shape.width)
        self.attn = _Attention(shape)
        self.norm_2 = _Norm(shape.width)
        self.ffn = _Mlp(shape.width)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attn(self.norm_1(hidden))
        after: Tensor = hidden + self.ffn(self.norm_2(hidden))
        return after


class _Attention(nn.Module):
    def __init__(self, shape: MptShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.Wqkv = nn.Linear(shape.width, 3 * shape.width)
        self.out_proj = nn.Linear(shape.width, shape.width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, tokens, width = hidden.shape
        query, key, value = (
            each.view(batch, tokens, self.heads, -1).transpose(1, 2) for each in self.Wqkv(hidden).chunk(3, dim=-1)
        )
        context = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        after: Tensor = self.out_proj(context.transpose(1, 2).reshape(batch, tokens, width))
        return after


class _Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up_proj = nn.Linear(width, 4 * width)
        self.down_proj = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        after: Tensor = self.down_proj(functional.gelu(self.up_proj(hidden)))
        return after
