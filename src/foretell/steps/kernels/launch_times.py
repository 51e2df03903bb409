"""The time line of the host: how long an undisturbed machine needs until it launches each operator, and the replay."""

from dataclasses import dataclass

import numpy as np

from foretell.core.workload import Floats, Operator, StepPhase, Workload

LATENCY_S = 5e-6  # from a launch to the start of its kernel on an idle device


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCosts:
    """Seconds of the host by what it does.

    Eager PyTorch takes 10 to 15 us for a forward operator and its module on a current CPU, the autograd engine less
    for each node, as it does not run Python; a kernel launch takes 2 to 4 us.
    """

    operator: float
    kernel: float  # each further launch of the same operator


EAGER = {
    StepPhase.FORWARD: LaunchCosts(operator=13e-6, kernel=4e-6),
    StepPhase.BACKWARD: LaunchCosts(operator=11e-6, kernel=4e-6),
    StepPhase.UPDATE: LaunchCosts(operator=10e-6, kernel=4e-6),
}
# Code that torch.compile generated launches one kernel after the other.
COMPILED = {
    StepPhase.FORWARD: LaunchCosts(operator=5e-6, kernel=3e-6),
    StepPhase.BACKWARD: LaunchCosts(operator=5e-6, kernel=3e-6),
    StepPhase.UPDATE: LaunchCosts(operator=10e-6, kernel=4e-6),
}
# Layers that run Python for each operation, as Megatron-LM's and those that tensor parallelism divides: the medians of
# the shortest operators of GPT and T5 in Megatron-LM, measured for Aceso (benchmarks/distributed/function_hosts.py).
FUNCTIONS = {
    StepPhase.FORWARD: LaunchCosts(operator=68e-6, kernel=4e-6),
    StepPhase.BACKWARD: LaunchCosts(operator=109e-6, kernel=4e-6),
    StepPhase.UPDATE: LaunchCosts(operator=10e-6, kernel=4e-6),
}
HOST = "host"  # the setting of a workload that names one of these
_COSTS = {"eager": EAGER, "compiled": COMPILED, "functions": FUNCTIONS}
_VIEW_S = 2.5e-6
_TENSOR_S = 0.4e-6  # each tensor of a list that an optimizer updates at once
_BEGIN_S = {StepPhase.FORWARD: 20e-6, StepPhase.BACKWARD: 60e-6, StepPhase.UPDATE: 60e-6}  # of a phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """For each operator, the time of the host before its first launch, and from there to its last."""

    step_s: Floats
    within_s: Floats

    @property
    def total_s(self) -> float:
        """Seconds of the host for the whole step."""
        return float(self.step_s.sum() + self.within_s.sum())


_last: list[tuple[Workload, Launches]] = []


def expect_launches(workload: Workload) -> Launches:
    """The launches of a step on an undisturbed machine; the same for every device."""
    if not _last or _last[0][0] is not workload:
        _last[:] = [(workload, _expect(workload))]
    return _last[0][1]


def _expect(workload: Workload) -> Launches:
    usual = "compiled" if workload.settings.get("compile") == "yes" else "eager"
    costs = _COSTS[workload.settings.get(HOST, usual)]
    known = {operator: _cost(operator, costs[operator.phase]) for operator in dict.fromkeys(workload.operators)}
    views = np.array(workload.views or (0,) * len(workload.operators), dtype=float)
    times = np.array([known[operator] for operator in workload.operators], dtype=float).reshape(-1, 2)
    begins = np.zeros(len(workload.operators))
    phases = [operator.phase for operator in workload.operators]
    for place, phase in enumerate(phases):
        if place == 0 or phases[place - 1] is not phase:
            begins[place] = _BEGIN_S[phase]
    return Launches(step_s=times[:, 0] + views * _VIEW_S + begins, within_s=times[:, 1])


def _cost(operator: Operator, costs: LaunchCosts) -> tuple[float, float]:
    tensors = operator.get("tensors", 0)
    listed = tensors * _TENSOR_S if isinstance(tensors, int) else 0.0
    return costs.operator + listed, costs.kernel * max(operator.kernels - 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When the device is done with each operator, from the start of the step."""

    end_s: Floats
    kernel_s: Floats

    @property
    def iteration_s(self) -> float:
        """Seconds of the step."""
        return float(self.end_s[-1]) if len(self.end_s) else 0.0

    @property
    def gap_s(self) -> Floats:
        """Seconds in which the device waits: what an operator took more than its kernels."""
        return np.maximum(np.diff(self.end_s, prepend=0.0) - self.kernel_s, 0.0)


def replay_launches(kernel_s: Floats, launches: Launches) -> Timeline:
    """A step whose result the host waits for: the device begins idle.

    The device starts an operator when it has finished the one before and the first kernel is launched; it cannot
    finish before the last kernel is launched.
    """
    launched = np.cumsum(launches.step_s + launches.within_s) + LATENCY_S
    several = launches.within_s > 0
    last = np.where(several, 0.0, kernel_s)  # the last of several kernels is short
    earliest = np.maximum(launched - launches.within_s + kernel_s, launched + last)
    work = np.cumsum(kernel_s)
    return Timeline(end_s=work + np.maximum.accumulate(earliest - work), kernel_s=kernel_s)
