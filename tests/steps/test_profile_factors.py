"""Profiles of a network correct its prediction, also at other sizes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from foretell.core.devices import Device
from foretell.core.workload import Floats, MeasuredStep, Operator, Shape, StepPhase, Workload
from foretell.steps.host_times import HostTimes
from foretell.steps.profile_factors import ExpectedTimes, apply_factors, compare_profile
from foretell.steps.replay import ReplayModel

DEVICE = Device(name="made up", kind="gpu", peak_flops=4e12, bandwidth_bytes=2e11, units=40, memory_bytes=2**34)
AHEAD = 100.0  # seconds by which the host is ahead: the device never waits
STEP = 1e-4

Law = Callable[[Operator], float]


def make_operator(kind: str, shape: Shape, phase: StepPhase) -> Operator:
    size = float(np.prod(shape))
    return Operator(kind=kind, phase=phase, inputs=(shape,), output=shape, flops=size, bytes_moved=8 * size)


def make_network(images: int, *, kinds: Sequence[str] = ("relu", "norm", "gelu", "pool")) -> Workload:
    """Long operators of some kinds, of wider and wider tensors, forward and backward."""
    calls = [(kind, 2**depth) for depth in range(6, 10) for kind in kinds]
    operators = [make_operator(kind, (images, wide, 64, 64), StepPhase.FORWARD) for kind, wide in calls]
    operators += [make_operator(kind, (images, wide, 64, 64), StepPhase.BACKWARD) for kind, wide in reversed(calls)]
    return Workload(name="made up", operators=tuple(operators), batch=images)


def roofline(operator: Operator) -> float:
    return 3e-6 + operator.bytes_moved / DEVICE.bandwidth_bytes


def run(workload: Workload, law: Law = roofline, *, step_s: float = STEP, ahead_s: float = AHEAD) -> MeasuredStep:
    seconds = np.array([law(operator) for operator in workload.operators])
    launch = step_s * np.arange(len(seconds), dtype=float) - ahead_s
    start, free = np.zeros(len(seconds)), 0.0
    for place, own in enumerate(seconds):
        start[place] = max(free, launch[place])
        free = start[place] + own
    return MeasuredStep(
        workload=workload, device="made up", iteration_s=float(free - start[0]), kernel_s=seconds, span_s=seconds,
        start_s=start, launch_s=launch,
    )  # fmt: skip


@pytest.fixture(scope="module")
def model() -> ReplayModel:
    """What the device does at its roofline, and a host that is slow enough to be known."""
    device = [run(make_network(images)) for images in (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)]
    host = [run(make_network(1), lambda _: 1e-5, ahead_s=0.0) for _ in range(3)]
    found = ReplayModel(DEVICE).fit(device)
    found.hosts_.fit(host)
    return found


def count_off(predicted: float, step: MeasuredStep) -> float:
    return abs(predicted / step.iteration_s - 1)


def by_kind(operator: Operator) -> float:
    return {"relu": 1.2, "norm": 0.8, "gelu": 1.4, "pool": 1.0}[operator.kind] * roofline(operator)


def test_an_exact_profile_changes_nothing(model: ReplayModel) -> None:
    step = run(make_network(80))
    (alone,) = model.predict([step.workload])
    (refined,) = model.refine([step]).predict([step.workload])
    assert count_off(alone.iteration_s, step) < 0.05
    assert count_off(refined.iteration_s, step) < 0.01


@pytest.mark.parametrize("factor", [0.6, 1.5, 3.0])
def test_a_profile_predicts_its_own_time(model: ReplayModel, factor: float) -> None:
    step = run(make_network(64), lambda operator: factor * roofline(operator))
    (alone,) = model.predict([step.workload])
    (refined,) = model.refine([step]).predict([step.workload])
    assert count_off(alone.iteration_s, step) > 0.3
    assert count_off(refined.iteration_s, step) < 0.01


def test_a_profile_corrects_each_kind(model: ReplayModel) -> None:
    step = run(make_network(64), by_kind)
    (refined,) = model.refine([step]).predict([step.workload])
    assert refined.kernel_s == pytest.approx(step.kernel_s, rel=0.05)


@pytest.mark.parametrize("images", [16, 256])
@pytest.mark.parametrize("law", [lambda operator: 1.5 * roofline(operator), by_kind])
def test_a_profile_corrects_other_sizes(model: ReplayModel, images: int, law: Law) -> None:
    asked = run(make_network(images), law)
    (alone,) = model.predict([asked.workload])
    (refined,) = model.refine([run(make_network(64), law)]).predict([asked.workload])
    off = np.abs(np.log(alone.kernel_s / asked.kernel_s)).mean()
    assert np.abs(np.log(refined.kernel_s / asked.kernel_s)).mean() < 0.4 * off


def test_two_profiles_are_better_than_one(model: ReplayModel) -> None:
    """What a factor does between two sizes was measured at both."""

    def grows(operator: Operator) -> float:
        return (1.2 if operator.inputs[0][0] < 48 else 2.0) * roofline(operator)

    small, large = run(make_network(16), grows), run(make_network(256), grows)
    asked = [run(make_network(images), grows) for images in (24, 192)]
    both = model.refine([small, large]).predict([step.workload for step in asked])
    one = model.refine([small]).predict([step.workload for step in asked])
    off_both, off_one = (
        sum(count_off(times.iteration_s, step) for times, step in zip(predicted, asked, strict=True))
        for predicted in (both, one)
    )
    assert off_both < off_one


def test_another_network_has_the_overall_factor_of_the_profile(model: ReplayModel) -> None:
    profile = run(make_network(64), lambda operator: 1.5 * roofline(operator))
    other = make_network(64, kinds=("tanh", "erf"))
    (alone,), (refined,) = (one.predict([other]) for one in (model, model.refine([profile])))
    assert refined.kernel_s.sum() / alone.kernel_s.sum() == pytest.approx(1.5, rel=0.1)


def test_unrecorded_operators_have_the_factor_of_their_gap(model: ReplayModel) -> None:
    def slow_norm(operator: Operator) -> float:
        return (2.0 if operator.kind == "norm" else 1.0) * roofline(operator)

    step = run(make_network(64), slow_norm)
    unknown = np.array([operator.kind == "norm" for operator in step.workload.operators])
    times = (np.where(unknown, np.nan, values) for values in (step.kernel_s, step.span_s, step.start_s, step.launch_s))
    kernel_s, span_s, start_s, launch_s = times
    seen = replace(step, kernel_s=kernel_s, span_s=span_s, start_s=start_s, launch_s=launch_s)
    (refined,) = model.refine([seen]).predict([step.workload])
    assert refined.kernel_s[unknown] == pytest.approx(step.kernel_s[unknown], rel=0.1)


def test_a_slow_host_is_found(model: ReplayModel) -> None:
    """Each kernel is over long before the next launch: the step is the host's alone."""
    small = make_network(1)
    step = run(small, lambda _: 1e-5, step_s=2 * STEP, ahead_s=0.0)
    kernels = np.full(len(small.operators), 1e-5)
    expected = replace(model.expect(small), kernel_s=kernels)
    kernel_s, host = apply_factors([compare_profile(step, expected)], small, expected)
    assert kernel_s == pytest.approx(kernels, rel=1e-6)
    assert host.step_s[1:] == pytest.approx(np.full(len(kernels) - 1, 2 * STEP))


