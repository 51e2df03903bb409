"""Networks for recommendation, and for graphs."""

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


class _GraphConvolutions(nn.Module):
    """GraphSAGE with three layers on all of ogbn-products, in PyTorch's own sparse products.

    https://github.com/snap-stanford/ogb/blob/master/examples/nodeproppred/products/gnn.py
    """

    def __init__(self) -> None:
        super().__init__()
        widths = (100, 256, 256, 47)
        pairs = list(itertools.pairwise(widths))
        self.own = nn.ModuleList(nn.Linear(given, width, bias=False) for given, width in pairs)
        self.others = nn.ModuleList(nn.Linear(given, width) for given, width in pairs)

    def forward(self, nodes: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        hidden = nodes
        for place, (own, others) in enumerate(zip(self.own, self.others, strict=True)):
            sent = torch.zeros_like(hidden).index_add(0, targets, hidden.index_select(0, sources))
            hidden = own(hidden) + others(sent)
            if place < len(self.own) - 1:
                hidden = functional.dropout(functional.relu(hidden), 0.5)
        known = hidden[:_KNOWN]
        return functional.nll_loss(known.log_softmax(dim=-1), targets[:_KNOWN].clamp(max=46))


_NODES, _EDGES, _KNOWN = 2449029, 2 * 61859140, 196615  # of ogbn-products, edges in both directions


def _describe_graph(batch: int) -> tuple[InputSpec, ...]:
    edges = {"dtype": "int64", "high": _NODES}
    return (
        InputSpec(shape=(batch * _NODES, 100), name="nodes"),
        InputSpec(shape=(batch * _EDGES,), name="sources", **edges),  # type: ignore[arg-type]
        InputSpec(shape=(batch * _EDGES,), name="targets", **edges),  # type: ignore[arg-type]
    )


def _describe_pairs(batch: int) -> tuple[InputSpec, ...]:
    return (
        InputSpec(shape=(batch,), dtype="int64", high=_USERS, name="users"),
        InputSpec(shape=(batch,), dtype="int64", high=_ITEMS, name="items"),
    )


_OPTIONS: dict[str, Any] = {"optimizer": "adam", "implementation": "fused", "loss": "own"}

NETWORKS = {
    "ncf": Network(build=_NeuMf, describe=_describe_pairs, options=_OPTIONS),
    "graphsage-products": Network(
        build=_GraphConvolutions,
        describe=_describe_graph,
        options=_OPTIONS | {"implementation": "foreach"},
    ),
}
