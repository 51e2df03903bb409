"""A law that is known beforehand is found again."""

import numpy as np
import pytest
from benchmarks.step_model import LEAST_S, SerialModel

from foretell.entities.workload import MeasuredStep, Operator, StepPhase, Workload

SPEED, BANDWIDTH, GAP_S = 1e10, 1e9, 5e-6
FACTORS = {"relu": 2.0, "linear": 3.0, "conv2d": 1.5, "lstm": 4.0, "add_": 1.0}


def build_operator(kind: str, size: int) -> Operator:
    phase = StepPhase.UPDATE if kind == "add_" else StepPhase.FORWARD
    inputs = {
        "conv2d": ((4, 8, size, size), (8, 8, 3, 3)),
        "linear": ((size, 64), (32, 64)),
        "lstm": ((4, size, 8), (32, 8)),
    }
    shape = (4, 8, size, size) if kind == "conv2d" else (size, 32)
    return Operator(
        kind=kind,
        phase=phase,
        inputs=inputs.get(kind, (shape,)),
        output=shape,
        flops=2e4 * size,
        bytes_moved=1e3 * size,
    )


def find_seconds(operator: Operator) -> float:
    return FACTORS[operator.kind] * (LEAST_S + max(operator.flops / SPEED, operator.bytes_moved / BANDWIDTH))


def build_step(number: int) -> MeasuredStep:
    operators = tuple(build_operator(kind, 4 + number % 37) for kind in FACTORS)
    kernel = np.array([find_seconds(each) for each in operators])
    start = np.cumsum(kernel + GAP_S) - kernel - GAP_S
    return MeasuredStep(
        workload=Workload(name=f"made-{number}", operators=operators),
        device="cpu",
        iteration_s=float(kernel.sum() + GAP_S * len(kernel)),
        kernel_s=kernel,
        span_s=kernel,
        start_s=start,
        launch_s=start,
    )


def build_model() -> SerialModel:
    return SerialModel(flops_per_s=SPEED, bytes_per_s=BANDWIDTH)


def test_factors_and_gaps_are_found() -> None:
    model = build_model().fit([build_step(number) for number in range(0, 74, 2)])
    wanted = build_step(11)
    (told,) = model.predict([wanted.workload])
    assert told.iteration_s == pytest.approx(wanted.iteration_s, rel=0.05)
    assert told.kernel_s == pytest.approx(wanted.kernel_s, rel=0.15)
    assert told.gap_s == pytest.approx(GAP_S)


def test_times_that_are_missing_teach_nothing() -> None:
    steps = [build_step(number) for number in range(30)]
    for step in steps:
        step.kernel_s[1] = step.start_s[1] = np.nan
    (told,) = build_model().fit(steps).predict([steps[0].workload])
    assert np.isfinite(told.kernel_s).all()
    assert told.gap_s[0] == pytest.approx(GAP_S)  # not the time of what is missing


def test_unknown_kinds_are_answered_by_what_they_move() -> None:
    model = build_model().fit([build_step(number) for number in range(5)])
    unknown = Operator(
        kind="never_seen", phase=StepPhase.FORWARD, inputs=((1000, 1000),), output=(1000, 1000), bytes_moved=8e6
    )
    (told,) = model.predict([Workload(name="other", operators=(unknown,))])
    assert 1e-3 < told.iteration_s < 1


def test_the_same_steps_teach_the_same() -> None:
    steps = [build_step(number) for number in range(30)]
    first, second = (build_model().fit(steps).predict([steps[3].workload])[0].iteration_s for _ in range(2))
    assert first == second
