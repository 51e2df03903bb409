"""Random small networks: what a device is learned on. One number draws one network, always the same."""

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
class Network:
    """A network to be built, what one example of its input is like, and how it is trained."""

    name: str
    build: Callable[[], nn.Module]
    example: Shape  # of the input, without the batch
    high: int | None = None  # where the input are whole numbers: below this
    loss: str = "cross_entropy"
    optimizer: str = "sgd"


class Draw:
    """Random numbers by what they are for."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secrets here

    def size(self, low: int, high: int, *, multiple: int = 1) -> int:
        """Small ones as often as large ones, in the sense of their ratio."""
        value = math.exp(self._random.uniform(math.log(low), math.log(high)))
        return max(multiple, round(value / multiple) * multiple)

    def pick(self, *values: Choice) -> Choice:
        return self._random.choice(values)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def real(self, low: float, high: float) -> float:
        """Evenly in the sense of the ratio."""
        return math.exp(self._random.uniform(math.log(low), math.log(high)))


def draw_network(number: int, *, seed: int = 0) -> Network:
    """One of the endless row; kinds take turns."""
    draw = Draw(seed * 1_000_003 + number)
    word, drawing = _KINDS[number % len(_KINDS)]
    network = drawing(draw)
    return Network(
        name=f"{word}-{seed}-{number}",
        build=network.build,
        example=network.example,
        high=network.high,
        loss=network.loss,
        optimizer=draw.pick("sgd", "sgd", "adam", "adamw"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    build: Callable[[], nn.Module]
    example: Shape
    high: int | None = None
    loss: str = "cross_entropy"


# Parts


class Residual(nn.Module):
    """Adds what comes in to what its parts make of it."""

    def __init__(self, inner: nn.Module, *, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        y = y + x
        return self.activation(y) if self.activation is not None else y


class Squeeze(nn.Module):
    """Scales channels by what is seen in all of them."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, inner, 1)
        self.second = nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = functional.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.second(functional.relu(self.first(scale))))


class Swapped(nn.Module):
    """Works along the second axis instead of the last."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x.transpose(1, 2))
        return y.transpose(1, 2)


class Attention(nn.Module):
    """Attention of many heads, fused or step by step."""

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
    """The framework's own attention layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x, x, x, need_weights=False)[0]
        return y


class Positions(nn.Module):
    """Adds a learned place to each token."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(1, length, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


class Tokens(nn.Module):
    """Cuts an image into squares."""

    def __init__(self, width: int, side: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, side, stride=side)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.cut(x)
        return y.flatten(2).transpose(1, 2)


class Averaged(nn.Module):
    """The mean over the second axis."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=1)


