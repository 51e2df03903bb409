"""Fits the models of convolutions and of passes together, on observations of all sources."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.gpus.convolution_rows import read_convolutions
from benchmarks.gpus.kernel_observations import Observation, Predict, group_by_device, predict_with, share_out
from benchmarks.gpus.pass_rows import read_passes
from benchmarks.gpus.recorded_kernels import read_recorded
from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels.convolution_times import ConvolutionTimeModel
from foretell.steps.kernels.kernel_calls import Convolution, MemoryPass
from foretell.steps.kernels.pass_times import PassTimeModel

MOST = 1500  # observations of each device, source and label
_ROUNDS = 2  # of dividing times that were measured together


@cache
def read_observations() -> tuple[Observation, ...]:
    """Those of all sources."""
    return (*read_recorded(), *read_convolutions(), *read_passes())


@dataclass(frozen=True, slots=True)
class FittedModels:
    """Both models; times of operators are often those of a convolution and a pass together."""

    convolutions: ConvolutionTimeModel
    passes: PassTimeModel

    @property
    def predict(self) -> Predict:
        return predict_with({Convolution: self.convolutions.predict, MemoryPass: self.passes.predict})


def fit_models(observations: Sequence[Observation], *, rounds: int = _ROUNDS) -> FittedModels:
    """Fit both; the times of observations of several calls are divided as the models of the round before predict."""
    models = FittedModels(ConvolutionTimeModel(), PassTimeModel())
    for _ in range(rounds):
        calls: list[Any] = []
        devices: list[Device] = []
        parts: list[Floats] = []
        for device, some in group_by_device(observations).items():
            parts.append(share_out(some, device, models.predict))
            calls += [call for one in some for call in one.calls]
            devices += [device] * len(parts[-1])
        seconds = np.concatenate(parts)
        models = FittedModels(ConvolutionTimeModel(), PassTimeModel())
        for kind, model in ((Convolution, models.convolutions), (MemoryPass, models.passes)):
            places = [place for place, call in enumerate(calls) if isinstance(call, kind)]
            if places:
                model.fit([calls[n] for n in places], [devices[n] for n in places], seconds[places])
    return models
