"""Networks for recommendation."""

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.advise.networks import Network
from foretell.workloads.step_options import InputSpec

_USERS, _ITEMS = 138493, 26744  # of ML-20m


class _NeuMf(nn.Module):
    """Neural collaborative filtering, by NVIDIA's defaults.

    https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Recommendation/NCF
    """

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.ModuleList(nn.Embedding(count, 64) for count in (_USERS, _ITEMS))
        self.given = nn.ModuleList(nn.Embedding(count, 128) for count in (_USERS, _ITEMS))
        widths = (256, 256, 128, 64)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.final = nn.Linear(128, 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        product = self.factors[0](users) * self.factors[1](items)
        hidden = torch.cat((self.given[0](users), self.given[1](items)), dim=1)
        for layer in self.layers:
            hidden = functional.dropout(functional.relu(layer(hidden)), 0.5)
        scores = self.final(torch.cat((product, hidden), dim=1)).flatten().float()
        return functional.binary_cross_entropy_with_logits(scores, torch.empty_like(scores))


def _describe_pairs(batch: int) -> tuple[InputSpec, ...]:
    return (
        InputSpec(shape=(batch,), dtype="int64", high=_USERS, name="users"),
        InputSpec(shape=(batch,), dtype="int64", high=_ITEMS, name="items"),
    )


_OPTIONS: dict[str, Any] = {"optimizer": "adam", "implementation": "fused", "loss": "own"}

NETWORKS = {
    "ncf": Network(build=_NeuMf, describe=_describe_pairs, options=_OPTIONS),
}
