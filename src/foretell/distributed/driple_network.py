"""The network of the published inspector, and how it is trained. Needs PyTorch."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from foretell.core.workload import Floats

WEIGHT_DECAY = 1e-6
LARGEST_GRADIENT = 1.0  # layers that are repeated so often give steps without bounds now and then
Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Graphs with equally many nodes, and what is to be told of each; not a number where that is not known."""

    features: torch.Tensor  # graph, node, feature
    adjacency: torch.Tensor  # graph, node, node
    targets: torch.Tensor  # graph, target


def build_batch(features: Sequence[Floats], edges: Sequence[Sequence[tuple[int, int]]], targets: Floats) -> Batch:
    """Graphs as arrays."""
    nodes = len(features[0])
    return Batch(
        features=torch.tensor(np.stack(features), dtype=torch.float32),
        adjacency=torch.tensor(np.stack([_normalise(nodes, each) for each in edges]), dtype=torch.float32),
        targets=torch.tensor(targets, dtype=torch.float32),
    )


def _normalise(nodes: int, edges: Iterable[tuple[int, int]]) -> Floats:
    """Neighbours either way and the node itself, each by the roots of both ends' degrees (Kipf and Welling)."""
    matrix = np.eye(nodes)
    for begin, end in edges:
        matrix[begin, end] = matrix[end, begin] = 1.0
    roots = np.sqrt(matrix.sum(axis=1))
    return np.asarray(matrix / roots[:, None] / roots[None, :])


class Inspector(nn.Module):
    """Graph layers, each with a GRU after it, set2set, and three layers that tell all targets.

    The first graph layer has weights of its own; the next one is repeated for half of the nodes. After transfer, the
    second half of the repetitions has weights of its own too: ``tuned``.
    """

    def __init__(self, features: int, hidden: int, targets: int, *, tuned: bool = False) -> None:
        super().__init__()
        self.hidden = hidden
        self.first = nn.Linear(features, hidden)
        self.repeated = nn.Linear(hidden, hidden)
        self.tuned = nn.Linear(hidden, hidden) if tuned else None
        self.gate = nn.GRUCell(hidden, hidden)
        self.reader = nn.LSTMCell(2 * hidden, hidden)
        self.perceptron = nn.Sequential(
            nn.Linear(2 * hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, targets),
            nn.LeakyReLU(),
        )

    def forward(self, features: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        """Targets of each graph."""
        nodes = features.shape[1]
        wide = nn.functional.pad(features, (0, self.hidden - features.shape[2]))
        x = self._gate(wide, adjacency @ self.first(features))
        for layer in self._repeat(max(1, nodes // 2)):
            x = self._gate(x, adjacency @ layer(x))
        told: torch.Tensor = self.perceptron(self._read(x))
        return told

    def _repeat(self, count: int) -> Iterator[nn.Module]:
        for place in range(count):
            yield self.repeated if self.tuned is None or place < count // 2 else self.tuned

    def _gate(self, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        gated: torch.Tensor = self.gate(before.flatten(0, 1), after.flatten(0, 1))
        return gated.view_as(after)

    def _read(self, x: torch.Tensor) -> torch.Tensor:
        """Set2set (Vinyals et al.): what is asked of the nodes depends on what they answered, for as many times."""
        graphs, nodes, hidden = x.shape
        state = x.new_zeros(graphs, hidden), x.new_zeros(graphs, hidden)
        found = x.new_zeros(graphs, 2 * hidden)
        for _ in range(nodes):
            state = self.reader(found, state)
            asked = state[0]
            weights = torch.softmax((x * asked[:, None]).sum(2), dim=1)
            found = torch.cat([asked, (weights[..., None] * x).sum(1)], dim=1)
        return found


def begin(features: int, hidden: int, targets: int) -> Inspector:
    """A network that has learned nothing."""
    return Inspector(features, hidden, targets)


def resume(weights: Mapping[str, NDArray[np.float32]], *, features: int, hidden: int, targets: int) -> Inspector:
    """A network with these weights."""
    network = Inspector(features, hidden, targets, tuned=any(name.startswith("tuned.") for name in weights))
    network.load_state_dict({name: torch.tensor(values) for name, values in weights.items()})
    return network


def split(network: Inspector) -> Inspector:
    """Ready for transfer: only the second half of the repetitions and the last three layers will learn."""
    if network.tuned is None:
        network.tuned = copy.deepcopy(network.repeated)
    network.requires_grad_(False)
    network.tuned.requires_grad_(True)
    network.perceptron.requires_grad_(True)
    return network


def train(network: Inspector, batches: Sequence[Batch], *, epochs: int, learning_rate: float) -> Weights:
    """Weights after so many times through all batches: Adam on the mean square error of the targets that are known.

    The learning rate falls to nothing along half a cosine, so that the weights at the end are no chance ones.
    """
    learning = [each for each in network.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(learning, lr=learning_rate, weight_decay=WEIGHT_DECAY)
    batches = [batch for batch in batches if not batch.targets.isnan().all()]
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, epochs * len(batches)))
    for _ in range(epochs):
        for place in torch.randperm(len(batches)).tolist():
            batch = batches[place]
            known = ~batch.targets.isnan()
            optimizer.zero_grad()
            told = network(batch.features, batch.adjacency)
            nn.functional.mse_loss(told[known], batch.targets[known]).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(learning, LARGEST_GRADIENT)
            optimizer.step()
            rate.step()
    return {name: value.numpy().copy() for name, value in network.state_dict().items()}


def tell(network: Inspector, batch: Batch) -> Floats:
    """Targets of each graph."""
    with torch.inference_mode():
        return np.asarray(network(batch.features, batch.adjacency).numpy(), dtype=np.float64)
