"""Language models as Megatron-Core runs them with Transformer Engine: flash attention, one product for queries, keys
and values and one for the gate and the value of an MLP, experts as grouped products.

Element-wise work is fused there: rotary embeddings, activations with their gates, norms, dropout-free additions and the
loss (``apply_rope_fusion``, ``bias_activation_fusion``, ``cross_entropy_loss_fusion`` in
https://github.com/NVIDIA-NeMo/Megatron-Bridge/blob/main/src/megatron/bridge/recipes). Such chains are written out here
and fused when the step is captured.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.distributed.mixtures import LatentAttention, LatentShape, Mixture, MixtureShape


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """The sizes of a decoder."""

    layers: int
    width: int
    heads: int
    key_heads: int
    inner: int  # of the MLP
    words: int
    head_width: int = 0  # 0 for width / heads
    activation: str = "silu"  # silu with a gate, gelu, or relu2
    norm: str = "rms"  # or layer
    learned_places: int = 0  # positions with an embedding; 0 for rotary ones
    tied: bool = False  # the words of input and output
    norm_of_queries: bool = False
    mixture: MixtureShape | None = None
    latent: LatentShape | None = None
    dense_layers: int = 0  # before those with experts
    predicted_layers: int = 0  # that predict one more token each


class Decoder(nn.Module):
    """A causal language model that returns its loss."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.num_attention_heads = shape.heads
        self.embed_tokens = nn.Embedding(shape.words, shape.width)
        self.embed_positions = nn.Embedding(shape.learned_places, shape.width) if shape.learned_places else None
        self.layers = nn.ModuleList(_Layer(shape, number) for number in range(shape.layers))
        self.predicted = nn.ModuleList(_NextToken(shape) for _ in range(shape.predicted_layers))
        self.norm = build_norm(shape, shape.width)
        self.lm_head = nn.Linear(shape.width, shape.words, bias=False)
        if shape.tied:
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        embedded = self.embed_tokens(ids)
        hidden = embedded
        if self.embed_positions is not None:
            hidden = hidden + self.embed_positions(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            hidden = layer(hidden)
        loss = self._compare(hidden, ids)
        for layer in self.predicted:
            hidden = layer(hidden, embedded)
            loss = loss + self._compare(hidden, ids)
        return loss

    def _compare(self, hidden: Tensor, ids: Tensor) -> Tensor:
        logits = self.lm_head(self.norm(hidden)).float()
        return functional.cross_entropy(logits.flatten(0, 1), ids.flatten())


class _Layer(nn.Module):
    def __init__(self, shape: DecoderShape, number: int) -> None:
        super().__init__()
        self.input_layernorm = build_norm(shape, shape.width)
        latent = shape.latent
        self.self_attn = LatentAttention(shape.width, shape.heads, latent) if latent else _Attention(shape)
        self.post_attention_layernorm = build_norm(shape, shape.width)
        mixed = shape.mixture is not None and number >= shape.dense_layers
        self.mlp = Mixture(shape.width, shape.mixture) if mixed and shape.mixture else _Mlp(shape)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden))
        after: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return after


class _NextToken(nn.Module):
    """A layer that predicts one more token (https://arxiv.org/abs/2412.19437, section 2.2)."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.hidden_norm = build_norm(shape, shape.width)
        self.word_norm = build_norm(shape, shape.width)
        self.join = nn.Linear(2 * shape.width, shape.width, bias=False)
        self.layer = _Layer(shape, shape.layers)

    def forward(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        joined = torch.cat((self.hidden_norm(hidden), self.word_norm(embedded)), dim=-1)
        after: Tensor = self.layer(self.join(joined))
        return after


class _Attention(nn.Module):
    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        width = shape.head_width or shape.width // shape.heads
        self.heads, self.key_heads = shape.heads, shape.key_heads
        self.rotates = not shape.learned_places
        self.qkv_proj = nn.Linear(shape.width, (shape.heads + 2 * shape.key_heads) * width, bias=False)
        self.q_norm = build_norm(shape, width) if shape.norm_of_queries else None
        self.k_norm = build_norm(shape, width) if shape.norm_of_queries else None
        self.o_proj = nn.Linear(shape.heads * width, shape.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, tokens, _ = hidden.shape
        mixed = self.qkv_proj(hidden).view(batch, tokens, self.heads + 2 * self.key_heads, -1)
        query, key, value = mixed.split((self.heads, self.key_heads, self.key_heads), dim=2)
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        if self.rotates:
            query, key = rotate(query), rotate(key)
        context = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=self.key_heads < self.heads,
        )
        after: Tensor = self.o_proj(context.transpose(1, 2).reshape(batch, tokens, -1))
        return after


class _Mlp(nn.Module):
    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.activation = shape.activation
        gates = 2 if shape.activation == "silu" else 1
        name = "gate_up_proj" if gates == 2 else "up_proj"
        self.add_module(name, nn.Linear(shape.width, gates * shape.inner, bias=False))
        self.first = name
        self.down_proj = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        inner = getattr(self, self.first)(hidden)
        after: Tensor = self.down_proj(activate(inner, self.activation))
        return after


def activate(inner: Tensor, activation: str) -> Tensor:
    """The activation of an MLP, with its gate if it has one."""
    if activation == "silu":
        gate, value = inner.chunk(2, dim=-1)
        return functional.silu(gate) * value
    return functional.gelu(inner, approximate="tanh") if activation == "gelu" else functional.relu(inner).square()


def build_norm(shape: DecoderShape, width: int) -> nn.Module:
    """A norm of the kind that the decoder has."""
    return nn.RMSNorm(width) if shape.norm == "rms" else nn.LayerNorm(width)


def rotate(heads: Tensor) -> Tensor:
    """Heads with rotary embeddings of their places; the sines are known."""
    tokens, width = heads.shape[1], heads.shape[-1]
    sines = torch.empty(tokens, 1, width, dtype=heads.dtype, device=heads.device)
    first, second = heads.chunk(2, dim=-1)
    return heads * sines + torch.cat((-second, first), dim=-1) * sines
