"""The networks that the model of a device is fitted on: common families, alternating with mixed networks.

In networks of a family the same operators always follow each other. Mixed networks have layers of all kinds, in random
order and of random sizes, so that the model also predicts networks of other families.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from foretell.workloads.network_layers import (
    CLASSES,
    VOCABULARY,
    NetworkSpec,
    Residual,
    Sampler,
    SqueezeExcite,
    TokenMean,
    TokenRows,
    Transposed,
    build_attention,
    build_feed_forward,
)
from foretell.workloads.random_networks import sample_network

_LAYERS = (3, 9)
_MOST_CHANNELS, _MOST_SIDE = 512, 112
_MOST_WIDTH = 1536


def sample_training_network(number: int, *, seed: int = 0) -> NetworkSpec:
    """The training network of this number; families and mixed networks alternate."""
    place, mixed = divmod(number, 2)
    return sample_mixed_network(place, seed=seed) if mixed else sample_network(place, seed=seed)


def sample_mixed_network(number: int, *, seed: int = 0) -> NetworkSpec:
    """A network of random layers, for images or tokens in turn."""
    sampler = Sampler(seed * 1_000_003 + number + (1 << 40))
    inner = sampler.size(1, 1 << 30)
    optimizer = sampler.choice("sgd", "sgd", "adam", "adamw")
    name = f"mixed-{seed}-{number}"
    if number % 2:
        side = sampler.size(6, 96)
        return NetworkSpec(
            name=name,
            build=lambda: _build_for_images(Sampler(inner), side),
            example=(3, side, side),
            optimizer=optimizer,
        )
    length = sampler.size(4, 192)
    words = sampler.size(*VOCABULARY) if sampler.chance(0.5) else None
    width = sampler.size(8, 512)
    return NetworkSpec(
        name=name,
        build=lambda: _build_for_tokens(Sampler(inner), length, width, words=words),
        example=(length,) if words else (length, width),
        high=words,
        optimizer=optimizer,
    )


class States(nn.Module):
    """A recurrent layer that returns the state of each token."""

    def __init__(self, inner: nn.LSTM | nn.GRU) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.inner(x)[0]
        return states


_ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.Hardswish,
    nn.SiLU,
    nn.GELU,
    nn.Tanh,
    nn.Sigmoid,
)


def _sample_activation(sampler: Sampler) -> nn.Module:
    return sampler.choice(*_ACTIVATIONS)()


def _build_head(sampler: Sampler, inside: int) -> nn.Module:
    return nn.Linear(inside, sampler.size(*CLASSES))


# For images


@dataclass(slots=True)
class _Image:
    channels: int
    side: int


def _build_for_images(sampler: Sampler, side: int) -> nn.Module:
    image = _Image(3, side)
    parts = [_sample_convolution(sampler, image)]
    for _ in range(sampler.size(*_LAYERS)):
        parts += sampler.choice(*_IMAGE_LAYERS)(sampler, image)
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), _build_head(sampler, image.channels))


def _sample_convolution(sampler: Sampler, image: _Image) -> nn.Module:
    inside, outside = image.channels, sampler.size(8, 192, multiple=8)
    kernel, stride = sampler.choice(1, 1, 3, 3, 5, 7), sampler.choice(1, 1, 1, 2)
    groups = sampler.choice(1, 1, 2, 4, 8) if inside % 8 == 0 else 1
    image.channels, image.side = outside, _halve(image.side) if stride == 2 else image.side
    return nn.Conv2d(
        inside, outside, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=sampler.chance(0.5)
    )


def _halve(side: int) -> int:
    return (side + 1) // 2


def _add_convolution(sampler: Sampler, image: _Image) -> list[nn.Module]:
    return [_sample_convolution(sampler, image)]


def _add_depthwise(sampler: Sampler, image: _Image) -> list[nn.Module]:
    """A depthwise convolution."""
    channels, kernel, stride = image.channels, sampler.choice(3, 3, 5, 7), sampler.choice(1, 1, 2)
    parts: list[nn.Module] = []
    if sampler.chance(0.5):  # depthwise convolutions usually have many channels
        channels = min(_MOST_CHANNELS, channels * sampler.choice(2, 4, 6))
        parts.append(nn.Conv2d(image.channels, channels, 1, bias=False))
    parts.append(nn.Conv2d(channels, channels, kernel, stride=stride, padding=kernel // 2, groups=channels, bias=False))
    image.channels, image.side = channels, _halve(image.side) if stride == 2 else image.side
    return parts


def _add_upsampling(sampler: Sampler, image: _Image) -> list[nn.Module]:
    if 2 * image.side > _MOST_SIDE:
        return _add_pooling(sampler, image)
    image.side *= 2
    if sampler.chance(0.4):
        return [nn.Upsample(scale_factor=2, mode=sampler.choice("nearest", "bilinear"))]
    inside, kernel = image.channels, sampler.choice(2, 4)
    image.channels = sampler.size(4, 96)
    return [nn.ConvTranspose2d(inside, image.channels, kernel, stride=2, padding=kernel // 2 - 1)]


def _add_pooling(sampler: Sampler, image: _Image) -> list[nn.Module]:
    if image.side < 4:
        return _add_activation(sampler, image)
    if sampler.chance(0.3):
        image.side = _halve(image.side)
        return [nn.MaxPool2d(3, stride=2, padding=1)]
    image.side //= 2
    return [sampler.choice(nn.MaxPool2d, nn.AvgPool2d)(2)]


def _add_norm(sampler: Sampler, image: _Image) -> list[nn.Module]:
    grouped = image.channels % 8 == 0 and sampler.chance(0.25)
    norm = nn.GroupNorm(8, image.channels) if grouped else nn.BatchNorm2d(image.channels)
    return [norm, nn.ReLU(inplace=True)] if sampler.chance(0.5) else [norm]


def _add_activation(sampler: Sampler, image: _Image) -> list[nn.Module]:
    return [_sample_activation(sampler)]


def _add_squeeze(sampler: Sampler, image: _Image) -> list[nn.Module]:
    return [SqueezeExcite(image.channels, max(4, image.channels // sampler.choice(4, 16)))]


def _add_residual(sampler: Sampler, image: _Image) -> list[nn.Module]:
    same = nn.Conv2d(image.channels, image.channels, sampler.choice(1, 3), padding="same", bias=False)
    return [Residual(nn.Sequential(same, nn.BatchNorm2d(image.channels)), activation=_sample_activation(sampler))]


_IMAGE_LAYERS: tuple[Callable[[Sampler, _Image], list[nn.Module]], ...] = (
    _add_convolution,
    _add_convolution,
    _add_depthwise,
    _add_depthwise,
    _add_upsampling,
    _add_pooling,
    _add_norm,
    _add_norm,
    _add_activation,
    _add_activation,
    _add_squeeze,
    _add_residual,
)


# For tokens


@dataclass(slots=True)
class _Text:
    length: int
    width: int


def _build_for_tokens(sampler: Sampler, length: int, width: int, *, words: int | None) -> nn.Module:
    text = _Text(length, width)
    parts: list[nn.Module] = [nn.Embedding(words, width)] if words else []
    for _ in range(sampler.size(*_LAYERS)):
        parts.append(sampler.choice(*_TOKEN_LAYERS)(sampler, text))
    parts.append(TokenRows() if sampler.chance(0.3) else TokenMean())
    return nn.Sequential(*parts, _build_head(sampler, text.width))


def _add_linear(sampler: Sampler, text: _Text) -> nn.Module:
    inside, text.width = text.width, sampler.size(8, _MOST_WIDTH)
    return nn.Linear(inside, text.width, bias=sampler.chance(0.8))


def _add_recurrent(sampler: Sampler, text: _Text) -> nn.Module:
    inside, hidden, twice = text.width, sampler.size(8, 384), sampler.chance(0.25)
    text.width = 2 * hidden if twice else hidden
    return States(sampler.choice(nn.LSTM, nn.GRU)(inside, hidden, batch_first=True, bidirectional=twice))


def _add_attention(sampler: Sampler, text: _Text) -> nn.Module:
    heads = sampler.choice(1, 2, 4, 8)
    inside, text.width = text.width, sampler.size(4, 64) * heads
    style = sampler.choice("fused", "steps", "framework")
    attention = build_attention(text.width, heads, style=style, causal=sampler.chance(0.5))
    return nn.Sequential(nn.Linear(inside, text.width), attention)


def _add_feed_forward(sampler: Sampler, text: _Text) -> nn.Module:
    inner = min(_MOST_WIDTH, text.width * sampler.choice(1, 2, 4))
    return Residual(
        build_feed_forward(text.width, inner, act=sampler.choice(*_ACTIVATIONS), dropped=sampler.chance(0.5))
    )


def _add_mixer(sampler: Sampler, text: _Text) -> nn.Module:
    return Transposed(build_feed_forward(text.length, 2 * text.length, act=nn.GELU, dropped=False))


def _add_token_norm(sampler: Sampler, text: _Text) -> nn.Module:
    return Transposed(nn.BatchNorm1d(text.width)) if sampler.chance(0.2) else nn.LayerNorm(text.width)


def _add_token_activation(sampler: Sampler, text: _Text) -> nn.Module:
    return nn.Dropout(0.1) if sampler.chance(0.2) else _sample_activation(sampler)


_TOKEN_LAYERS: tuple[Callable[[Sampler, _Text], nn.Module], ...] = (
    _add_linear,
    _add_linear,
    _add_recurrent,
    _add_recurrent,
    _add_attention,
    _add_attention,
    _add_feed_forward,
    _add_mixer,
    _add_token_norm,
    _add_token_activation,
)
