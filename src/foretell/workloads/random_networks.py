"""Random small networks of common families. A number and a seed always give the same network."""

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from foretell.workloads.network_layers import (
    CLASSES,
    VOCABULARY,
    Level,
    NetworkSpec,
    Patches,
    Positions,
    Recurrent,
    Residual,
    Sampler,
    SqueezeExcite,
    TokenMean,
    TokenRows,
    Transposed,
    build_attention,
    build_feed_forward,
)


def sample_network(number: int, *, seed: int = 0) -> NetworkSpec:
    """The random network of this number; families alternate."""
    sampler = Sampler(seed * 1_000_003 + number)
    family, sample = _FAMILIES[number % len(_FAMILIES)]
    network = sample(sampler)
    optimizer = sampler.choice("sgd", "sgd", "adam", "adamw")
    return replace(network, name=f"{family}-{seed}-{number}", optimizer=optimizer)


# Networks for images


def _convolution(
    inside: int, outside: int, *, kernel: int, stride: int = 1, groups: int = 1, normed: bool
) -> list[nn.Module]:
    parts: list[nn.Module] = [
        nn.Conv2d(inside, outside, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=not normed)
    ]
    if normed:
        parts.append(nn.BatchNorm2d(outside))
    return parts


def _sample_plain(sampler: Sampler) -> NetworkSpec:
    """Convolutions and pooling, like LeNet and VGG."""
    seed = sampler.size(1, 1 << 30)
    side, channels = sampler.size(12, 96, multiple=4), sampler.choice(1, 3)
    return NetworkSpec(
        name="", build=lambda: _build_plain(Sampler(seed), channels, side), example=(channels, side, side)
    )


def _build_plain(sampler: Sampler, channels: int, side: int) -> nn.Module:
    normed, act = sampler.chance(0.5), sampler.choice(_relu, _relu, nn.Tanh, nn.SiLU, nn.LeakyReLU)
    kernel, width = sampler.choice(3, 3, 5, 7, 1), sampler.size(4, 96)
    parts: list[nn.Module] = []
    for _stage in range(sampler.choice(1, 2, 3)):
        for _layer in range(sampler.choice(1, 1, 2, 3)):
            parts += [*_convolution(channels, width, kernel=kernel, normed=normed), act()]
            channels = width
        if side >= 8:
            parts.append(sampler.choice(nn.MaxPool2d(2), nn.MaxPool2d(2), nn.AvgPool2d(2)))
            side //= 2
        width = min(256, round(width * sampler.choice(1.0, 1.5, 2.0)))
        kernel = sampler.choice(kernel, 3)
    if sampler.chance(0.5):
        parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        inside = channels
    else:
        parts.append(nn.Flatten())
        inside = channels * side * side
    return nn.Sequential(*parts, *_build_head(sampler, inside))


def _build_head(sampler: Sampler, inside: int) -> list[nn.Module]:
    parts: list[nn.Module] = []
    for _layer in range(sampler.choice(0, 1, 2)):
        width = sampler.size(16, 512)
        parts += [nn.Linear(inside, width), nn.ReLU()]
        if sampler.chance(0.4):
            parts.append(nn.Dropout(0.5))
        inside = width
    return [*parts, nn.Linear(inside, sampler.size(*CLASSES))]


def _sample_residual(sampler: Sampler) -> NetworkSpec:
    """Residual blocks: plain, grouped or bottleneck, like ResNet and ResNeXt."""
    seed, side = sampler.size(1, 1 << 30), sampler.size(12, 96, multiple=4)
    return NetworkSpec(name="", build=lambda: _build_residual(Sampler(seed)), example=(3, side, side))


def _build_residual(sampler: Sampler) -> nn.Module:
    width, narrow, groups = sampler.size(8, 96, multiple=8), sampler.chance(0.4), sampler.choice(1, 1, 1, 2, 4, 8)
    stem = sampler.choice(3, 7)
    parts: list[nn.Module] = [*_convolution(3, width, kernel=stem, stride=sampler.choice(1, 2), normed=True), _relu()]
    if sampler.chance(0.3):
        parts.append(nn.MaxPool2d(3, stride=2, padding=1))
    for stage in range(sampler.choice(1, 2, 3)):
        if stage:
            wider = width * 2
            parts += [*_convolution(width, wider, kernel=3, stride=2, normed=True), _relu()]
            width = wider
        for _block in range(sampler.choice(1, 1, 2)):
            parts.append(Residual(_build_block(sampler, width, narrow=narrow, groups=groups), activation=_relu()))
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, sampler.size(*CLASSES)))


