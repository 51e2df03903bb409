"""Ten small networks as people write them. None of them is among those a device is learned on."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.workloads.step_options import InputSpec, StepOptions


class Case(NamedTuple):
    """A network, what it is given, and how it is trained."""

    build: Callable[[], nn.Module]
    input: InputSpec
    options: StepOptions


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(torch.flatten(x, 1)))
        y: Tensor = self.fc3(functional.relu(self.fc2(x)))
        return y


class BasicBlock(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride=stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        y: Tensor = self.relu(out)
        return y


class SmallResNet(nn.Module):
    """As ResNet-20 for small images."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        blocks: list[nn.Module] = []
        inside = 16
        for width in (16, 32, 64):
            for block in range(3):
                blocks.append(BasicBlock(inside, width, 2 if width > 16 and block == 0 else 1))
                inside = width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1)
        y: Tensor = self.fc(torch.flatten(x, 1))
        return y


def build_vgg() -> nn.Module:
    parts: list[nn.Module] = []
    inside = 3
    for width in (32, 32, 0, 64, 64, 0, 128, 128, 0):
        if not width:
            parts.append(nn.MaxPool2d(2, 2))
            continue
        parts += [nn.Conv2d(inside, width, 3, padding=1), nn.ReLU(inplace=True)]
        inside = width
    head = [nn.Linear(128 * 16, 256), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(256, 100)]
    return nn.Sequential(*parts, nn.Flatten(), *head)


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token_mlp = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.channel_mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.token_mlp(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        y: Tensor = x + self.channel_mlp(self.norm2(x))
        return y


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 96, 4, stride=4)
        self.blocks = nn.ModuleList(MixerBlock(64, 96) for _ in range(4))
        self.norm = nn.LayerNorm(96)
        self.head = nn.Linear(96, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.head(self.norm(x).mean(dim=1))
        return y


class TinyViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 128, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, 128))
        self.place = nn.Parameter(torch.zeros(1, 65, 128))
        layer = nn.TransformerEncoderLayer(
            128, 4, 256, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(128, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.place
        y: Tensor = self.head(self.encoder(x)[:, 0])
        return y


class CausalBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.attn(self.ln1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).contiguous().view(batch, length, width))
        y: Tensor = x + self.mlp(self.ln2(x))
        return y


class TinyGpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(2000, 128), nn.Embedding(64, 128)
        self.blocks = nn.Sequential(*(CausalBlock(128, 4) for _ in range(4)))
        self.ln = nn.LayerNorm(128)
        self.head = nn.Linear(128, 2000, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        place = torch.arange(ids.shape[1], device=ids.device)
        y: Tensor = self.head(self.ln(self.blocks(self.wte(ids) + self.wpe(place))))
        return y


class LstmClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5000, 64)
        self.lstm = nn.LSTM(64, 128, num_layers=2, batch_first=True)
        self.fc = nn.Linear(128, 4)

    def forward(self, ids: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(self.embedding(ids))
        y: Tensor = self.fc(hidden[-1])
        return y


def double_conv(inside: int, outside: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
        nn.Conv2d(outside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
    )  # fmt: skip


class SmallUNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = double_conv(3, 16), double_conv(16, 32), double_conv(32, 64)
        self.up2, self.up1 = nn.ConvTranspose2d(64, 32, 2, stride=2), nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.conv2, self.conv1 = double_conv(64, 32), double_conv(32, 16)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        bottom = self.bottom(functional.max_pool2d(second, 2))
        x = self.conv2(torch.cat([second, self.up2(bottom)], dim=1))
        x = self.conv1(torch.cat([first, self.up1(x)], dim=1))
        y: Tensor = self.out(x)
        return y


class Inverted(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inside * expansion
        self.residual = stride == 1 and inside == outside
        self.conv = nn.Sequential(
            nn.Conv2d(inside, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, hidden, 3, stride=stride, padding=1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, outside, 1, bias=False), nn.BatchNorm2d(outside),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.residual else y


def build_mobilenet() -> nn.Module:
    blocks = [
        Inverted(16, 16, 1, 2),
        Inverted(16, 24, 2, 4),
        Inverted(24, 24, 1, 4),
        Inverted(24, 40, 2, 4),
        Inverted(40, 40, 1, 4),
    ]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(inplace=True), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 50),
    )  # fmt: skip


def build_autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 32 * 49), nn.ReLU(), nn.Unflatten(1, (32, 7, 7)),
        nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1), nn.Sigmoid(),
    )  # fmt: skip


def _images(batch: int, channels: int, side: int) -> InputSpec:
    return InputSpec(shape=(batch, channels, side, side))


def _words(batch: int, length: int, vocabulary: int) -> InputSpec:
    return InputSpec(shape=(batch, length), dtype="int64", high=vocabulary)


CASES = {
    "LeNet": Case(LeNet, _images(64, 1, 28), StepOptions(optimizer="sgd")),
    "small ResNet": Case(SmallResNet, _images(32, 3, 32), StepOptions(optimizer="sgd")),
    "VGG-like": Case(build_vgg, _images(16, 3, 32), StepOptions(optimizer="sgd")),
    "MLP-Mixer-like": Case(Mixer, _images(16, 3, 32), StepOptions(optimizer="adam")),
    "tiny ViT": Case(TinyViT, _images(16, 3, 32), StepOptions(optimizer="adamw")),
    "tiny GPT": Case(TinyGpt, _words(8, 64, 2000), StepOptions(optimizer="adamw")),
    "LSTM classifier": Case(LstmClassifier, _words(32, 40, 5000), StepOptions(optimizer="adam")),
    "small U-Net": Case(SmallUNet, _images(4, 3, 64), StepOptions(optimizer="adam")),
    "MobileNet-like": Case(build_mobilenet, _images(16, 3, 64), StepOptions(optimizer="sgd")),
    "autoencoder": Case(build_autoencoder, _images(64, 1, 28), StepOptions(loss="mse", optimizer="adam")),
}
