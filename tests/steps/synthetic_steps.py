"""Steps whose times follow a known law."""

from collections.abc import Callable, Sequence

import numpy as np

from foretell.core.workload import MeasuredStep, Operator, StepPhase, Workload

Law = Callable[[Operator], tuple[float, float]]  # the operator's time and the gap after it

KINDS = ("conv2d", "relu", "linear", "layer_norm")


def make_operator(
    kind: str = "relu",
    *,
    phase: StepPhase = StepPhase.FORWARD,
    flops: float = 1e6,
    moved: float = 1e5,
    shape: tuple[int, ...] = (8, 16, 4, 4),
) -> Operator:
    return Operator(kind=kind, phase=phase, inputs=(shape,), output=shape, flops=flops, bytes_moved=moved)


def make_workload(seed: int, *, kinds: Sequence[str] = KINDS, length: int = 24) -> Workload:
    """Operators of random sizes; every size is met in several steps."""
    random = np.random.default_rng(seed)
    phases = [StepPhase.FORWARD] * (length // 2) + [StepPhase.BACKWARD] * (length - length // 2)
    operators = []
    for phase in phases:
        kind = str(random.choice(kinds))
        size = int(2 ** random.integers(4, 16))
        share = float(4.0 ** random.integers(0, 6))  # operations for each byte
        operators.append(make_operator(kind, phase=phase, flops=64 * size * share, moved=64 * size, shape=(8, size)))
    return Workload(name=f"made up {seed}", operators=tuple(operators), batch=8, parameters=1000)


def measure(workload: Workload, law: Law, *, hidden: Callable[[Operator], bool] = lambda _: False) -> MeasuredStep:
    """A step as the law has it; hidden operators run, but nobody records them."""
    times = np.array([law(operator) for operator in workload.operators])
    kernel, gap = times[:, 0], times[:, 1]
    start = np.cumsum(kernel + gap) - kernel - gap
    unknown = np.array([hidden(operator) for operator in workload.operators])
    kernel, start = np.where(unknown, np.nan, kernel), np.where(unknown, np.nan, start)
    return MeasuredStep(
        workload=workload,
        device="made up",
        iteration_s=float(times.sum()),
        kernel_s=kernel,
        span_s=kernel,
        start_s=start,
        launch_s=start,
    )


def measure_many(law: Law, *, count: int = 60, kinds: Sequence[str] = KINDS) -> list[MeasuredStep]:
    return [measure(make_workload(seed, kinds=kinds), law) for seed in range(count)]


def relative_error(predicted: Sequence[float], measured: Sequence[MeasuredStep]) -> float:
    truth = np.array([step.iteration_s for step in measured])
    return float(np.mean(np.abs(np.array(predicted) / truth - 1)))