def _build_block(sampler: Sampler, width: int, *, narrow: bool, groups: int) -> nn.Module:
    if not narrow:
        first = _convolution(width, width, kernel=3, groups=groups, normed=True)
        return nn.Sequential(*first, _relu(), *_convolution(width, width, kernel=3, normed=True))
    inner = max(groups, width // 4 // groups * groups)
    return nn.Sequential(
        *_convolution(width, inner, kernel=1, normed=True),
        _relu(),
        *_convolution(inner, inner, kernel=3, groups=groups, normed=True),
        _relu(),
        *_convolution(inner, width, kernel=1, normed=True),
    )


def _sample_separable(sampler: Sampler) -> NetworkSpec:
    """Depthwise separable convolutions, like MobileNet."""
    seed, side = sampler.size(1, 1 << 30), sampler.size(12, 96, multiple=4)
    return NetworkSpec(name="", build=lambda: _build_separable(Sampler(seed)), example=(3, side, side))


def _build_separable(sampler: Sampler) -> nn.Module:
    act = sampler.choice(nn.ReLU6, _relu, nn.Hardswish, nn.SiLU)
    width = sampler.size(8, 48, multiple=8)
    expansion, squeezed = sampler.choice(1, 2, 4, 6), sampler.chance(0.35)
    parts: list[nn.Module] = [*_convolution(3, width, kernel=3, stride=sampler.choice(1, 2), normed=True), act()]
    for _stage in range(sampler.choice(1, 2, 3, 4)):
        stride, kernel = sampler.choice(1, 2), sampler.choice(3, 3, 5)
        wider = width if stride == 1 and sampler.chance(0.6) else round(width * sampler.choice(1.0, 1.5, 2.0) / 8) * 8
        inner = width * expansion
        block: list[nn.Module] = []
        if expansion > 1:
            block += [*_convolution(width, inner, kernel=1, normed=True), act()]
        block += [*_convolution(inner, inner, kernel=kernel, stride=stride, groups=inner, normed=True), act()]
        if squeezed:
            block.append(SqueezeExcite(inner, max(4, inner // 4)))
        block += _convolution(inner, wider, kernel=1, normed=True)
        parts.append(Residual(nn.Sequential(*block)) if stride == 1 and wider == width else nn.Sequential(*block))
        width = wider
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, sampler.size(*CLASSES)))


def _sample_hourglass(sampler: Sampler) -> NetworkSpec:
    """Encoder-decoders with an output for each pixel, like U-Net."""
    seed, side = sampler.size(1, 1 << 30), sampler.size(16, 96, multiple=16)
    return NetworkSpec(name="", build=lambda: _build_hourglass(Sampler(seed)), example=(3, side, side), loss="mse")


def _build_hourglass(sampler: Sampler) -> nn.Module:
    width, normed, skip = sampler.size(4, 48), sampler.chance(0.5), sampler.chance(0.5)
    up = sampler.choice("transposed", "overlapping", "resized")
    first = nn.Sequential(*_convolution(3, width, kernel=3, normed=normed), _relu())
    inner = _build_level(sampler, width, sampler.choice(1, 2, 3), normed=normed, skip=skip, up=up)
    inside, outside = 2 * width if skip else width, sampler.choice(1, 3, 8)
    last = (
        nn.Conv2d(inside, outside, 1)
        if sampler.chance(0.6)
        else nn.ConvTranspose2d(inside, outside, 4, stride=2, padding=1)
    )
    return nn.Sequential(first, inner, last, *([nn.Sigmoid()] if sampler.chance(0.3) else []))


def _build_level(sampler: Sampler, width: int, depth: int, *, normed: bool, skip: bool, up: str) -> nn.Module:
    wider = min(256, width * 2)
    down: list[nn.Module] = [nn.MaxPool2d(2)] if skip or sampler.chance(0.5) else []
    stride = 1 if down else 2
    down += [*_convolution(width, wider, kernel=3, stride=stride, normed=normed), _relu()]
    if depth > 1:
        inner = _build_level(sampler, wider, depth - 1, normed=normed, skip=skip, up=up)
        inside = 2 * wider if skip else wider
    else:
        inner = nn.Sequential(*_convolution(wider, wider, kernel=3, normed=normed), _relu())
        inside = wider
    mix: list[nn.Module] = []
    if skip and depth > 1:
        mix = [*_convolution(inside, wider, kernel=3, normed=normed), _relu()]
        inside = wider
    upsample = _build_upsampling(inside, width, how=up)
    return Level(nn.Sequential(*down), inner, nn.Sequential(*mix, *upsample, _relu()), skip=skip)


def _build_upsampling(inside: int, outside: int, *, how: str) -> list[nn.Module]:
    if how == "resized":
        return [nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(inside, outside, 3, padding=1)]
    kernel = 2 if how == "transposed" else 4
    return [nn.ConvTranspose2d(inside, outside, kernel, stride=2, padding=kernel // 2 - 1)]


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


# Networks for rows and tokens


def _sample_perceptron(sampler: Sampler) -> NetworkSpec:
    seed, inside = sampler.size(1, 1 << 30), sampler.size(8, 4096)
    return NetworkSpec(name="", build=lambda: _build_perceptron(Sampler(seed), inside), example=(inside,))


def _build_perceptron(sampler: Sampler, inside: int) -> nn.Module:
    act = sampler.choice(nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.SiLU)
    norm, dropped = sampler.choice("none", "none", "batch", "layer"), sampler.chance(0.3)
    parts: list[nn.Module] = []
    width = sampler.size(16, 2048)
    for _layer in range(sampler.choice(1, 2, 3, 4, 6)):
        parts.append(nn.Linear(inside, width))
        if norm != "none":
            parts.append(nn.BatchNorm1d(width) if norm == "batch" else nn.LayerNorm(width))
        parts.append(act())
        if dropped:
            parts.append(nn.Dropout(0.2))
        inside, width = width, max(8, round(width * sampler.choice(0.5, 1.0, 1.0)))
    return nn.Sequential(*parts, nn.Linear(inside, sampler.size(*CLASSES)))


def _sample_transformer(sampler: Sampler) -> NetworkSpec:
    """Transformers of words or image patches, with an output for each token or for all."""
    seed = sampler.size(1, 1 << 30)
    if sampler.chance(0.5):
        length, words = sampler.size(8, 256), sampler.size(*VOCABULARY)
        return NetworkSpec(
            name="", build=lambda: _build_transformer(Sampler(seed), length, words=words), example=(length,), high=words
        )
    square = sampler.choice(4, 8, 16)
    count = sampler.choice(2, 4, 6, 8)
    side = square * count
    return NetworkSpec(
        name="", build=lambda: _build_transformer(Sampler(seed), count * count, square=square), example=(3, side, side)
    )


def _build_transformer(sampler: Sampler, length: int, *, words: int = 0, square: int = 0) -> nn.Module:
    heads = sampler.choice(1, 2, 4, 8)
    width = sampler.size(32, 384, multiple=8 * heads)
    mixer = sampler.chance(0.25)
    inner = sampler.choice(2, 4) * width
    style = sampler.choice("fused", "fused", "steps", "framework")
    parts: list[nn.Module] = [nn.Embedding(words, width) if words else Patches(width, square), Positions(length, width)]
    dropped, act = sampler.chance(0.3), sampler.choice(nn.GELU, nn.GELU, nn.ReLU)
    for _block in range(sampler.choice(1, 1, 2, 3)):
        mixing = (
            Transposed(build_feed_forward(length, max(8, length * sampler.choice(1, 2)), act=act, dropped=False))
            if mixer
            else build_attention(width, heads, style=style, causal=bool(words))
        )
        parts.append(Residual(nn.Sequential(nn.LayerNorm(width), mixing)))
        parts.append(
            Residual(nn.Sequential(nn.LayerNorm(width), build_feed_forward(width, inner, act=act, dropped=dropped)))
        )
    parts += [nn.LayerNorm(width), TokenRows() if words and sampler.chance(0.6) else TokenMean()]
    return nn.Sequential(*parts, nn.Linear(width, words or sampler.size(*CLASSES)))


def _sample_recurrent(sampler: Sampler) -> NetworkSpec:
    seed, length = sampler.size(1, 1 << 30), sampler.size(4, 96)
    if sampler.chance(0.6):
        words = sampler.size(*VOCABULARY)
        return NetworkSpec(
            name="", build=lambda: _build_recurrent(Sampler(seed), words=words), example=(length,), high=words
        )
    inside = sampler.size(4, 256)
    return NetworkSpec(name="", build=lambda: _build_recurrent(Sampler(seed), inside=inside), example=(length, inside))


def _build_recurrent(sampler: Sampler, *, words: int = 0, inside: int = 0) -> nn.Module:
    width, hidden, layers = inside or sampler.size(16, 256), sampler.size(16, 384), sampler.choice(1, 1, 2)
    family = sampler.choice(nn.LSTM, nn.LSTM, nn.GRU)
    cell = family(width, hidden, layers, batch_first=True, bidirectional=sampler.chance(0.25))
    outside = hidden * (2 if cell.bidirectional else 1)
    parts: list[nn.Module] = [nn.Embedding(words, width)] if words else []
    return nn.Sequential(*parts, Recurrent(cell, last=sampler.chance(0.7)), nn.Linear(outside, sampler.size(*CLASSES)))


_FAMILIES: tuple[tuple[str, Callable[[Sampler], NetworkSpec]], ...] = (
    ("plain", _sample_plain),
    ("perceptron", _sample_perceptron),
    ("residual", _sample_residual),
    ("transformer", _sample_transformer),
    ("separable", _sample_separable),
    ("hourglass", _sample_hourglass),
    ("plain", _sample_plain),
    ("residual", _sample_residual),
    ("recurrent", _sample_recurrent),
    ("transformer", _sample_transformer),
    ("recurrent", _sample_recurrent),
)
FAMILIES = len(_FAMILIES)  # network number n and n + FAMILIES are of the same family
