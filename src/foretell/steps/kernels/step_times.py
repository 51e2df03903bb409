"""The default model of GPUs: a step's kernels on any device by their figures, behind the launches of the host."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.devices import Device, read_device
from foretell.core.model_files import read_number
from foretell.core.prediction import Estimate
from foretell.core.workload import Floats, MeasuredStep, Workload
from foretell.steps._base import StepModel, StepTimes
from foretell.steps.host_times import HostTimes
from foretell.steps.kernels._base import Evidence
from foretell.steps.kernels.kernel_bounds import PRECISIONS, find_rate
from foretell.steps.kernels.launch_times import Launches, Timeline, expect_launches, replay_launches
from foretell.steps.kernels.shipped_models import KernelModels, load_kernel_models
from foretell.steps.kernels.split_steps import SplitStep, split_step
from foretell.steps.kernels.step_corrections import StepCorrections, load_corrections
from foretell.steps.profile_factors import ExpectedTimes, ProfileFactors, apply_factors, compare_profile

_MOST_SHIFT = 1.5  # of logarithms: what measured steps of a device change at most
_FEWEST = 10  # operators of a step that were measured


class KernelStepModel(StepModel):
    """Predicts each kernel of a step by the models of kernels, and replays them behind the launches of the host.

    It needs no measurement of the device. Measured steps, if there are any, shift its kernels and its host.
    """

    kind: ClassVar[str] = "kernels"

    def __init__(
        self,
        device: Device,
        *,
        models: KernelModels | None = None,
        corrections: StepCorrections | None = None,
    ) -> None:
        self.device = device
        self.models = models or load_kernel_models()
        self.corrections = load_corrections() if corrections is None else corrections
        self.kernel_shift_ = self.host_shift_ = 0.0

    @classmethod
    def build(cls, device: Device, *, seed: int = 0) -> Self:
        return cls(device)

    @classmethod
    def from_figures(cls, device: Device) -> Self | None:
        return cls(device) if device.kind == "gpu" else None

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        self.kernel_shift_ = self.host_shift_ = 0.0
        kernels = [shift for step in steps if (shift := self._compare_kernels(step)) is not None]
        self.kernel_shift_ = _limit(np.median(kernels)) if kernels else 0.0
        hosts = [shift for step in steps if (shift := self._compare_host(step)) is not None]
        self.host_shift_ = _limit(np.median(hosts)) if hosts else 0.0
        return self

    def _compare_kernels(self, step: MeasuredStep) -> float | None:
        """The logarithm of the measured over the expected time of those operators that were measured."""
        known = np.isfinite(step.kernel_s)
        expected = self._expect(split_step(step.workload))[0]
        if known.sum() < min(_FEWEST, len(known)) or step.kernel_s[known].sum() <= 0:
            return None
        return float(np.log(step.kernel_s[known].sum() / expected[known].sum()))

    def _compare_host(self, step: MeasuredStep) -> float | None:
        """The same of the host, where it takes most of the step."""
        host, device = expect_launches(step.workload).total_s, float(np.nansum(step.kernel_s))
        return float(np.log(step.iteration_s / host)) if device < step.iteration_s / 2 else None

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        return [self._predict(workload) for workload in workloads]

    def _predict(self, workload: Workload) -> StepTimes:
        split = split_step(workload)
        kernel_s, seconds = self._expect(split)
        return self._describe(split, seconds, replay_launches(kernel_s, self._expect_launches(workload)))

    def _expect(self, split: SplitStep) -> tuple[Floats, Floats]:
        """Seconds of each operator, and of each distinct kernel."""
        seconds = self.predict_kernels(split)
        return split.add_up(seconds), seconds

    def predict_kernels(self, split: SplitStep) -> Floats:
        """Seconds of each distinct kernel of a step."""
        parts = [self.models[name].predict(calls, self.device) for name, calls in split.calls.items() if calls]
        seconds = np.concatenate(parts) if parts else np.zeros(0)
        levels = self.corrections.levels.find(split.groups, self.device)[split.group_of]
        return np.asarray(seconds * np.exp(levels + self.kernel_shift_))

    def _expect_launches(self, workload: Workload) -> Launches:
        host, factor = expect_launches(workload), float(np.exp(self.host_shift_))
        return Launches(step_s=host.step_s * factor, within_s=host.within_s * factor)

    def _describe(self, split: SplitStep, seconds: Floats, line: Timeline) -> StepTimes:
        count, bounds = split.count, split.bounds
        work = seconds * count
        total = max(line.iteration_s, 1e-12)
        computes = bounds.compute_s(self.device) >= bounds.memory_s(self.device)
        limits = {"compute": float(work[computes].sum()), "memory": float(work[~computes].sum())}
        limits["host"] = max(0.0, total - sum(limits.values()))
        return StepTimes(
            iteration_s=line.iteration_s,
            kernel_s=line.kernel_s,
            gap_s=line.gap_s,
            least_s=bounds.necessary_s(self.device, count),
            evidence=self._weigh_evidence(split, work),
            limits={name: value / total for name, value in limits.items()},
            mfu=self._find_use(split, count, total),
            unknown=float(line.kernel_s[split.unknown].sum()) / total,
        )

    def _weigh_evidence(self, split: SplitStep, work: Floats) -> dict[str, float]:
        """Shares of the work by what its times were learned from: kernels, or whole models on the device."""
        found = dict.fromkeys(map(str, Evidence), 0.0)
        sums = np.bincount(split.type_of, weights=work, minlength=len(split.types)).tolist()
        for (name, precision), seconds in zip(split.types, sums, strict=True):
            kernels = self.models[name].find_evidence(self.device, precision)
            whole = self.corrections.find_evidence(self.device, None if name == "memory_pass" else precision)
            found[min(kernels, whole, key=list(Evidence).index)] += seconds
        total = sum(found.values()) or 1.0
        return {name: value / total for name, value in found.items()}

    def _find_use(self, split: SplitStep, count: Floats, total: float) -> float:
        """Model FLOPs utilization: the share of the peak of the type in which most is computed."""
        flops = split.bounds.flops * count
        by_type = [float(flops[split.bounds.precision == place].sum()) for place in range(len(PRECISIONS))]
        peak = find_rate(self.device, PRECISIONS[int(np.argmax(by_type))])
        return sum(by_type) / peak / total

    def bound(self, times: StepTimes, level: float) -> Estimate:
        """The iteration with its interval: the wider, the less is known of the device, and never below its peaks."""
        return self.corrections.spread.bound(times, level)

    # Profiles of the network that is predicted

    def refine(self, profiles: Sequence[MeasuredStep]) -> "RefinedKernels":
        """The model of the profiled network, also at other sizes."""
        return RefinedKernels(self, [compare_profile(each, self.expect(each.workload)) for each in profiles])

    def expect(self, workload: Workload) -> ExpectedTimes:
        """The expected times of device and host for each operator."""
        launches, none = self._expect_launches(workload), np.zeros(len(workload.operators))
        host = HostTimes(step_s=launches.step_s, within_s=launches.within_s, waits=none.astype(bool), after_wait_s=none)
        return ExpectedTimes(kernel_s=self._expect(split_step(workload))[0], host=host)

    # Files

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What measured steps of the device changed; the models of kernels are the shipped ones."""
        shifts = {"kernel_shift": self.kernel_shift_, "host_shift": self.host_shift_}
        return {"device": asdict(self.device), **shifts}, {}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        model = cls(read_device(record["device"]))
        model.kernel_shift_ = _limit(read_number(record["kernel_shift"]))
        model.host_shift_ = _limit(read_number(record["host_shift"]))
        return model


class RefinedKernels:
    """A model of kernels with the factors of profiles of one network."""

    def __init__(self, model: KernelStepModel, factors: Sequence[ProfileFactors]) -> None:
        self.model = model
        self.factors = factors

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""
        return [self._predict(workload) for workload in workloads]

    def _predict(self, workload: Workload) -> StepTimes:
        expected = self.model.expect(workload)
        kernel_s, host = apply_factors(self.factors, workload, expected)
        line = replay_launches(kernel_s, Launches(step_s=host.step_s, within_s=host.within_s))
        split = split_step(workload)
        _, seconds = self.model._expect(split)
        ratio = float(kernel_s.sum() / max(expected.kernel_s.sum(), 1e-12))
        times = self.model._describe(split, seconds * ratio, line)
        return replace(times, evidence={str(Evidence.MEASURED): 1.0})

    def bound(self, times: StepTimes, level: float) -> Estimate:
        """The iteration with its interval."""
        return self.model.corrections.spread.bound(times, level, profiles=len(self.factors))


def _limit(shift: Any) -> float:
    return float(np.clip(shift, -_MOST_SHIFT, _MOST_SHIFT))