# Expectations by hand


def expect(seconds: Floats, *, step_s: float = STEP, waits: Sequence[bool] = ()) -> ExpectedTimes:
    nothing = np.zeros(len(seconds))
    host = HostTimes(
        step_s=np.full(len(seconds), step_s), within_s=nothing + 1e-5,
        waits=np.array(waits or [False] * len(seconds)), after_wait_s=nothing + 2e-5,
    )  # fmt: skip
    return ExpectedTimes(kernel_s=seconds, host=host)


def make_profile(*, launch: Sequence[float], seconds: Floats, start: Sequence[float] | None = None) -> MeasuredStep:
    operators = make_network(1).operators[: len(seconds)]
    begun = np.array(launch if start is None else start)
    return MeasuredStep(
        workload=Workload(name="made up", operators=operators), device="made up", iteration_s=1.0, kernel_s=seconds,
        span_s=seconds, start_s=begun, launch_s=np.array(launch),
    )  # fmt: skip


def test_the_speed_of_the_host_is_the_median() -> None:
    profile = make_profile(launch=np.cumsum([0, 2e-4, 2e-4, 9e-4]).tolist(), seconds=np.full(4, 1e-5))
    factors = compare_profile(profile, expect(np.full(4, 1e-5)))
    assert factors.host == pytest.approx(2.0)
    assert factors.step_s[1:] == pytest.approx([2e-4, 2e-4, 9e-4])
    assert np.isnan(factors.step_s[0])


def test_a_wait_for_the_device_does_not_count_as_the_host() -> None:
    """The second call waits for a kernel of three milliseconds."""
    launch = [0.0, 3.1e-3, 3.2e-3]
    seconds = np.array([3e-3, 1e-5, 1e-5])
    factors = compare_profile(make_profile(launch=launch, seconds=seconds), expect(seconds, waits=[False, True, False]))
    assert factors.host == pytest.approx(1.0)
    assert np.isnan(factors.step_s[1])


def test_a_full_queue_does_not_count_as_the_host() -> None:
    """The device is ten milliseconds behind; a call that takes much longer than expected waited for room."""
    launch, start = [0.0, 5e-3, 5.1e-3], [10e-3, 20e-3, 30e-3]
    seconds = np.full(3, 10e-3)
    factors = compare_profile(make_profile(launch=launch, start=start, seconds=seconds), expect(seconds))
    assert np.isnan(factors.step_s[1])
    assert factors.step_s[2] == pytest.approx(1e-4)


def test_another_network_uses_only_the_speed_of_the_host() -> None:
    profile = make_profile(launch=[0, 3e-4, 6e-4], seconds=np.full(3, 1e-5))
    factors = compare_profile(profile, expect(np.full(3, 1e-5)))
    other = make_network(1, kinds=("tanh", "erf"))
    _, host = apply_factors([factors], other, expect(np.full(len(other.operators), 1e-5)))
    assert host.step_s == pytest.approx(np.full(len(other.operators), 3 * STEP))
    assert host.within_s == pytest.approx(np.full(len(other.operators), 3e-5))
    assert host.after_wait_s == pytest.approx(np.full(len(other.operators), 6e-5))


def test_a_profile_of_one_operator_does_not_change_others() -> None:
    """It is as long as expected; what the others and the host take stays as it was."""
    once = np.array([1e-3, np.nan, np.nan])
    profile = make_profile(launch=[0.0, np.nan, np.nan], seconds=once)
    expected = expect(np.full(3, 1e-3))
    kernel_s, host = apply_factors([compare_profile(profile, expected)], profile.workload, expected)
    assert kernel_s == pytest.approx(expected.kernel_s)
    assert host.step_s == pytest.approx(expected.host.step_s)
