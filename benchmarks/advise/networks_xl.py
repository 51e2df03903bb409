"""Transformer-XL as NVIDIA's DeepLearningExamples train it on WikiText-103.

https://github.com/NVIDIA/DeepLearningExamples/blob/master/PyTorch/LanguageModeling/Transformer-XL/pytorch/mem_transformer.py
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.workloads.step_options import InputSpec

_WORDS = 267735
_CUTOFFS = (19997, 39997, 199997, _WORDS)
# Tokens of WikiText-103 whose word is in each part of the vocabulary after the first: assumed, about by Zipf's law.
_SHARES = (0.035, 0.035, 0.003)
_DIVISOR = 4  # of the width of embeddings from part to part, in the large network


@dataclass(frozen=True, slots=True, kw_only=True)
class XlShape:
    """The sizes of a Transformer-XL; its memory is as long as its segments."""

    layers: int
    width: int
    heads: int
    inner: int
    tokens: int
    dropout: float
    divides: bool  # rarer words have narrower embeddings


def describe_segments(shape: XlShape) -> Callable[[int], tuple[InputSpec, ...]]:
    """Token ids, and the hidden states of the segment before for each layer."""
    memory = (shape.tokens, shape.layers * shape.width)
    return lambda batch: (
        InputSpec(shape=(batch, shape.tokens), dtype="int64", high=_WORDS, name="ids"),
        InputSpec(shape=(batch, *memory), name="memory"),
    )


class TransformerXl(nn.Module):
    """A Transformer-XL with adaptive embeddings and softmax, that returns its loss."""

    def __init__(self, shape: XlShape) -> None:
        super().__init__()
        self.shape = shape
        starts = (0, *_CUTOFFS[:-1])
        widths = [shape.width // (_DIVISOR**place if shape.divides else 1) for place in range(len(_CUTOFFS))]
        self.parts = nn.ModuleList(
            nn.Embedding(end - start, width) for start, end, width in zip(starts, _CUTOFFS, widths, strict=True)
        )
        self.project = nn.ModuleList(nn.Linear(width, shape.width, bias=False) for width in widths)
        self.clusters = nn.Parameter(torch.empty(len(_SHARES), widths[0]))
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.layers))
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, ids: Tensor, memory: Tensor) -> Tensor:
        shape = self.shape
        hidden = self.dropout(self._embed(ids.t()) * shape.width**0.5)
        places = torch.empty(2 * shape.tokens, shape.width, dtype=hidden.dtype, device=hidden.device)
        states = memory.transpose(0, 1).chunk(shape.layers, dim=-1)
        for layer, before in zip(self.layers, states, strict=True):
            hidden = layer(hidden, places, before)
        return self._compare(self.dropout(hidden).flatten(0, 1), ids.flatten())

    def _embed(self, ids: Tensor) -> Tensor:
        if not self.shape.divides:
            return functional.embedding(ids, torch.cat([self._find_words(place) for place in range(len(_CUTOFFS))]))
        common = functional.embedding(ids.clamp(max=_CUTOFFS[0] - 1), self._find_words(0))
        found = self.project[0](common)
        flat = found.flatten(0, 1)
        for place, share in enumerate(_SHARES, start=1):
            words = self._find_words(place)
            few = ids.flatten()[: max(1, int(share * ids.numel()))].clamp(max=words.shape[0] - 1)
            flat = flat.index_add(0, few, self.project[place](functional.embedding(few, words)).to(flat.dtype))
        after: Tensor = flat.view_as(found)
        return after

    def _compare(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """The loss by parts of the vocabulary: common words and the parts of rare ones, then rare words."""
        words = torch.cat((self._find_words(0), self.clusters))
        loss = functional.cross_entropy(functional.linear(self._reduce(hidden, 0), words).float(), ids)
        for place, share in enumerate(_SHARES, start=1):
            few = max(1, int(share * ids.numel()))
            scores = functional.linear(self._reduce(hidden[:few], place), self._find_words(place))
            loss = loss + functional.cross_entropy(scores.float(), ids[:few])
        return loss

    def _find_words(self, place: int) -> Tensor:
        return self.parts.get_parameter(f"{place}.weight")

    def _reduce(self, hidden: Tensor, place: int) -> Tensor:
        if not self.shape.divides:
            return hidden
        return functional.linear(hidden, self.project.get_parameter(f"{place}.weight").t())


class _Layer(nn.Module):
    def __init__(self, shape: XlShape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.places = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.biases = nn.ParameterList(torch.empty(shape.heads, width // shape.heads) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, shape.inner), nn.Linear(shape.inner, width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor, places: Tensor, memory: Tensor) -> Tensor:
        hidden = self.norms[0](hidden + self.dropout(self._attend(hidden, places, memory)))
        inner = self.dropout(functional.relu(self.up(hidden)))
        after: Tensor = self.norms[1](hidden + self.dropout(self.down(inner)))
        return after

    def _attend(self, hidden: Tensor, places: Tensor, memory: Tensor) -> Tensor:
        tokens, batch, width = hidden.shape
        mixed = self.qkv(torch.cat((memory.to(hidden.dtype), hidden))).chunk(3, dim=-1)
        size = width // self.heads
        query, key, value = (each.view(2 * tokens, batch, self.heads, size) for each in mixed)
        query = query[tokens:]
        where = self.places(places).view(2 * tokens, self.heads, size)
        by_content = torch.einsum("ibnd,jbnd->bnij", query + self.biases[0], key)
        by_place = torch.einsum("ibnd,jnd->bnij", query + self.biases[1], where)
        scores = (by_content + _shift(by_place)) * size**-0.5
        future = torch.empty(tokens, 2 * tokens, dtype=torch.bool, device=hidden.device)
        weights = self.dropout(scores.masked_fill_(future, float("-inf")).softmax(dim=-1))
        found = torch.einsum("bnij,jbnd->ibnd", weights, value)
        after: Tensor = self.output(found.reshape(tokens, batch, width))
        return after


def _shift(scores: Tensor) -> Tensor:
    """Scores by distance as scores by place."""
    batch, heads, tokens, keys = scores.shape
    padded = torch.cat((torch.zeros(batch, heads, tokens, 1, dtype=scores.dtype, device=scores.device), scores), dim=-1)
    return padded.view(batch, heads, keys + 1, tokens)[:, :, 1:].reshape(batch, heads, tokens, keys)