class EachToken(nn.Module):
    """All tokens of a batch as rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, x.shape[-1])


class Recurrent(nn.Module):
    """Reads tokens one after another; keeps the last state, or all of them."""

    def __init__(self, inner: nn.LSTM | nn.GRU, *, last: bool) -> None:
        super().__init__()
        self.inner = inner
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.inner(x)[0]
        return states[:, -1] if self.last else states.reshape(-1, states.shape[-1])


class Joined(nn.Module):
    """Narrows, works inside, widens again; what was there before may go along."""

    def __init__(self, down: nn.Module, inner: nn.Module, up: nn.Module, *, skip: bool) -> None:
        super().__init__()
        self.down, self.inner, self.up, self.skip = down, inner, up, skip

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(self.inner(self.down(x)))
        return torch.cat([x, y], dim=1) if self.skip else y


# Networks of images


def _convolution(
    draw: Draw, inside: int, outside: int, *, kernel: int, stride: int = 1, groups: int = 1, normed: bool
) -> list[nn.Module]:
    parts: list[nn.Module] = [
        nn.Conv2d(inside, outside, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=not normed)
    ]
    if normed:
        parts.append(nn.BatchNorm2d(outside))
    return parts


def _draw_plain(draw: Draw) -> _Drawn:
    """Convolutions and pools, as LeNet, VGG and their kin."""
    seed = draw.size(1, 1 << 30)
    side, channels = draw.size(12, 96, multiple=4), draw.pick(1, 3)
    return _Drawn(build=lambda: _build_plain(Draw(seed), channels, side), example=(channels, side, side))


def _build_plain(draw: Draw, channels: int, side: int) -> nn.Module:
    normed, act = draw.chance(0.5), draw.pick(_relu, _relu, nn.Tanh, nn.SiLU, nn.LeakyReLU)
    kernel, width = draw.pick(3, 3, 5, 7, 1), draw.size(4, 96)
    parts: list[nn.Module] = []
    for _stage in range(draw.pick(1, 2, 3)):
        for _layer in range(draw.pick(1, 1, 2, 3)):
            parts += [*_convolution(draw, channels, width, kernel=kernel, normed=normed), act()]
            channels = width
        if side >= 8:
            parts.append(draw.pick(nn.MaxPool2d(2), nn.MaxPool2d(2), nn.AvgPool2d(2)))
            side //= 2
        width = min(256, round(width * draw.pick(1.0, 1.5, 2.0)))
        kernel = draw.pick(kernel, 3)
    if draw.chance(0.5):
        parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        inside = channels
    else:
        parts.append(nn.Flatten())
        inside = channels * side * side
    return nn.Sequential(*parts, *_draw_head(draw, inside))


def _draw_head(draw: Draw, inside: int) -> list[nn.Module]:
    parts: list[nn.Module] = []
    for _layer in range(draw.pick(0, 1, 2)):
        width = draw.size(16, 512)
        parts += [nn.Linear(inside, width), nn.ReLU()]
        if draw.chance(0.4):
            parts.append(nn.Dropout(0.5))
        inside = width
    return [*parts, nn.Linear(inside, draw.size(*CLASSES))]


def _draw_residual(draw: Draw) -> _Drawn:
    """Blocks with a way around them; grouped, narrow in the middle, or plain."""
    seed, side = draw.size(1, 1 << 30), draw.size(12, 96, multiple=4)
    return _Drawn(build=lambda: _build_residual(Draw(seed)), example=(3, side, side))


def _build_residual(draw: Draw) -> nn.Module:
    width, narrow, groups = draw.size(8, 96, multiple=8), draw.chance(0.4), draw.pick(1, 1, 1, 2, 4, 8)
    stem = draw.pick(3, 7)
    parts: list[nn.Module] = [*_convolution(draw, 3, width, kernel=stem, stride=draw.pick(1, 2), normed=True), _relu()]
    if draw.chance(0.3):
        parts.append(nn.MaxPool2d(3, stride=2, padding=1))
    for stage in range(draw.pick(1, 2, 3)):
        if stage:
            wider = width * 2
            parts += [*_convolution(draw, width, wider, kernel=3, stride=2, normed=True), _relu()]
            width = wider
        for _block in range(draw.pick(1, 1, 2)):
            parts.append(Residual(_build_block(draw, width, narrow=narrow, groups=groups), activation=_relu()))
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, draw.size(*CLASSES)))


def _build_block(draw: Draw, width: int, *, narrow: bool, groups: int) -> nn.Module:
    if not narrow:
        first = _convolution(draw, width, width, kernel=3, groups=groups, normed=True)
        return nn.Sequential(*first, _relu(), *_convolution(draw, width, width, kernel=3, normed=True))
    inner = max(groups, width // 4 // groups * groups)
    return nn.Sequential(
        *_convolution(draw, width, inner, kernel=1, normed=True),
        _relu(),
        *_convolution(draw, inner, inner, kernel=3, groups=groups, normed=True),
        _relu(),
        *_convolution(draw, inner, width, kernel=1, normed=True),
    )


def _draw_separable(draw: Draw) -> _Drawn:
    """Convolutions of each channel apart, as in networks for phones."""
    seed, side = draw.size(1, 1 << 30), draw.size(12, 96, multiple=4)
    return _Drawn(build=lambda: _build_separable(Draw(seed)), example=(3, side, side))


def _build_separable(draw: Draw) -> nn.Module:
    act = draw.pick(nn.ReLU6, _relu, nn.Hardswish, nn.SiLU)
    width = draw.size(8, 48, multiple=8)
    expansion, squeezed = draw.pick(1, 2, 4, 6), draw.chance(0.35)
    parts: list[nn.Module] = [*_convolution(draw, 3, width, kernel=3, stride=draw.pick(1, 2), normed=True), act()]
    for _stage in range(draw.pick(1, 2, 3, 4)):
        stride, kernel = draw.pick(1, 2), draw.pick(3, 3, 5)
        wider = width if stride == 1 and draw.chance(0.6) else round(width * draw.pick(1.0, 1.5, 2.0) / 8) * 8
        inner = width * expansion
        block: list[nn.Module] = []
        if expansion > 1:
            block += [*_convolution(draw, width, inner, kernel=1, normed=True), act()]
        block += [*_convolution(draw, inner, inner, kernel=kernel, stride=stride, groups=inner, normed=True), act()]
        if squeezed:
            block.append(Squeeze(inner, max(4, inner // 4)))
        block += _convolution(draw, inner, wider, kernel=1, normed=True)
        parts.append(Residual(nn.Sequential(*block)) if stride == 1 and wider == width else nn.Sequential(*block))
        width = wider
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, draw.size(*CLASSES)))


def _draw_hourglass(draw: Draw) -> _Drawn:
    """Down and up again: each point of the image gets an answer."""
    seed, side = draw.size(1, 1 << 30), draw.size(16, 96, multiple=16)
    return _Drawn(build=lambda: _build_hourglass(Draw(seed)), example=(3, side, side), loss="mse")


def _build_hourglass(draw: Draw) -> nn.Module:
    width, normed, skip = draw.size(4, 48), draw.chance(0.5), draw.chance(0.5)
    up = draw.pick("transposed", "overlapping", "resized")
    first = nn.Sequential(*_convolution(draw, 3, width, kernel=3, normed=normed), _relu())
    inner = _build_level(draw, width, draw.pick(1, 2, 3), normed=normed, skip=skip, up=up)
    inside, outside = 2 * width if skip else width, draw.pick(1, 3, 8)
    last = (
        nn.Conv2d(inside, outside, 1)
        if draw.chance(0.6)
        else nn.ConvTranspose2d(inside, outside, 4, stride=2, padding=1)
    )
    return nn.Sequential(first, inner, last, *([nn.Sigmoid()] if draw.chance(0.3) else []))


def _build_level(draw: Draw, width: int, depth: int, *, normed: bool, skip: bool, up: str) -> nn.Module:
    wider = min(256, width * 2)
    down: list[nn.Module] = [nn.MaxPool2d(2)] if skip or draw.chance(0.5) else []
    stride = 1 if down else 2
    down += [*_convolution(draw, width, wider, kernel=3, stride=stride, normed=normed), _relu()]
    if depth > 1:
        inner = _build_level(draw, wider, depth - 1, normed=normed, skip=skip, up=up)
        inside = 2 * wider if skip else wider
    else:
        inner = nn.Sequential(*_convolution(draw, wider, wider, kernel=3, normed=normed), _relu())
        inside = wider
    mix: list[nn.Module] = []
    if skip and depth > 1:
        mix = [*_convolution(draw, inside, wider, kernel=3, normed=normed), _relu()]
        inside = wider
    widen = _build_widening(inside, width, how=up)
    return Joined(nn.Sequential(*down), inner, nn.Sequential(*mix, *widen, _relu()), skip=skip)


def _build_widening(inside: int, outside: int, *, how: str) -> list[nn.Module]:
    if how == "resized":
        return [nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(inside, outside, 3, padding=1)]
    kernel = 2 if how == "transposed" else 4
    return [nn.ConvTranspose2d(inside, outside, kernel, stride=2, padding=kernel // 2 - 1)]


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


# Networks of rows and tokens


def _draw_perceptron(draw: Draw) -> _Drawn:
    seed, inside = draw.size(1, 1 << 30), draw.size(8, 4096)
    return _Drawn(build=lambda: _build_perceptron(Draw(seed), inside), example=(inside,))


def _build_perceptron(draw: Draw, inside: int) -> nn.Module:
    act = draw.pick(nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.SiLU)
    norm, dropped = draw.pick("none", "none", "batch", "layer"), draw.chance(0.3)
    parts: list[nn.Module] = []
    width = draw.size(16, 2048)
    for _layer in range(draw.pick(1, 2, 3, 4, 6)):
        parts.append(nn.Linear(inside, width))
        if norm != "none":
            parts.append(nn.BatchNorm1d(width) if norm == "batch" else nn.LayerNorm(width))
        parts.append(act())
        if dropped:
            parts.append(nn.Dropout(0.2))
        inside, width = width, max(8, round(width * draw.pick(0.5, 1.0, 1.0)))
    return nn.Sequential(*parts, nn.Linear(inside, draw.size(*CLASSES)))


def _draw_transformer(draw: Draw) -> _Drawn:
    """Of words or of squares of an image, one answer for each or one for all."""
    seed = draw.size(1, 1 << 30)
    if draw.chance(0.5):
        length, words = draw.size(8, 256), draw.size(*VOCABULARY)
        return _Drawn(build=lambda: _build_transformer(Draw(seed), length, words=words), example=(length,), high=words)
    square = draw.pick(4, 8, 16)
    count = draw.pick(2, 4, 6, 8)
    side = square * count
    return _Drawn(build=lambda: _build_transformer(Draw(seed), count * count, square=square), example=(3, side, side))


def _build_transformer(draw: Draw, length: int, *, words: int = 0, square: int = 0) -> nn.Module:
    heads = draw.pick(1, 2, 4, 8)
    width = draw.size(32, 384, multiple=8 * heads)
    mixer = draw.chance(0.25)
    inner = draw.pick(2, 4) * width
    style = draw.pick("fused", "fused", "steps", "framework")
    parts: list[nn.Module] = [nn.Embedding(words, width) if words else Tokens(width, square), Positions(length, width)]
    dropped, act = draw.chance(0.3), draw.pick(nn.GELU, nn.GELU, nn.ReLU)
    for _block in range(draw.pick(1, 1, 2, 3)):
        mixing = (
            Swapped(build_feed(length, max(8, length * draw.pick(1, 2)), act=act, dropped=False))
            if mixer
            else build_attention(width, heads, style=style, causal=bool(words))
        )
        parts.append(Residual(nn.Sequential(nn.LayerNorm(width), mixing)))
        parts.append(Residual(nn.Sequential(nn.LayerNorm(width), build_feed(width, inner, act=act, dropped=dropped))))
    parts += [nn.LayerNorm(width), EachToken() if words and draw.chance(0.6) else Averaged()]
    return nn.Sequential(*parts, nn.Linear(width, words or draw.size(*CLASSES)))


def build_attention(width: int, heads: int, *, style: str, causal: bool) -> nn.Module:
    if style == "framework":
        return SelfAttention(width, heads)
    return Attention(width, heads, fused=style == "fused", causal=causal)


def build_feed(width: int, inner: int, *, act: Callable[[], nn.Module], dropped: bool) -> nn.Module:
    last: Sequence[nn.Module] = [nn.Dropout(0.1)] if dropped else []
    return nn.Sequential(nn.Linear(width, inner), act(), nn.Linear(inner, width), *last)


def _draw_recurrent(draw: Draw) -> _Drawn:
    seed, length = draw.size(1, 1 << 30), draw.size(4, 96)
    if draw.chance(0.6):
        words = draw.size(*VOCABULARY)
        return _Drawn(build=lambda: _build_recurrent(Draw(seed), words=words), example=(length,), high=words)
    inside = draw.size(4, 256)
    return _Drawn(build=lambda: _build_recurrent(Draw(seed), inside=inside), example=(length, inside))


def _build_recurrent(draw: Draw, *, words: int = 0, inside: int = 0) -> nn.Module:
    width, hidden, layers = inside or draw.size(16, 256), draw.size(16, 384), draw.pick(1, 1, 2)
    family = draw.pick(nn.LSTM, nn.LSTM, nn.GRU)
    cell = family(width, hidden, layers, batch_first=True, bidirectional=draw.chance(0.25))
    outside = hidden * (2 if cell.bidirectional else 1)
    parts: list[nn.Module] = [nn.Embedding(words, width)] if words else []
    return nn.Sequential(*parts, Recurrent(cell, last=draw.chance(0.7)), nn.Linear(outside, draw.size(*CLASSES)))


_KINDS: tuple[tuple[str, Callable[[Draw], _Drawn]], ...] = (
    ("plain", _draw_plain),
    ("perceptron", _draw_perceptron),
    ("residual", _draw_residual),
    ("transformer", _draw_transformer),
    ("separable", _draw_separable),
    ("hourglass", _draw_hourglass),
    ("plain", _draw_plain),
    ("residual", _draw_residual),
    ("recurrent", _draw_recurrent),
    ("transformer", _draw_transformer),
    ("recurrent", _draw_recurrent),
)
KINDS = len(_KINDS)  # after so many numbers, the same kind comes again
