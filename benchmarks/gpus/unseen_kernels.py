"""How far the models of convolutions and passes err on devices, and on kernels of models, that they do not know."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.gpus.kernel_fitting import MOST, FittedModels, fit_models, read_observations
from benchmarks.gpus.kernel_observations import Observation, draw, group_by_device, predict_observations
from benchmarks.gpus.product_fits import find_chip
from benchmarks.gpus.products import average
from benchmarks.gpus.progress import follow
from benchmarks.gpus.results import Result, judge
from foretell.core.devices import Device, get_device
from foretell.core.workload import Floats
from foretell.steps.kernels._base import Evidence
from foretell.steps.kernels.convolution_times import ConvolutionTimeModel
from foretell.steps.kernels.pass_times import PassTimeModel

_MOST_LEFT_OUT = 100  # observations of each device, source and label, where models are fitted for each device
_MOST_FOLDED = 400  # the same, where recorded models are left out
_FOLDS = 4  # of the recorded models
_CALIBRATION = 64  # calls of each kind of kernel that calibrate a device
_NINETY = 1.645  # half width of a 90 % interval, in standard deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """An observation, and what models predict that do not know its device, or its model."""

    observation: Observation
    seconds: float
    evidence: Evidence

    @property
    def log_error(self) -> float:
        return float(np.log(self.observation.seconds / self.seconds))


def leave_out_devices(devices: tuple[str, ...] = ()) -> tuple[Predicted, ...]:
    """Each device, or each of these, by models fitted on the others."""
    chosen = _choose(devices)
    found = (
        _predict(_fit_without(find_chip(name)), get_device(name), chosen[name]) for name in follow(chosen, "kernels of")
    )
    return tuple(one for some in found for one in some)


def calibrate_devices(devices: tuple[str, ...] = ()) -> tuple[Predicted, ...]:
    """The same, by models that also know a few calls of the device."""
    found: list[Predicted] = []
    chosen = _choose(devices)
    for name in follow(chosen, "calibrated kernels of"):
        device, (known, rest) = get_device(name), _divide(chosen[name])
        found += _predict(_calibrate(_fit_without(find_chip(name)), device, known), device, rest)
    return tuple(found)


@cache
def _draw() -> tuple[Observation, ...]:
    return tuple(draw(read_observations(), _MOST_LEFT_OUT))


@cache
def _fit_without(chip: str) -> FittedModels:
    return fit_models([one for one in _draw() if find_chip(one.device) != chip], rounds=1)


@cache
def leave_out_models(most: int = _MOST_FOLDED) -> tuple[Predicted, ...]:
    """Kernels of each quarter of the recorded models by models fitted on the others, on the same devices."""
    drawn = draw(read_observations(), most)
    names = sorted({name for one in drawn for name in one.models})
    found: list[Predicted] = []
    for fold in follow(range(_FOLDS), "kernels of models, fold"):
        unseen = frozenset(names[fold::_FOLDS])
        models = fit_models([one for one in drawn if not one.models & unseen])
        for device, some in group_by_device([one for one in drawn if one.models and one.models <= unseen]).items():
            found += _predict(models, device, some)
    return tuple(found)


def _choose(devices: Sequence[str]) -> Mapping[str, list[Observation]]:
    names = {get_device(name).name for name in devices}
    groups = group_by_device(_draw())
    return {device.name: some for device, some in groups.items() if not names or device.name in names}


def _divide(observations: Sequence[Observation]) -> tuple[list[Observation], list[Observation]]:
    """Some observations of one call each, and all others."""
    known: set[int] = set()
    for convolves in (True, False):
        places = [n for n, one in enumerate(observations) if len(one.calls) == 1 and one.convolves is convolves]
        known |= set(np.random.default_rng(0).permutation(places)[:_CALIBRATION].tolist())
    return (
        [one for n, one in enumerate(observations) if n in known],
        [one for n, one in enumerate(observations) if n not in known],
    )


def _calibrate(models: FittedModels, device: Device, known: Sequence[Observation]) -> FittedModels:
    found: dict[bool, Any] = {}
    for convolves, model in _list_models(models).items():
        some = [one for one in known if one.convolves is convolves]
        seconds = np.array([one.seconds for one in some])
        found[convolves] = model.calibrate([one.calls[0] for one in some], device, seconds) if some else model
    return FittedModels(found[True], found[False])


def _list_models(models: FittedModels) -> dict[bool, Any]:
    """That of convolutions is True."""
    return {True: models.convolutions, False: models.passes}


def _predict(models: FittedModels, device: Device, observations: Sequence[Observation]) -> list[Predicted]:
    if not observations:
        return []
    seconds: Floats = predict_observations(observations, device, models.predict)
    evidence = {known: model.find_evidence(device, "fp32") for known, model in _list_models(models).items()}
    return [
        Predicted(observation=one, seconds=time, evidence=evidence[one.convolves])
        for one, time in zip(observations, seconds.tolist(), strict=True)
    ]


@cache
def _fit_all() -> FittedModels:
    return fit_models(draw(read_observations(), MOST))


def fit_convolutions() -> ConvolutionTimeModel:
    """The model that ships, with the spreads of its errors."""
    model = _fit_all().convolutions
    model.spreads_ = find_spreads(convolves=True)
    return model


def fit_passes() -> PassTimeModel:
    """The model that ships, with the spreads of its errors."""
    model = _fit_all().passes
    model.spreads_ = find_spreads(convolves=False)
    return model


def find_spreads(*, convolves: bool) -> dict[str, float]:
    """The standard deviation of log errors by evidence, as 90 % of them have it."""
    groups: dict[str, list[float]] = {}
    for one in (*leave_out_models(), *leave_out_devices()):
        if one.observation.convolves is convolves:
            groups.setdefault(str(one.evidence), []).append(abs(one.log_error))
    return {name: round(float(np.quantile(errors, 0.9)) / _NINETY, 4) for name, errors in groups.items()}


def judge_devices(
    what: str, predicted: Iterable[Predicted], *, convolves: bool, most: float | None, note: str = ""
) -> list[Result]:
    """A row for each device, and one with the goal for the mean over devices."""
    groups: dict[str, list[Predicted]] = {}
    for one in predicted:
        if one.observation.convolves is convolves:
            groups.setdefault(one.observation.device, []).append(one)
    rows = [judge_some(what, name, some, note=note) for name, some in sorted(groups.items())]
    return [*rows, *average(rows, {} if most is None else {what: most})]


def judge_some(
    what: str, group: str, some: Sequence[Predicted], *, most: float | None = None, note: str = ""
) -> Result:
    """The errors of these."""
    measured = [one.observation.seconds for one in some]
    return judge(what, group, [one.seconds for one in some], measured, most=most, note=note)
