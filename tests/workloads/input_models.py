"""Models that take, read or return more than one tensor, as users write them."""

import dataclasses
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass
class Batch:
    image: torch.Tensor
    label: torch.Tensor
    weight: float = 1.0


class Classifier(nn.Module):
    """Takes a dictionary, and returns its parts of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 4)

    def forward(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        out = self.layer(batch["image"].flatten(1))
        return {"loss_class": functional.cross_entropy(out, batch["label"]), "loss_size": out.square().mean()}


class Typed(Classifier):
    """Takes a dataclass."""

    def forward(self, batch: Batch) -> torch.Tensor:  # type: ignore[override]
        assert isinstance(batch, Batch)
        return functional.cross_entropy(self.layer(batch.image.flatten(1)), batch.label) * batch.weight


class Detector(Classifier):
    """Takes lists, as torchvision's detectors do, and checks them."""

    def forward(  # type: ignore[override]
        self, images: list[torch.Tensor], targets: list[dict[str, torch.Tensor]]
    ) -> dict[str, torch.Tensor]:
        out = self.layer(torch.stack(images).flatten(1))
        for target in targets:
            boxes = target["boxes"]
            if (boxes[:, 2:] <= boxes[:, :2]).any():
                raise ValueError("boxes must have a positive size")
            assert int(target["labels"].max()) < 4
        labels = torch.stack([target["labels"][0] for target in targets])
        return {"loss_class": functional.cross_entropy(out, labels)}


class Contrast(Classifier):
    """Returns a loss if it is asked for one."""

    def forward(self, x: torch.Tensor, return_loss: bool = False) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
        out = self.layer(x)
        return (functional.mse_loss(out @ out.T, torch.eye(len(x))), out) if return_loss else (out,)


class Recommender(nn.Module):
    """DLRM: sparse features looked up in tables, dense ones by a perceptron, and all pairs of them multiplied."""

    def __init__(self, tables: int = 3, rows: int = 100_000, width: int = 16) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        low = self.bottom(dense)
        looked_up = [table(index, offset) for table, index, offset in zip(self.tables, indices, offsets, strict=True)]
        features = torch.stack([low, *looked_up], 1)
        rows, columns = torch.tril_indices(features.shape[1], features.shape[1], -1)
        products = torch.bmm(features, features.transpose(1, 2))[:, rows, columns]
        return functional.binary_cross_entropy_with_logits(
            self.top(torch.cat([low, products], 1)).squeeze(1), torch.rand(len(dense)).round()
        )


class Steered(nn.Module):
    """Looks at masks, labels, draws and results, as libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(50, 16), nn.Linear(16, 4)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if not attention_mask.all():
            raise ValueError("padded")
        if labels.max() >= 4:
            raise ValueError(f"labels must be below 4, not {labels.max().item()}")
        hidden = self.embedding(input_ids)
        for _ in range(8):
            if torch.rand([]) >= 0.5:  # layer drop
                hidden = hidden + 1
        if not torch.isfinite(hidden).all():
            hidden = torch.clamp(hidden, max=1e4)
        return functional.cross_entropy(self.layer(hidden[attention_mask.bool()]), labels.flatten())


class Failing(Classifier):
    """Fails as code does."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        if self.way == "assert":
            assert x.shape[1] == 5, "five columns"
        if self.way == "divide":
            return self.layer(x) / (len(x) // 100) if len(x) // (len(x) // 100) else x
        if self.way == "file":
            Path("no-such-file.txt").read_text()
        if self.way == "exit":
            raise SystemExit("enough")
        raise LookupError


def build_pair() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Contrast(), (torch.zeros(6, 12),)


def build_with_arguments() -> nn.Module:
    if len(sys.argv) != 1:
        raise ValueError(f"arguments of somebody else: {sys.argv}")
    return Classifier()


def main() -> None:
    raise RuntimeError("trains for days")


def example_inputs() -> dict[str, torch.Tensor]:
    return {"image": torch.zeros(5, 3, 2, 2), "label": torch.tensor([0, 3, 1, 2, 0])}
