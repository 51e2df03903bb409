"""GPT as Megatron-LM and Megatron-DeepSpeed ran it in 2022: attention step by step, without flash attention.

Tokens come before examples, so that heads are views and only the result of attention is copied; the scaled and masked
softmax is one kernel (``--masked-softmax-fusion``), biases and activations are another. See
https://github.com/microsoft/Megatron-DeepSpeed/blob/main/megatron/model/transformer.py and, for the authors of vTrain,
https://github.com/VIA-Research/vTrain/blob/main/src/model/gpt_modeling.py.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_DROPOUT = 0.1  # of attention, of hidden states and of the embedding: Megatron's defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class GptShape:
    """The sizes of a GPT."""

    layers: int
    width: int
    heads: int
    tokens: int
    words: int


class MegatronGpt(nn.Module):
    """A GPT that returns its loss."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.num_attention_heads = shape.heads
        self.word_embeddings = nn.Embedding(shape.words, shape.width)
        self.position_embeddings = nn.Embedding(shape.tokens, shape.width)
        self.dropout = nn.Dropout(_DROPOUT)
        self.layers = nn.ModuleList(_Layer(shape.width, shape.heads) for _ in range(shape.layers))
        self.final_norm = nn.LayerNorm(shape.width)
        self.lm_head = nn.Linear(shape.width, shape.words, bias=False)
        self.lm_head.weight = self.word_embeddings.weight

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        embedded = self.dropout(self.word_embeddings(ids) + self.position_embeddings(places))
        hidden = embedded.transpose(0, 1).contiguous()
        for layer in self.layers:
            hidden = layer(hidden)
        logits = self.lm_head(self.final_norm(hidden))
        loss: Tensor = _CrossEntropy.apply(logits.float(), ids.transpose(0, 1).contiguous())  # type: ignore[no-untyped-call]
        return loss.mean()


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(width)
        self.attention = _Attention(width, heads)
        self.post_attention_layernorm = nn.LayerNorm(width)
        self.mlp = _Mlp(width)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.dropout(self.attention(self.input_layernorm(hidden)))
        after: Tensor = hidden + self.dropout(self.mlp(self.post_attention_layernorm(hidden)))
        return after


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.dense = nn.Linear(width, width)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, hidden: Tensor) -> Tensor:
        tokens, batch, width = hidden.shape
        mixed = self.query_key_value(hidden).view(tokens, batch * self.heads, -1)
        query, key, value = (each.transpose(0, 1) for each in mixed.chunk(3, dim=-1))
        scores = torch.bmm(query, key.transpose(1, 2)).view(batch, self.heads, tokens, tokens)
        weights = self.dropout(torch.softmax(scores, dim=-1))
        context = torch.bmm(weights.view(batch * self.heads, tokens, tokens), value)
        merged = context.view(batch, self.heads, tokens, -1).permute(2, 0, 1, 3).contiguous()
        result: Tensor = self.dense(merged.view(tokens, batch, width))
        return result


class _Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense_h_to_4h = nn.Linear(width, 4 * width)
        self.dense_4h_to_h = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        after: Tensor = self.dense_4h_to_h(functional.gelu(self.dense_h_to_4h(hidden), approximate="tanh"))
        return after


class _CrossEntropy(torch.autograd.Function):
    """The loss of words that are divided among GPUs, in single precision and in several passes.

    https://github.com/microsoft/Megatron-DeepSpeed/blob/main/megatron/core/tensor_parallel/cross_entropy.py
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        logits = logits - logits.amax(dim=-1, keepdim=True)
        chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        weights = logits.exp()
        total = weights.sum(dim=-1, keepdim=True)
        ctx.save_for_backward(weights.div_(total), targets)
        return total.squeeze(-1).log() - chosen

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        weights, _targets = ctx.saved_tensors
        return weights.mul_(gradient.unsqueeze(-1)), None
