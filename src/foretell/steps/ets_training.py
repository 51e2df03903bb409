"""Trains the network of ETS: Adam on windows; the best epoch on validation models is kept, a checkpoint resumes it."""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import StoreError
from foretell.core.model_files import ModelContent, from_bytes, to_bytes
from foretell.core.private_files import write_whole
from foretell.core.workload import Floats
from foretell.steps.ets_network import build_network, predict_windows
from foretell.steps.ets_windows import Features, RecordedSequence, lay_windows
from foretell.steps.operator_encoding import Rows

BATCH = 128
LEARNING_RATE = 1e-3
PATIENCE = 15  # epochs without a lower validation error
_VALIDATION_STEPS = 50
_CHECKPOINT = "ets-training"
_ADAM = ("step", "exp_avg", "exp_avg_sq")
_log = logging.getLogger(__name__)

Weights = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """How long to train: ``sample`` windows an epoch, and until when."""

    epochs: int
    hidden: int
    sample: int
    patience: int | None
    max_minutes: float | None
    seed: int
    checkpoint: Path | None = None  # written after each epoch; training continues from it

    def describe(self) -> dict[str, Any]:
        """What must be equal for a training to be continued; epochs may become shorter or longer."""
        return {"hidden": self.hidden, "seed": self.seed}


@dataclass(slots=True, kw_only=True)
class TrainingResult:
    """The weights of the best epoch."""

    epochs: int = 0
    error: float = np.inf  # on validation models
    waited: int = 0  # epochs since the best one
    weights: Weights = field(default_factory=dict)


class Training:
    """A training that can be stopped and continued between epochs."""

    def __init__(
        self,
        torch: Any,
        plan: TrainingPlan,
        features: Features,
        sequence: RecordedSequence,
        *,
        validation: NDArray[np.bool_],
        truth: Floats,
        scale: tuple[Floats, Floats],
    ) -> None:
        self._torch, self._plan, self._features = torch, plan, features
        self._scale = scale
        self._windows = lay_windows(sequence.rows)
        self._training = np.flatnonzero(~validation[self._windows.step])
        held_out = _thin(np.flatnonzero(validation), _VALIDATION_STEPS)
        self._held_out = lay_windows([sequence.rows[position] for position in held_out], held_out)
        self._truth = truth[held_out]
        centre, spread = scale
        self._y = torch.from_numpy(((sequence.times - centre) / spread).astype(np.float32))
        self._network = build_network(torch, features.width, plan.hidden)
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.999))
        self._random = np.random.default_rng(plan.seed)
        self._result = TrainingResult()

    def run(self) -> TrainingResult:
        """Train until the plan ends."""
        plan, result = self._plan, self._result
        if plan.checkpoint and plan.checkpoint.exists():
            self._resume(plan.checkpoint)
        end = None if plan.max_minutes is None else time.monotonic() + 60 * plan.max_minutes
        while result.epochs < plan.epochs:
            self._run_epoch(end)
            if plan.checkpoint:
                self._keep(plan.checkpoint)
            tired = plan.patience is not None and result.waited >= plan.patience
            if tired or (end is not None and time.monotonic() > end):
                break
        return result

    def _run_epoch(self, end: float | None) -> None:
        chosen = self._random.permutation(self._training)[: self._plan.sample]
        for begin in range(0, len(chosen), BATCH):
            self._improve(chosen[begin : begin + BATCH])
            if end is not None and time.monotonic() > end:
                break
        error, result = self._validate(), self._result
        result.epochs += 1
        result.waited = 0 if error < result.error else result.waited + 1
        if error < result.error:
            result.error, result.weights = error, self._copy_weights()
        _log.info("epoch %d: %.1f %% error on validation models", result.epochs, 100 * error)

    def _improve(self, chosen: Rows) -> None:
        part = self._windows.take(chosen)
        known = self._torch.from_numpy(part.mask)
        predicted = self._network(self._features.gather(self._torch, part))
        loss = self._torch.nn.functional.l1_loss(predicted[known], self._y[part.positions][known])
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def _validate(self) -> float:
        """The mean relative error of whole iterations."""
        centre, spread = self._scale
        outputs = predict_windows(self._torch, self._network, self._features, self._held_out)
        times = np.maximum(outputs * spread + centre, 0.0).sum(axis=1)
        sums = np.bincount(self._held_out.owner, weights=times, minlength=len(self._truth))
        return float(np.mean(np.abs(sums / self._truth - 1)))

    def _copy_weights(self) -> Weights:
        return {name: value.numpy().copy() for name, value in self._network.state_dict().items()}

    def _keep(self, path: Path) -> None:
        result = self._result
        record = {
            **self._plan.describe(),
            "epochs": result.epochs,
            "error": result.error,
            "waited": result.waited,
            "random": json.dumps(self._random.bit_generator.state),
        }
        adam = self._optimizer.state_dict()["state"]
        arrays = {f"adam.{row}.{name}": values[name].numpy() for row, values in adam.items() for name in _ADAM}
        arrays |= {f"network.{name}": values for name, values in self._copy_weights().items()}
        arrays |= {f"best.{name}": values for name, values in result.weights.items()}
        write_whole(path, to_bytes(ModelContent(kind=_CHECKPOINT, record=record, arrays=arrays)))

    def _resume(self, path: Path) -> None:
        remedy = "delete it to start this training again"
        content = from_bytes(path.read_bytes(), kinds=(_CHECKPOINT,), source=str(path), remedy=remedy)
        record = content.record
        if any(record.get(name) != value for name, value in self._plan.describe().items()):
            raise StoreError(f"{path}: a checkpoint of a training with other settings; {remedy}")
        load = self._torch.from_numpy
        network, best = (_select(content.arrays, f"{part}.") for part in ("network", "best"))
        self._network.load_state_dict({name: load(values) for name, values in network.items()})
        count = len(list(self._network.parameters()))
        state = {row: {name: load(content.arrays[f"adam.{row}.{name}"]) for name in _ADAM} for row in range(count)}
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": state})
        self._random.bit_generator.state = json.loads(record["random"])
        result = self._result
        result.epochs, result.error = int(record["epochs"]), float(record["error"])
        result.waited, result.weights = int(record["waited"]), best
        _log.info("continued after epoch %d", result.epochs)


def _select(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Weights:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def _thin(positions: Rows, count: int) -> Rows:
    """``count`` positions, evenly spread, because steps of one model are adjacent."""
    return positions[np.unique(np.linspace(0, len(positions) - 1, count).round().astype(np.intp))]
