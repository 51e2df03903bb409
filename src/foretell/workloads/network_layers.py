"""Random sizes, and the layers of which random networks are built."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.core.workload import Shape

Choice = TypeVar("Choice")

CLASSES = (2, 1000)
VOCABULARY = (100, 8000)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSpec:
    """How to build a network, the shape of one example of its input, and how it is trained."""

    name: str
    build: Callable[[], nn.Module]
    example: Shape  # of the input, without the batch
    high: int | None = None  # upper limit of an integer input
    loss: str = "cross_entropy"
    optimizer: str = "sgd"


class Sampler:
    """Random sizes and choices. The same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not used for secrets

    def size(self, low: int, high: int, *, multiple: int = 1) -> int:
        """A size, log-uniform."""
        value = math.exp(self._random.uniform(math.log(low), math.log(high)))
        return max(multiple, round(value / multiple) * multiple)

    def choice(self, *values: Choice) -> Choice:
        return self._random.choice(values)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def real(self, low: float, high: float) -> float:
        """A number, log-uniform."""
        return math.exp(self._random.uniform(math.log(low), math.log(high)))


# Parts


class Residual(nn.Module):
    """A residual connection around a module."""

    def __init__(self, inner: nn.Module, *, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        y = y + x
        return self.activation(y) if self.activation is not None else y


class SqueezeExcite(nn.Module):
    """Squeeze-and-excitation: scales channels by their means."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, inner, 1)
        self.second = nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = functional.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.second(functional.relu(self.first(scale))))


class Transposed(nn.Module):
    """Applies a module along the second axis instead of the last."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x.transpose(1, 2))
        return y.transpose(1, 2)


class Attention(nn.Module):
    """Multi-head attention, fused or as separate operators."""

    def __init__(self, width: int, heads: int, *, fused: bool, causal: bool) -> None:
        super().__init__()
        self.heads, self.fused, self.causal = heads, fused, causal
        self.joint = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.joint(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = split[0], split[1], split[2]
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        else:
            scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
            mixed = functional.softmax(scores, dim=-1) @ value
        y: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return y


class SelfAttention(nn.Module):
    """The attention layer of PyTorch."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x, x, x, need_weights=False)[0]
        return y


class Positions(nn.Module):
    """Adds learned positions to tokens."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(1, length, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


class Patches(nn.Module):
    """Splits an image into patches."""

    def __init__(self, width: int, side: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, side, stride=side)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.cut(x)
        return y.flatten(2).transpose(1, 2)


class TokenMean(nn.Module):
    """The mean over the second axis."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=1)


class TokenRows(nn.Module):
    """Flattens batch and tokens into rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, x.shape[-1])


class Recurrent(nn.Module):
    """A recurrent layer; returns the last state, or all of them as rows."""

    def __init__(self, inner: nn.LSTM | nn.GRU, *, last: bool) -> None:
        super().__init__()
        self.inner = inner
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.inner(x)[0]
        return states[:, -1] if self.last else states.reshape(-1, states.shape[-1])


class Level(nn.Module):
    """One level of an encoder-decoder, optionally with a skip connection."""

    def __init__(self, down: nn.Module, inner: nn.Module, up: nn.Module, *, skip: bool) -> None:
        super().__init__()
        self.down, self.inner, self.up, self.skip = down, inner, up, skip

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(self.inner(self.down(x)))
        return torch.cat([x, y], dim=1) if self.skip else y


def build_attention(width: int, heads: int, *, style: str, causal: bool) -> nn.Module:
    """Attention in one of three styles: ``framework``, ``fused`` or ``steps``."""
    if style == "framework":
        return SelfAttention(width, heads)
    return Attention(width, heads, fused=style == "fused", causal=causal)


def build_feed_forward(width: int, inner: int, *, act: Callable[[], nn.Module], dropped: bool) -> nn.Module:
    """The feed-forward block of a transformer."""
    last: Sequence[nn.Module] = [nn.Dropout(0.1)] if dropped else []
    return nn.Sequential(nn.Linear(width, inner), act(), nn.Linear(inner, width), *last)
