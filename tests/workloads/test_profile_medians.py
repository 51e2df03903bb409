"""A measured step is the median of many timings."""

import numpy as np
import pytest

from foretell.core.workload import Floats, Operator, StepPhase, Workload
from foretell.workloads.step_timing import PlainStep, StepTiming, build_profile

FORWARD, BACKWARD, UPDATE = StepPhase
WORKLOAD = Workload(
    name="made",
    operators=tuple(Operator(kind="relu", phase=phase, inputs=((1,),)) for phase in (FORWARD, BACKWARD, UPDATE)),
)


def time_step(*, factor: float = 1.0, launch: Floats | None = None) -> StepTiming:
    """Operators of 2 s with 1 s after each, and 1 s before all."""
    begin = np.array([1.0, 4.0, 7.0]) * factor
    return StepTiming(
        begin_s=begin,
        span_s=np.full(3, 2.0) * factor,
        kernel_s=np.full(3, 2.0) * factor,
        launch_s=begin if launch is None else launch,
        step_s=10.0 * factor,
        phases_s=dict.fromkeys(StepPhase, 3.0 * factor),
    )


def bare(*steps: float, phase: float | None = None) -> list[PlainStep]:
    phases = {} if phase is None else dict.fromkeys(StepPhase, phase)
    return [PlainStep(step_s=step, phases_s=phases) for step in steps]


def test_operators_and_gaps_add_up_to_the_iteration() -> None:
    found = build_profile(WORKLOAD, [time_step()], bare(9.0, 8.5, 9.5, phase=2.7), device="cpu")
    step = found.step
    assert step.iteration_s == 9.0
    ends = np.append(step.start_s[1:], step.iteration_s)
    assert (ends - step.start_s).sum() == pytest.approx(step.iteration_s)
    assert (ends >= step.start_s + step.span_s).all()
    assert step.start_s[0] == 0
    assert np.array_equal(step.start_s, step.launch_s)
    assert found.overhead == pytest.approx(10 / 9 - 1)
    assert found.spread == pytest.approx(0.25 / 9)


def test_the_overhead_of_the_profiler_is_removed_from_gaps() -> None:
    step = build_profile(WORKLOAD, [time_step()], bare(8.8, phase=2.6), device="cpu").step
    gaps = np.diff(step.start_s, append=step.iteration_s) - step.span_s
    assert step.kernel_s == pytest.approx([2.0, 2.0, 2.0], rel=0.01)
    assert gaps[:2] == pytest.approx([0.6, 0.6], rel=0.01)


def test_a_faster_profiled_phase_is_scaled() -> None:
    step = build_profile(WORKLOAD, [time_step()], bare(20.0, phase=6.0), device="cpu").step
    assert step.kernel_s == pytest.approx([4.0, 4.0, 4.0])


def test_one_slow_step_of_many_changes_nothing() -> None:
    quick = build_profile(WORKLOAD, [time_step()], bare(9.0, phase=2.7), device="cpu").step
    slow = [time_step(), time_step(), time_step(factor=5.0)]
    step = build_profile(WORKLOAD, slow, bare(9.0, 9.0, 50.0, phase=2.7), device="cpu").step
    np.testing.assert_allclose(step.kernel_s, quick.kernel_s)
    np.testing.assert_allclose(step.start_s, quick.start_s)


def test_a_devices_kernels_keep_their_times() -> None:
    """There, only waiting gets longer by looking on."""
    timing = time_step(launch=np.array([-1.0, 0.0, 1.0]))
    step = build_profile(WORKLOAD, [timing], bare(8.0), device="T4").step
    assert step.kernel_s.tolist() == [2.0, 2.0, 2.0]
    assert np.append(np.diff(step.start_s), step.iteration_s - step.start_s[-1]).sum() == pytest.approx(8.0)
    assert step.launch_s == pytest.approx([-0.8, 0.0, 0.8])


def test_operators_missing_in_one_step_are_left_out() -> None:
    missed = time_step()
    missed.begin_s[1] = np.nan
    step = build_profile(WORKLOAD, [time_step(), missed], bare(10.0), device="cpu").step
    assert np.isnan(step.kernel_s).tolist() == [False, True, False]
    assert np.isnan(step.start_s).tolist() == [False, True, False]
