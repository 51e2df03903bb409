"""What a device is learned on: networks of families as people build them, in turn with ones that no family has.

Of families alone a device learns how operators are used together there; a network of another family has others beside
each other, and of other sizes. Mixed networks have the layers of all, in any order and of any size.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from foretell.workloads.random_networks import (
    CLASSES,
    VOCABULARY,
    Averaged,
    Draw,
    EachToken,
    Network,
    Residual,
    Squeeze,
    Swapped,
    build_attention,
    build_feed,
    draw_network,
)

_LAYERS = (3, 9)
_MOST_CHANNELS, _MOST_SIDE = 512, 112
_MOST_WIDTH = 1536


def draw_exercise(number: int, *, seed: int = 0) -> Network:
    """One of the endless row; families and mixed networks take turns."""
    place, mixed = divmod(number, 2)
    return draw_mixed(place, seed=seed) if mixed else draw_network(place, seed=seed)


def draw_mixed(number: int, *, seed: int = 0) -> Network:
    """A network of any layers, of images or of tokens in turn."""
    draw = Draw(seed * 1_000_003 + number + (1 << 40))
    inner = draw.size(1, 1 << 30)
    optimizer = draw.pick("sgd", "sgd", "adam", "adamw")
    name = f"mixed-{seed}-{number}"
    if number % 2:
        side = draw.size(6, 96)
        return Network(
            name=name,
            build=lambda: _build_of_images(Draw(inner), side),
            example=(3, side, side),
            optimizer=optimizer,
        )
    length = draw.size(4, 192)
    words = draw.size(*VOCABULARY) if draw.chance(0.5) else None
    width = draw.size(8, 512)
    return Network(
        name=name,
        build=lambda: _build_of_tokens(Draw(inner), length, width, words=words),
        example=(length,) if words else (length, width),
        high=words,
        optimizer=optimizer,
    )


class States(nn.Module):
    """What a recurrent layer tells of each token."""

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


def _draw_activation(draw: Draw) -> nn.Module:
    return draw.pick(*_ACTIVATIONS)()


def _build_head(draw: Draw, inside: int) -> nn.Module:
    return nn.Linear(inside, draw.size(*CLASSES))


# Of images


@dataclass(slots=True)
class _Image:
    channels: int
    side: int


def _build_of_images(draw: Draw, side: int) -> nn.Module:
    image = _Image(3, side)
    parts = [_draw_convolution(draw, image)]
    for _ in range(draw.size(*_LAYERS)):
        parts += draw.pick(*_IMAGE_LAYERS)(draw, image)
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), _build_head(draw, image.channels))


def _draw_convolution(draw: Draw, image: _Image) -> nn.Module:
    inside, outside = image.channels, draw.size(8, 192, multiple=8)
    kernel, stride = draw.pick(1, 1, 3, 3, 5, 7), draw.pick(1, 1, 1, 2)
    groups = draw.pick(1, 1, 2, 4, 8) if inside % 8 == 0 else 1
    image.channels, image.side = outside, _halve(image.side) if stride == 2 else image.side
    return nn.Conv2d(inside, outside, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=draw.chance(0.5))


def _halve(side: int) -> int:
    return (side + 1) // 2


def _convolve(draw: Draw, image: _Image) -> list[nn.Module]:
    return [_draw_convolution(draw, image)]


def _convolve_apart(draw: Draw, image: _Image) -> list[nn.Module]:
    """Each channel by itself."""
    channels, kernel, stride = image.channels, draw.pick(3, 3, 5, 7), draw.pick(1, 1, 2)
    parts: list[nn.Module] = []
    if draw.chance(0.5):  # many channels, as there are where they are apart
        channels = min(_MOST_CHANNELS, channels * draw.pick(2, 4, 6))
        parts.append(nn.Conv2d(image.channels, channels, 1, bias=False))
    parts.append(nn.Conv2d(channels, channels, kernel, stride=stride, padding=kernel // 2, groups=channels, bias=False))
    image.channels, image.side = channels, _halve(image.side) if stride == 2 else image.side
    return parts


def _widen(draw: Draw, image: _Image) -> list[nn.Module]:
    if 2 * image.side > _MOST_SIDE:
        return _shrink(draw, image)
    image.side *= 2
    if draw.chance(0.4):
        return [nn.Upsample(scale_factor=2, mode=draw.pick("nearest", "bilinear"))]
    inside, kernel = image.channels, draw.pick(2, 4)
    image.channels = draw.size(4, 96)
    return [nn.ConvTranspose2d(inside, image.channels, kernel, stride=2, padding=kernel // 2 - 1)]


def _shrink(draw: Draw, image: _Image) -> list[nn.Module]:
    if image.side < 4:
        return _activate(draw, image)
    if draw.chance(0.3):
        image.side = _halve(image.side)
        return [nn.MaxPool2d(3, stride=2, padding=1)]
    image.side //= 2
    return [draw.pick(nn.MaxPool2d, nn.AvgPool2d)(2)]


def _normalise(draw: Draw, image: _Image) -> list[nn.Module]:
    grouped = image.channels % 8 == 0 and draw.chance(0.25)
    norm = nn.GroupNorm(8, image.channels) if grouped else nn.BatchNorm2d(image.channels)
    return [norm, nn.ReLU(inplace=True)] if draw.chance(0.5) else [norm]


def _activate(draw: Draw, image: _Image) -> list[nn.Module]:
    return [_draw_activation(draw)]


def _squeeze(draw: Draw, image: _Image) -> list[nn.Module]:
    return [Squeeze(image.channels, max(4, image.channels // draw.pick(4, 16)))]


def _go_around(draw: Draw, image: _Image) -> list[nn.Module]:
    same = nn.Conv2d(image.channels, image.channels, draw.pick(1, 3), padding="same", bias=False)
    return [Residual(nn.Sequential(same, nn.BatchNorm2d(image.channels)), activation=_draw_activation(draw))]


_IMAGE_LAYERS: tuple[Callable[[Draw, _Image], list[nn.Module]], ...] = (
    _convolve,
    _convolve,
    _convolve_apart,
    _convolve_apart,
    _widen,
    _shrink,
    _normalise,
    _normalise,
    _activate,
    _activate,
    _squeeze,
    _go_around,
)


# Of tokens


@dataclass(slots=True)
class _Text:
    length: int
    width: int


def _build_of_tokens(draw: Draw, length: int, width: int, *, words: int | None) -> nn.Module:
    text = _Text(length, width)
    parts: list[nn.Module] = [nn.Embedding(words, width)] if words else []
    for _ in range(draw.size(*_LAYERS)):
        parts.append(draw.pick(*_TOKEN_LAYERS)(draw, text))
    parts.append(EachToken() if draw.chance(0.3) else Averaged())
    return nn.Sequential(*parts, _build_head(draw, text.width))


def _multiply(draw: Draw, text: _Text) -> nn.Module:
    inside, text.width = text.width, draw.size(8, _MOST_WIDTH)
    return nn.Linear(inside, text.width, bias=draw.chance(0.8))


def _remember(draw: Draw, text: _Text) -> nn.Module:
    inside, hidden, twice = text.width, draw.size(8, 384), draw.chance(0.25)
    text.width = 2 * hidden if twice else hidden
    return States(draw.pick(nn.LSTM, nn.GRU)(inside, hidden, batch_first=True, bidirectional=twice))


def _attend(draw: Draw, text: _Text) -> nn.Module:
    heads = draw.pick(1, 2, 4, 8)
    inside, text.width = text.width, draw.size(4, 64) * heads
    style = draw.pick("fused", "steps", "framework")
    attention = build_attention(text.width, heads, style=style, causal=draw.chance(0.5))
    return nn.Sequential(nn.Linear(inside, text.width), attention)


def _feed(draw: Draw, text: _Text) -> nn.Module:
    inner = min(_MOST_WIDTH, text.width * draw.pick(1, 2, 4))
    return Residual(build_feed(text.width, inner, act=draw.pick(*_ACTIVATIONS), dropped=draw.chance(0.5)))


def _mix(draw: Draw, text: _Text) -> nn.Module:
    return Swapped(build_feed(text.length, 2 * text.length, act=nn.GELU, dropped=False))


def _scale(draw: Draw, text: _Text) -> nn.Module:
    return Swapped(nn.BatchNorm1d(text.width)) if draw.chance(0.2) else nn.LayerNorm(text.width)


def _bend(draw: Draw, text: _Text) -> nn.Module:
    return nn.Dropout(0.1) if draw.chance(0.2) else _draw_activation(draw)


_TOKEN_LAYERS: tuple[Callable[[Draw, _Text], nn.Module], ...] = (
    _multiply,
    _multiply,
    _remember,
    _remember,
    _attend,
    _attend,
    _feed,
    _mix,
    _scale,
    _bend,
)
