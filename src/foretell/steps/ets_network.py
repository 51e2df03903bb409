"""The network of ETS: a bidirectional LSTM over windows of operators. PyTorch is imported when it is used."""

from typing import Any

import numpy as np

from foretell.core.errors import MissingExtraError
from foretell.core.workload import Floats
from foretell.steps.ets_windows import WINDOW, Features, Windows

LAYERS = 4
_PREDICT_BATCH = 1024


def import_torch() -> Any:
    """The library.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import torch
    except ImportError as exc:
        raise MissingExtraError("method 'ets' needs: pip install 'foretell[torch]'") from exc
    return torch


def build_network(torch: Any, width: int, hidden: int) -> Any:
    """The network for windows of ``width`` columns: two outputs at each position."""

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(width, hidden, LAYERS, batch_first=True, bidirectional=True)
            self.output = torch.nn.Linear(2 * hidden, 2)

        def forward(self, X: Any) -> Any:
            return self.output(self.lstm(X)[0])

    return Network()


def list_weights(width: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the weights of the network."""
    shapes: dict[str, tuple[int, ...]] = {"output.weight": (2, 2 * hidden), "output.bias": (2,)}
    for layer in range(LAYERS):
        for end in ("", "_reverse"):
            name = f"l{layer}{end}"
            shapes[f"lstm.weight_ih_{name}"] = (4 * hidden, 2 * hidden if layer else width)
            shapes[f"lstm.weight_hh_{name}"] = (4 * hidden, hidden)
            shapes[f"lstm.bias_ih_{name}"] = shapes[f"lstm.bias_hh_{name}"] = (4 * hidden,)
    return shapes


def predict_windows(torch: Any, network: Any, features: Features, windows: Windows) -> Floats:
    """Both outputs at each position, the mean over its windows; equal windows are computed once."""
    first, back = windows.find_distinct(features)
    outputs = np.empty((len(first), WINDOW, 2))
    with torch.inference_mode():
        for begin in range(0, len(first), _PREDICT_BATCH):
            part = windows.take(first[begin : begin + _PREDICT_BATCH])
            outputs[begin : begin + len(part.step)] = network(features.gather(torch, part)).numpy()
    chosen = windows.positions[windows.mask]
    counts = np.bincount(chosen, minlength=len(windows.rows))
    sums = [
        np.bincount(chosen, weights=outputs[back][..., target][windows.mask], minlength=len(counts))
        for target in (0, 1)
    ]
    means: Floats = np.column_stack(sums) / np.maximum(counts, 1)[:, None]
    return means
