"""U-Nets: nnU-Net for images and volumes, and that of Stable Diffusion.

https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Segmentation/nnUNet and
https://github.com/Stability-AI/stablediffusion/blob/main/configs/stable-diffusion/v2-inference.yaml.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.workloads.step_options import InputSpec


def describe_volumes(channels: int, sizes: Sequence[int]) -> Callable[[int], tuple[InputSpec, ...]]:
    """Batches of images or volumes."""
    return lambda batch: (InputSpec(shape=(batch, channels, *sizes)),)


def describe_latents(size: int, context: int) -> Callable[[int], tuple[InputSpec, ...]]:
    """Latent images, and the hidden states of 77 words of their captions."""
    return lambda batch: (
        InputSpec(shape=(batch, 4, size, size), name="latents"),
        InputSpec(shape=(batch, 77, context), name="words"),
    )


class NnUnet(nn.Module):
    """nnU-Net with instance norms; its loss is cross entropy and that of Dice."""

    def __init__(self, dimensions: int, *, channels: int, classes: int, levels: int) -> None:
        super().__init__()
        self.classes = classes
        widths = [min(2 ** (5 + level), 320 if dimensions == 3 else 512) for level in range(levels)]
        first = [channels, *widths[:-1]]
        self.down = nn.ModuleList(
            _build_pair(dimensions, given, width, stride=2 if level else 1)
            for level, (given, width) in enumerate(zip(first, widths, strict=True))
        )
        convolution = nn.ConvTranspose2d if dimensions == 2 else nn.ConvTranspose3d
        pairs = list(zip(widths[1:], widths[:-1], strict=True))[::-1]
        self.grow = nn.ModuleList(convolution(wide, narrow, 2, 2) for wide, narrow in pairs)
        self.up = nn.ModuleList(_build_pair(dimensions, 2 * narrow, narrow) for _, narrow in pairs)
        self.output = (nn.Conv2d if dimensions == 2 else nn.Conv3d)(widths[0], classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        kept: list[Tensor] = []
        hidden = images
        for block in self.down:
            hidden = block(hidden)
            kept.append(hidden)
        for grow, block, before in zip(self.grow, self.up, kept[-2::-1], strict=True):
            hidden = block(torch.cat((grow(hidden), before), dim=1))
        return self._compare(self.output(hidden))

    def _compare(self, scores: Tensor) -> Tensor:
        labels = torch.empty((scores.shape[0], *scores.shape[2:]), dtype=torch.int64, device=scores.device)
        chance = scores.float().softmax(dim=1)
        wanted = functional.one_hot(labels, self.classes).movedim(-1, 1).float()
        axes = tuple(range(2, scores.dim()))
        dice = 2 * (chance * wanted).sum(axes) / (chance.square().sum(axes) + wanted.sum(axes))
        return functional.cross_entropy(scores, labels) + 1 - dice.mean()


def _build_pair(dimensions: int, given: int, width: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d if dimensions == 2 else nn.Conv3d
    norm = nn.InstanceNorm2d if dimensions == 2 else nn.InstanceNorm3d
    layers: list[nn.Module] = []
    for channels, step in ((given, stride), (width, 1)):
        layers += [
            convolution(channels, width, 3, step, 1, bias=False),
            norm(width, affine=True),
            nn.LeakyReLU(0.01, inplace=True),
        ]
    return nn.Sequential(*layers)


_WIDTHS = (320, 640, 1280, 1280)
_TIME = 1280


class DiffusionUnet(nn.Module):
    """The U-Net of Stable Diffusion, which predicts the noise of latent images. ``heads`` or the width of each."""

    def __init__(self, *, context: int, heads: int = 0, head_width: int = 0) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(320, _TIME), nn.SiLU(), nn.Linear(_TIME, _TIME))
        self.first = nn.Conv2d(4, _WIDTHS[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        widths, given = [_WIDTHS[0]], _WIDTHS[0]

        def count(width: int) -> int:
            return heads or width // head_width

        for level, width in enumerate(_WIDTHS):
            for _ in range(2):
                self.down.append(_Stage(given, width, context, count(width) if level < 3 else 0))
                widths.append(given := width)
            if level < 3:
                self.down.append(nn.Conv2d(width, width, 3, 2, 1))
                widths.append(width)
        self.middle = _Stage(given, given, context, count(given))
        self.last = _Residual(given, given)
        for level, width in reversed(list(enumerate(_WIDTHS))):
            for place in range(3):
                grows = level > 0 and place == 2
                stage = _Stage(given + widths.pop(), width, context, count(width) if level < 3 else 0, grows=grows)
                self.up.append(stage)
                given = width
        self.norm = nn.GroupNorm(32, _WIDTHS[0])
        self.output = nn.Conv2d(_WIDTHS[0], 4, 3, padding=1)

    def forward(self, latents: Tensor, words: Tensor) -> Tensor:
        noise = torch.randn_like(latents)
        time = self.time(torch.empty(latents.shape[0], 320, dtype=latents.dtype, device=latents.device))
        hidden = self.first(latents + noise)
        kept = [hidden]
        for block in self.down:
            hidden = block(hidden, time, words) if isinstance(block, _Stage) else block(hidden)
            kept.append(hidden)
        hidden = self.last(self.middle(hidden, time, words), time)
        for block in self.up:
            hidden = block(torch.cat((hidden, kept.pop()), dim=1), time, words)
        found = self.output(functional.silu(self.norm(hidden)))
        return functional.mse_loss(found.float(), noise.float())


class _Stage(nn.Module):
    def __init__(self, given: int, width: int, context: int, heads: int, *, grows: bool = False) -> None:
        super().__init__()
        self.residual = _Residual(given, width)
        self.transformer = _Transformer(width, context, heads) if heads else None
        self.grow = nn.Conv2d(width, width, 3, padding=1) if grows else None

    def forward(self, hidden: Tensor, time: Tensor, words: Tensor) -> Tensor:
        hidden = self.residual(hidden, time)
        if self.transformer is not None:
            hidden = self.transformer(hidden, words)
        if self.grow is not None:
            hidden = self.grow(functional.interpolate(hidden, scale_factor=2.0, mode="nearest"))
        return hidden


class _Residual(nn.Module):
    def __init__(self, given: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, given), nn.GroupNorm(32, width)
        self.conv1 = nn.Conv2d(given, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(_TIME, width)
        self.same = nn.Identity() if given == width else nn.Conv2d(given, width, 1)

    def forward(self, hidden: Tensor, time: Tensor) -> Tensor:
        inner = self.conv1(functional.silu(self.norm1(hidden)))
        inner = inner + self.time(functional.silu(time))[:, :, None, None]
        after: Tensor = self.same(hidden) + self.conv2(functional.silu(self.norm2(inner)))
        return after


class _Transformer(nn.Module):
    def __init__(self, width: int, context: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.inside, self.outside = nn.Linear(width, width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own = _Attention(width, width, heads)
        self.other = _Attention(width, context, heads)
        self.gate, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor, words: Tensor) -> Tensor:
        batch, width, rows, columns = hidden.shape
        tokens = self.inside(self.norm(hidden).permute(0, 2, 3, 1).reshape(batch, rows * columns, width))
        inner = self.norms[0](tokens)
        tokens = tokens + self.own(inner, inner)
        tokens = tokens + self.other(self.norms[1](tokens), words)
        value, gate = self.gate(self.norms[2](tokens)).chunk(2, dim=-1)
        tokens = self.outside(tokens + self.down(value * functional.gelu(gate)))
        after: Tensor = hidden + tokens.reshape(batch, rows, columns, width).permute(0, 3, 1, 2)
        return after


class _Attention(nn.Module):
    def __init__(self, width: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(context, width, bias=False) for _ in range(2))
        self.output = nn.Linear(width, width)

    def forward(self, tokens: Tensor, words: Tensor) -> Tensor:
        batch, count, width = tokens.shape
        query, key, value = (
            each.view(batch, -1, self.heads, width // self.heads).transpose(1, 2)
            for each in (self.query(tokens), self.key(words), self.value(words))
        )
        found = functional.scaled_dot_product_attention(query, key, value, scale=1 / math.sqrt(width // self.heads))
        after: Tensor = self.output(found.transpose(1, 2).reshape(batch, count, width))
        return after
