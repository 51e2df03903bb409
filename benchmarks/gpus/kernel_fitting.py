"""Fits the models of convolutions and passes on observations, and measures how far they err on unseen devices."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.gpus.convolution_rows import read_convolutions
from benchmarks.gpus.kernel_observations import (
    Observation,
    Predict,
    draw,
    group_by_device,
    predict_observations,
    predict_with,
    share_out,
)
from benchmarks.gpus.pass_rows import read_passes
from benchmarks.gpus.recorded_kernels import read_recorded
from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels._base import Evidence
from foretell.steps.kernels.convolution_times import ConvolutionTimeModel
from foretell.steps.kernels.kernel_calls import Convolution, MemoryPass
from foretell.steps.kernels.pass_times import PassTimeModel

MOST = 2500  # observations of each device, source and label
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """An observation of a device, and what a model predicts that does not know it."""

    observation: Observation
    seconds: float
    evidence: Evidence

    @property
    def log_error(self) -> float:
        return float(np.log(self.observation.seconds / self.seconds))


def leave_out_devices(
    observations: Sequence[Observation],
    devices: Iterable[str],
    *,
    most: int,
    adapt: Callable[[FittedModels, Device, Sequence[Observation]], FittedModels] | None = None,
) -> list[Predicted]:
    """Each device predicted by models fitted on the others, and on a few calls of it if ``adapt`` uses them."""
    drawn = draw(observations, most)
    found = []
    for device, some in group_by_device(drawn).items():
        if device.name in devices:
            models = fit_models([one for one in drawn if one.device != device.name], rounds=1)
            models = adapt(models, device, some) if adapt else models
            found += _predict(models, device, some)
    return found


def _predict(models: FittedModels, device: Device, observations: Sequence[Observation]) -> list[Predicted]:
    seconds = predict_observations(observations, device, models.predict)
    known = {
        True: models.convolutions.find_evidence(device, "fp32"),
        False: models.passes.find_evidence(device, "fp32"),
    }
    return [
        Predicted(observation=one, seconds=time, evidence=known[one.convolves])
        for one, time in zip(observations, seconds.tolist(), strict=True)
    ]


# Uncertainty and files

_FEW = 600  # observations of each device, source and label, where models are fitted many times


def fit_shipped(observations: Sequence[Observation]) -> FittedModels:
    """Fitted on all devices, with the spreads of errors of those left out."""
    models = fit_models(draw(observations, MOST))
    errors = [
        *leave_out_models(observations, most=_FEW),
        *leave_out_devices(observations, _list(observations), most=_FEW),
    ]
    for convolves, model in ((True, models.convolutions), (False, models.passes)):
        model.spreads_ = find_spreads([one for one in errors if one.observation.convolves is convolves])
    return models


def _list(observations: Iterable[Observation]) -> list[str]:
    return sorted({one.device for one in observations})


def leave_out_models(observations: Sequence[Observation], *, most: int) -> list[Predicted]:
    """Each half of the recorded models predicted by the other half, on devices that are known."""
    drawn = draw(observations, most)
    names = sorted({name for one in drawn for name in one.models})
    found = []
    for half in (frozenset(names[::2]), frozenset(names[1::2])):
        models = fit_models([one for one in drawn if not one.models & half], rounds=1)
        unseen = [one for one in drawn if one.models and one.models <= half]
        for device, some in group_by_device(unseen).items():
            found += _predict(models, device, some)
    return found


def find_spreads(predicted: Iterable[Predicted]) -> dict[str, float]:
    """The standard deviation of log errors by evidence, as 90 % of them have it."""
    groups: dict[str, list[float]] = {}
    for one in predicted:
        groups.setdefault(str(one.evidence), []).append(abs(one.log_error))
    return {name: round(float(np.quantile(errors, 0.9)) / _NINETY, 4) for name, errors in groups.items()}


_NINETY = 1.645  # half width of a 90 % interval, in standard deviations
