"""The network of the published Driple, in PyTorch, and its training."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from foretell.core.workload import Floats

WEIGHT_DECAY = 1e-6
LARGEST_GRADIENT = 1.0  # norm; layers that are repeated so often have huge gradients at times
Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Graphs with the same number of nodes, and the targets of each; NaN where not measured."""

    features: torch.Tensor  # graph, node, feature
    adjacency: torch.Tensor  # graph, node, node
    targets: torch.Tensor  # graph, target


def build_batch(features: Sequence[Floats], edges: Sequence[Sequence[tuple[int, int]]], targets: Floats) -> Batch:
    """Graphs as tensors."""
    nodes = len(features[0])
    return Batch(
        features=torch.tensor(np.stack(features), dtype=torch.float32),
        adjacency=torch.tensor(np.stack([_normalise(nodes, each) for each in edges]), dtype=torch.float32),
        targets=torch.tensor(targets, dtype=torch.float32),
    )


def _normalise(nodes: int, edges: Iterable[tuple[int, int]]) -> Floats:
    """The normalised adjacency matrix with self-loops (Kipf and Welling)."""
    matrix = np.eye(nodes)
    for begin, end in edges:
        matrix[begin, end] = matrix[end, begin] = 1.0
    roots = np.sqrt(matrix.sum(axis=1))
    return np.asarray(matrix / roots[:, None] / roots[None, :])


class DripleNetwork(nn.Module):
    """Graph convolutions with a GRU after each, set2set, and three linear layers to all targets.

    The first convolution has its own weights; the next one is repeated for half of the nodes. After transfer, the
    second half of the repetitions has its own weights: ``tuned``.
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
        targets: torch.Tensor = self.perceptron(self._read(x))
        return targets

    def _repeat(self, count: int) -> Iterator[nn.Module]:
        for place in range(count):
            yield self.repeated if self.tuned is None or place < count // 2 else self.tuned

    def _gate(self, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        gated: torch.Tensor = self.gate(before.flatten(0, 1), after.flatten(0, 1))
        return gated.view_as(after)

    def _read(self, x: torch.Tensor) -> torch.Tensor:
        """Set2set (Vinyals et al.): attention over the nodes, with a query that depends on the result so far."""
        graphs, nodes, hidden = x.shape
        state = x.new_zeros(graphs, hidden), x.new_zeros(graphs, hidden)
        found = x.new_zeros(graphs, 2 * hidden)
        for _ in range(nodes):
            state = self.reader(found, state)
            query = state[0]
            weights = torch.softmax((x * query[:, None]).sum(2), dim=1)
            found = torch.cat([query, (weights[..., None] * x).sum(1)], dim=1)
        return found


def build(features: int, hidden: int, targets: int) -> DripleNetwork:
    """A network with random weights."""
    return DripleNetwork(features, hidden, targets)


def check_weights(weights: Mapping[str, NDArray[Any]], *, features: int, hidden: int, targets: int) -> None:
    """Check names, shapes and values of weights from a file.

    Raises:
        LookupError, ValueError: They are not those of such a network.
    """
    if weights["first.weight"].shape != (hidden, features):
        raise ValueError(f"no weights of a network with {hidden} hidden units")
    with torch.device("meta"):
        expected = DripleNetwork(features, hidden, targets, tuned=_is_tuned(weights)).state_dict()
    shapes = {name: tuple(values.shape) for name, values in expected.items()}
    if shapes != {name: values.shape for name, values in weights.items()}:
        raise ValueError("weights of another network")
    if not all(values.dtype.kind == "f" and np.isfinite(values).all() for values in weights.values()):
        raise ValueError("weights that are not finite numbers")


def _is_tuned(weights: Iterable[str]) -> bool:
    return any(name.startswith("tuned.") for name in weights)


def load(weights: Mapping[str, NDArray[np.float32]], *, features: int, hidden: int, targets: int) -> DripleNetwork:
    """A network with these weights."""
    network = DripleNetwork(features, hidden, targets, tuned=_is_tuned(weights))
    network.load_state_dict({name: torch.tensor(values) for name, values in weights.items()})
    return network


def prepare_transfer(network: DripleNetwork) -> DripleNetwork:
    """Freeze all weights but those of the second half of the repetitions and of the last three layers."""
    if network.tuned is None:
        network.tuned = copy.deepcopy(network.repeated)
    network.requires_grad_(False)
    network.tuned.requires_grad_(True)
    network.perceptron.requires_grad_(True)
    return network


def train(network: DripleNetwork, batches: Sequence[Batch], *, epochs: int, learning_rate: float) -> Weights:
    """Weights after so many epochs: Adam on the mean square error of the measured targets.

    The learning rate decays to 0 along half a cosine, so that the last weights are not those of a random step.
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
            predicted = network(batch.features, batch.adjacency)
            nn.functional.mse_loss(predicted[known], batch.targets[known]).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(learning, LARGEST_GRADIENT)
            optimizer.step()
            rate.step()
    return {name: value.numpy().copy() for name, value in network.state_dict().items()}


def predict(network: DripleNetwork, batch: Batch) -> Floats:
    """Targets of each graph."""
    with torch.inference_mode():
        return np.asarray(network(batch.features, batch.adjacency).numpy(), dtype=np.float64)
