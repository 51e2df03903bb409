"""Models that tests build from this file, as a user would."""

import torch
from torch import nn
from torch.nn import functional


class Perceptron(nn.Module):
    def __init__(self, width: int = 16, depth: int = 2, classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = functional.relu(layer(x)) + x
        return self.head(x)


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.norm(self.conv(x)))


class Images(nn.Module):
    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(*[Block(8) for _ in range(blocks)])
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean([2, 3]))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = Block(3), nn.Conv2d(3, 6, 3, padding=1)
        self.up = nn.ConvTranspose2d(6, 3, 2, stride=2)
        self.out = nn.Conv2d(6, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.down(x)
        deep = functional.relu(self.deep(functional.max_pool2d(wide, 2)))
        return self.out(torch.cat([wide, self.up(deep)], 1))


class Words(nn.Module):
    """A recurrent model of language whose first and last weights are one."""

    def __init__(self, vocabulary: int = 100, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.memory = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, vocabulary, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.memory(self.embedding(ids))[0])


class Graph(nn.Module):
    """Sums over the neighbours of each node."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        total = torch.zeros_like(hidden).index_add(0, edges[1], hidden[edges[0]])
        return self.second(functional.relu(total + hidden))


class Masked(nn.Module):
    """Looks at positions, which are known before it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        mask = torch.zeros(16)
        mask[places > 3] = 1.0
        if (places[-1] > 3).item() and mask.sum() > 0:
            x = x * mask
        return self.layer(x)


class Branching(nn.Module):
    """Looks at what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        if x.sum() > 0:
            x = x * 2
        return x


class Picking(Branching):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        return x[x > 0]


class Waiting(Branching):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while not x.norm() < 1:
            x = self.layer(x)
        return x


class Scored(nn.Module):
    """Gives back its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.layer(x), "loss": self.layer(x).square().mean()}


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(16, 16).requires_grad_(False)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(functional.relu(self.base(x)))


class Rates(nn.Module):
    """Looks at values while it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = [rate.item() for rate in torch.linspace(0, 0.1, 3)]
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.rates[1]


def build_perceptron(width: int = 16, classes: int = 10) -> nn.Module:
    return Perceptron(width, classes=classes)


def build_broken() -> nn.Module:
    raise KeyError("no such layer")


def build_nothing() -> str:
    return "no model"


READY = Perceptron()
NUMBER = 3
