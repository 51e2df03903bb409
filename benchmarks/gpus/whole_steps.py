"""Predicts measured steps of whole models, and learns what corrects their kernels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.gpus.step_labels import StepLabel
from foretell.core.devices import Device, get_device
from foretell.core.workload import Floats
from foretell.steps._base import StepTimes
from foretell.steps.kernels.shipped_models import KernelModels
from foretell.steps.kernels.split_steps import split_step
from foretell.steps.kernels.step_corrections import StepCorrections
from foretell.steps.kernels.step_levels import MOST_LOG, StepLevels, name_levels
from foretell.steps.kernels.step_times import KernelStepModel

_ROUNDS = 12
_USUAL = 0.10  # standard deviation of log errors
# Of levels: of kernels that hardly anybody measured one by one, of others, and of an architecture.
_UNMEASURED, _SHARED, _OWN = 0.3, 0.1, 0.2
_NONE = 0.01  # most devices are of one vendor: what they have in common is shared by all
_LEAST = 0.005  # smaller levels are left out
_FAR = 3.0  # standard deviations from which a step counts less


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCase:
    """A measured step, and its prediction without corrections."""

    label: StepLabel
    device: Device
    times: StepTimes  # without corrections
    groups: Mapping[str, float]  # seconds of the kernels of each group
    waiting_s: float  # of the device for the host, and what is no part of the step

    @property
    def predicted_s(self) -> float:
        """The measurement, predicted without corrections."""
        return self.times.iteration_s + self.label.extra_s


def build_cases(
    labels: Iterable[StepLabel], *, models: KernelModels | None = None, host_shift: float = 0.0
) -> list[StepCase]:
    """The labels whose models can be read."""
    found = (build_case(label, models=models, host_shift=host_shift) for label in labels)
    return [case for case in found if case is not None]


def build_case(label: StepLabel, *, models: KernelModels | None = None, host_shift: float = 0.0) -> StepCase | None:
    """A label with its prediction; None if its model cannot be read."""
    workload = label.read()
    if workload is None:
        return None
    device = get_device(label.device)
    model = KernelStepModel(device, models=models, corrections=StepCorrections())
    model.host_shift_ = host_shift
    times = model.predict([workload])[0]
    split = split_step(workload)
    seconds = model.predict_kernels(split) * split.count
    sums = np.bincount(split.group_of, weights=seconds, minlength=len(split.groups))
    groups = dict(zip(split.groups, sums.tolist(), strict=True))
    waiting = times.iteration_s - float(times.kernel_s.sum()) + label.extra_s
    return StepCase(label=label, device=device, times=times, groups=groups, waiting_s=waiting)


def apply_levels(case: StepCase, levels: StepLevels) -> float:
    """The predicted measurement with corrected kernels."""
    names = list(case.groups)
    factors = np.exp(levels.find(names, case.device))
    return float(np.array([case.groups[name] for name in names]) @ factors) + case.waiting_s


def fit_levels(cases: Sequence[StepCase]) -> StepLevels:
    """Levels with which the predictions of these steps are closest: small ones, and smaller ones by architecture.

    Gauss-Newton on logarithms of whole steps, with normal priors; far steps count less.
    """
    table = _Table.build(cases)
    levels = np.zeros(len(table.names))
    for _ in range(_ROUNDS):
        parts = table.seconds * np.exp(np.clip(levels @ table.members, -MOST_LOG, MOST_LOG))
        total = parts.sum(axis=1) + table.waiting
        errors = np.log(table.measured / total)
        slopes = (parts / total[:, None]) @ table.members.T
        weights = table.weights / np.maximum(1.0, np.abs(errors) / (_FAR * _USUAL)) / _USUAL**2
        normal = (slopes * weights[:, None]).T @ slopes + np.diag(table.strictness)
        levels += np.linalg.solve(normal, (slopes * weights[:, None]).T @ errors - table.strictness * levels)
        levels = np.clip(levels, -MOST_LOG, MOST_LOG)
    found = zip(table.names, levels.tolist(), strict=True)
    return StepLevels(levels={name: level for name, level in found if abs(level) >= _LEAST})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    names: list[str]  # of levels
    members: Floats  # levels x groups by architecture: which level a group has
    seconds: Floats  # cases x groups by architecture
    waiting: Floats
    measured: Floats
    weights: Floats
    strictness: Floats

    @classmethod
    def build(cls, cases: Sequence[StepCase]) -> "_Table":
        devices = {case.device.architecture: case.device for case in cases}
        parts = sorted({(group, case.device.architecture) for case in cases for group in case.groups})
        place = {part: number for number, part in enumerate(parts)}
        seconds = np.zeros((len(cases), len(parts)))
        for row, case in enumerate(cases):
            for group, value in case.groups.items():
                seconds[row, place[group, case.device.architecture]] = value
        levels = [name_levels(group, devices[architecture]) for group, architecture in parts]
        names = sorted({name for each in levels for name in each})
        number = {name: row for row, name in enumerate(names)}
        members = np.zeros((len(names), len(parts)))
        for column, each in enumerate(levels):
            members[[number[name] for name in each], column] = 1.0
        spread = np.array([_find_spread(name) for name in names])
        return cls(
            names=names,
            members=members,
            seconds=seconds,
            waiting=np.array([case.waiting_s for case in cases]),
            measured=np.array([case.label.seconds for case in cases]),
            weights=_weigh([f"{case.label.source} {case.label.device} {case.label.mode}" for case in cases]),
            strictness=1.0 / spread**2,
        )


def _find_spread(level: str) -> float:
    group, _, place = level.partition("@")
    if place == "NVIDIA":
        return _NONE
    if place:
        return _UNMEASURED if place in ("AMD", "Intel") else _OWN
    return _UNMEASURED if group.startswith("convolution") and "/half/" in group else _SHARED


def _weigh(groups: Sequence[str]) -> Floats:
    """Each case counts less, the more cases there are of its kind."""
    counts = {group: groups.count(group) for group in set(groups)}
    weights = np.array([counts[group] ** -0.5 for group in groups])
    return np.asarray(weights / weights.mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenStep:
    """A step, predicted by levels that were learned from others."""

    case: StepCase
    predicted_s: float
    seen: bool  # whether other models were measured on its device

    @property
    def error(self) -> float:
        """The logarithm of measured over predicted."""
        return float(np.log(self.case.label.seconds / self.predicted_s))


def leave_families_out(cases: Sequence[StepCase], *, folds: int = 5, seed: int = 0) -> list[UnseenStep]:
    """Each step by levels from models of other families, on all devices."""
    families = sorted({case.label.family for case in cases})
    order = np.random.default_rng(seed).permutation(len(families))
    fold_of = {families[place]: number % folds for number, place in enumerate(order.tolist())}
    return _leave_out(cases, lambda case: str(fold_of[case.label.family]), seen=True)


def leave_devices_out(cases: Sequence[StepCase], *, folds: int = 3, seed: int = 0) -> list[UnseenStep]:
    """Each step by levels from models of other families on other devices."""
    found: list[UnseenStep] = []
    families = sorted({case.label.family for case in cases})
    order = np.random.default_rng(seed).permutation(len(families))
    fold_of = {families[place]: number % folds for number, place in enumerate(order.tolist())}
    for device in sorted({case.device.name for case in cases}):
        for fold in range(folds):
            held = [case for case in cases if case.device.name == device and fold_of[case.label.family] == fold]
            rest = [case for case in cases if case.device.name != device and fold_of[case.label.family] != fold]
            if held:
                levels = fit_levels(rest) if rest else StepLevels()
                found += [_predict(case, levels, seen=False) for case in held]
    return found


def _leave_out(cases: Sequence[StepCase], key: Callable[[StepCase], str], *, seen: bool) -> list[UnseenStep]:
    found: list[UnseenStep] = []
    for name in sorted({key(case) for case in cases}):
        levels = fit_levels([case for case in cases if key(case) != name])
        found += [_predict(case, levels, seen=seen) for case in cases if key(case) == name]
    return found


def _predict(case: StepCase, levels: StepLevels, *, seen: bool) -> UnseenStep:
    return UnseenStep(case=case, predicted_s=apply_levels(case, levels), seen=seen)


__all__ = [
    "StepCase",
    "UnseenStep",
    "apply_levels",
    "build_case",
    "build_cases",
    "fit_levels",
    "leave_devices_out",
    "leave_families_out",
]
