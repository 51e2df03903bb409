"""ETS as published: an LSTM over sliding windows of the operators in the order in which they run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.devices import Device
from foretell.core.model_files import check_numbers
from foretell.core.workload import Floats, MeasuredStep, StepPhase, Workload
from foretell.steps._base import StepModel, StepTimes
from foretell.steps.ets_network import build_network, import_torch, list_weights, predict_windows
from foretell.steps.ets_training import PATIENCE, Training, TrainingPlan
from foretell.steps.ets_windows import (
    Encoder,
    build_sequence,
    choose_validation,
    find_kind,
    find_spread,
    find_unrecorded,
    lay_windows,
)
from foretell.steps.operator_encoding import COLUMNS, Rows, find_distinct, find_iterations
from foretell.steps.torch_seed import torch_seed

_MOST_HIDDEN = 4096


class EtsModel(StepModel):
    """A bidirectional LSTM of four layers predicts the time of each operator and the gap after it.

    An operator is encoded by its kind, phase, shapes, hyper-parameters, costs, the batch and the optimizer. Windows of
    twelve operators move by four; overlapping predictions are averaged, and the iteration takes their sum. Both
    targets are standardised seconds without logarithms; the loss is their mean absolute error (Adam, batches of 128
    windows, at most 100 epochs). Here an epoch is a random ``sample`` of the windows, and the weights are those of the
    epoch with the lowest mean relative error on the validation models.

    As in the original, unrecorded operators are not part of a sequence: their work is in the gap before them. Kinds
    that were mostly unrecorded in a phase are left out of predictions as well. Overlapping kernels have negative gaps,
    which are fitted as such and predicted as zero.

    With ``max_minutes`` the end of training depends on the machine; without it, predictions are repeatable. Training
    also ends after ``patience`` epochs without a lower error, if given. With ``checkpoint``, a file, it is continued
    after an interruption.
    """

    kind: ClassVar[str] = "ets"

    def __init__(
        self,
        epochs: int = 100,
        hidden: int = 64,
        sample: int = 20_000,
        max_minutes: float | None = 20.0,
        threads: int = 1,
        seed: int = 0,
        patience: int | None = PATIENCE,
        checkpoint: Path | None = None,
    ) -> None:
        self.epochs = epochs
        self.hidden = hidden
        self.sample = sample
        self.max_minutes = max_minutes
        self.threads = threads
        self.seed = seed
        self.patience = patience
        self.checkpoint = checkpoint

    @classmethod
    def build(cls, device: Device, *, seed: int = 0) -> Self:
        return cls(seed=seed)

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Fit the model; returns itself.

        Raises:
            MissingExtraError: PyTorch is not installed.
        """
        torch = import_torch()
        distinct = find_distinct(step.workload for step in steps)
        self.encoder_ = Encoder.fit(distinct, steps)
        self.unrecorded_ = find_unrecorded(distinct, steps)
        sequence = build_sequence(distinct, steps)
        self.centre_, self.spread_ = sequence.times.mean(axis=0), find_spread(sequence.times)
        features = self.encoder_.encode(distinct, [step.workload for step in steps])
        validation = choose_validation(steps, np.random.default_rng(self.seed))
        with torch_seed(seed=self.seed, threads=self.threads):
            training = Training(
                torch,
                self._plan(),
                features,
                sequence,
                validation=validation,
                truth=find_iterations(steps),
                scale=(self.centre_, self.spread_),
            )
            found = training.run()
        self.weights_, self.epochs_, self.validation_error_ = found.weights, found.epochs, found.error
        return self

    def _plan(self) -> TrainingPlan:
        return TrainingPlan(
            epochs=self.epochs,
            hidden=self.hidden,
            sample=self.sample,
            patience=self.patience,
            max_minutes=self.max_minutes,
            seed=self.seed,
            checkpoint=self.checkpoint,
        )

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step.

        Raises:
            MissingExtraError: PyTorch is not installed.
        """
        torch = import_torch()
        distinct = find_distinct(workloads)
        features = self.encoder_.encode(distinct, workloads)
        hidden = np.array([find_kind(operator) in self.unrecorded_ for operator in distinct.operators], dtype=bool)
        positions = [np.flatnonzero(~hidden[rows]) for rows in distinct.rows]
        rows = [rows[kept] for rows, kept in zip(distinct.rows, positions, strict=True)]
        with torch_seed(seed=self.seed, threads=self.threads):
            network = build_network(torch, features.width, self.hidden)
            network.load_state_dict({name: torch.from_numpy(values) for name, values in self.weights_.items()})
            outputs = predict_windows(torch, network, features, lay_windows(rows))
        times = np.maximum(outputs * self.spread_ + self.centre_, 0.0)
        ends = np.cumsum([len(kept) for kept in positions])
        return [
            _build_times(times[end - len(kept) : end], kept, len(workload.operators))
            for workload, kept, end in zip(workloads, positions, ends, strict=True)
        ]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        encoder = self.encoder_
        record = {
            "hidden": self.hidden,
            "kinds": list(encoder.kinds),
            "optimizers": list(encoder.optimizers),
            "unrecorded": sorted([kind, phase.value] for kind, phase in self.unrecorded_),
        }
        arrays = {
            "columns.centre": encoder.centre,
            "columns.spread": encoder.spread,
            "times.centre": self.centre_,
            "times.spread": self.spread_,
        }
        return record, arrays | {f"weights.{name}": values for name, values in self.weights_.items()}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        model = cls(hidden=_read_hidden(record["hidden"]))
        model.encoder_ = Encoder(
            kinds=tuple(map(str, record["kinds"])),
            optimizers=tuple(map(str, record["optimizers"])),
            centre=check_numbers(arrays["columns.centre"], shape=(len(COLUMNS),)),
            spread=check_numbers(arrays["columns.spread"], shape=(len(COLUMNS),)),
        )
        model.unrecorded_ = frozenset((str(kind), StepPhase(phase)) for kind, phase in record["unrecorded"])
        model.centre_, model.spread_ = (
            check_numbers(arrays[f"times.{name}"], shape=(2,)) for name in ("centre", "spread")
        )
        model.weights_ = {
            name: check_numbers(arrays[f"weights.{name}"], shape=shape).astype(np.float32)
            for name, shape in list_weights(model.encoder_.width, model.hidden).items()
        }
        return model


def _build_times(times: Floats, positions: Rows, length: int) -> StepTimes:
    kernel, gap = np.zeros(length), np.zeros(length)
    kernel[positions], gap[positions] = times[:, 0], times[:, 1]
    return StepTimes(iteration_s=float(times.sum()), kernel_s=kernel, gap_s=gap)


def _read_hidden(value: Any) -> int:
    if not isinstance(value, int) or not 1 <= value <= _MOST_HIDDEN:
        raise ValueError(f"hidden {value!r}, expected 1 to {_MOST_HIDDEN}")
    return value
