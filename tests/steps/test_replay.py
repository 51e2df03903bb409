"""The replay: time lines computed by hand, and steps that follow a known law."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.steps.synthetic_steps import make_operator, make_workload, relative_error

from foretell.core.devices import Device
from foretell.core.workload import MeasuredStep, Operator, StepPhase, Workload
from foretell.steps.host_times import HostTimes
from foretell.steps.replay import ReplayModel, replay

DEVICE = Device(name="made up", kind="gpu", peak_flops=4e12, bandwidth_bytes=2e11, units=40, memory_bytes=2**34)
FACTORS = {"conv2d": 1.5, "relu": 1.0, "linear": 2.0, "layer_norm": 3.0}
LATENCY, QUICK, SLOW = 5e-6, 4e-6, 800e-6

Hidden = Callable[[Operator], bool]


def make_host(
    steps: Sequence[float],
    *,
    within: Sequence[float] | None = None,
    waits: Sequence[bool] | None = None,
    after: Sequence[float] | None = None,
) -> HostTimes:
    nothing = [0.0] * len(steps)
    return HostTimes(
        step_s=np.array(steps, dtype=float),
        within_s=np.array(within or nothing),
        waits=np.array(waits or [False] * len(steps), dtype=bool),
        after_wait_s=np.array(after or nothing),
    )


def test_a_slow_host_limits_the_step() -> None:
    times = replay(np.array([1.0, 1.0, 1.0]), make_host([3, 3, 3]), 0.5)
    assert times.iteration_s == pytest.approx(3 + 3 + 1)
    assert times.gap_s == pytest.approx([2, 2, 0])


def test_a_slow_device_limits_the_step() -> None:
    times = replay(np.array([5.0, 6.0, 7.0]), make_host([1, 1, 1]), 0.5)
    assert times.iteration_s == pytest.approx(18)
    assert times.gap_s == pytest.approx([0, 0, 0])


def test_the_step_before_may_leave_the_device_behind() -> None:
    """Alone, the second kernel would wait for its launch; after another step, the host is far ahead."""
    times = replay(np.array([1.0, 9.0]), make_host([0, 4]), 0.0)
    assert times.iteration_s == pytest.approx(10)
    assert times.gap_s == pytest.approx([0, 0])


def test_a_wait_leaves_the_device_idle() -> None:
    """The second call is launched half a second after the first kernel's end, the third one a second later."""
    host = make_host([1, 1, 2], waits=[False, True, False], after=[0, 0.5, 0])
    times = replay(np.array([4.0, 1.0, 1.0]), host, 0.0)
    assert times.gap_s == pytest.approx([0.5, 1.0, 0.0])
    assert times.iteration_s == pytest.approx(4 + 0.5 + 1 + 1 + 1)


def test_a_wait_for_an_idle_device_takes_only_the_host() -> None:
    host = make_host([2, 2], waits=[False, True], after=[0, 0.5])
    assert replay(np.array([1.0, 1.0]), host, 0.0).iteration_s == pytest.approx(2 + 1)


def test_launches_of_an_operator_delay_an_idle_device() -> None:
    early = replay(np.array([1.0]), make_host([5], within=[3]), 0.0)
    assert [early.iteration_s, *early.gap_s] == pytest.approx([4, 3])
    late = replay(np.array([9.0, 1.0]), make_host([1, 1], within=[0, 3]), 0.0)
    assert late.iteration_s == pytest.approx(10)


def test_an_empty_step_takes_no_time() -> None:
    times = replay(np.array([]), make_host([]), 0.0)
    assert (times.iteration_s, len(times.kernel_s), len(times.gap_s)) == (0.0, 0, 0)


def law(operator: Operator) -> float:
    roofline = 3e-6 + max(operator.flops / DEVICE.peak_flops, operator.bytes_moved / DEVICE.bandwidth_bytes)
    return FACTORS[operator.kind] * roofline


def run(workload: Workload, *, step_s: float, ahead_s: float = 0.0, hidden: Hidden = lambda _: False) -> MeasuredStep:
    """A step as host and device would do it; hidden operators run, but nobody records them."""
    seconds = np.array([law(operator) for operator in workload.operators])
    launch = np.arange(len(seconds)) * step_s - ahead_s
    start = np.zeros(len(seconds))
    free = 0.0
    for place, own in enumerate(seconds):
        start[place] = max(free, launch[place] + LATENCY)
        free = start[place] + own
    unknown = np.array([hidden(operator) for operator in workload.operators])
    kernel, start_s, launch_s = (np.where(unknown, np.nan, values) for values in (seconds, start, launch))
    return MeasuredStep(
        workload=workload, device="made up", iteration_s=float(free - start[0]), kernel_s=kernel, span_s=kernel,
        start_s=start_s, launch_s=launch_s,
    )  # fmt: skip


def run_many(*, step_s: float, ahead_s: float = 0.0, hidden: Hidden = lambda _: False) -> list[MeasuredStep]:
    return [run(make_workload(seed), step_s=step_s, ahead_s=ahead_s, hidden=hidden) for seed in range(20)]


@pytest.fixture(scope="module")
def model() -> ReplayModel:
    """Learned from steps with a slow host, and from others that began with much to do."""
    return ReplayModel(DEVICE).fit([*run_many(step_s=SLOW), *run_many(step_s=QUICK, ahead_s=0.1)])


def test_steps_limited_by_the_host_are_predicted(model: ReplayModel) -> None:
    asked = [run(make_workload(seed), step_s=SLOW) for seed in (100, 101, 102)]
    predicted = [times.iteration_s for times in model.predict([step.workload for step in asked])]
    assert relative_error(predicted, asked) < 0.05


def test_operators_and_gaps_are_predicted(model: ReplayModel) -> None:
    workload = make_workload(100)
    (times,) = model.predict([workload])
    wanted = np.array([law(operator) for operator in workload.operators])
    assert float(times.kernel_s.sum()) == pytest.approx(float(wanted.sum()), rel=0.1)
    assert float(np.median(np.abs(times.kernel_s / wanted - 1))) < 0.1
    assert times.kernel_s.sum() + times.gap_s.sum() == pytest.approx(times.iteration_s)


def test_steps_limited_by_the_device_are_predicted() -> None:
    quick = ReplayModel(DEVICE).fit(run_many(step_s=QUICK, ahead_s=0.1))
    asked = [run(make_workload(seed), step_s=QUICK, ahead_s=0.1) for seed in (100, 101, 102)]
    predicted = [times.iteration_s for times in quick.predict([step.workload for step in asked])]
    assert relative_error(predicted, asked) < 0.1


def is_hidden(operator: Operator) -> bool:
    return operator.kind == "layer_norm" and operator.phase is StepPhase.BACKWARD


def count_off(model: ReplayModel) -> float:
    """How far hidden operators of networks never seen are off."""
    predicted, wanted = [], []
    for seed in range(100, 110):
        workload = make_workload(seed)
        (times,) = model.predict([workload])
        for operator, seconds in zip(workload.operators, times.kernel_s, strict=True):
            if is_hidden(operator):
                predicted.append(seconds)
                wanted.append(law(operator))
    return float(np.median(np.abs(np.array(predicted) / np.array(wanted) - 1)))


def test_unrecorded_operators_are_fitted_on_their_gap() -> None:
    steps = run_many(step_s=QUICK, ahead_s=0.1, hidden=is_hidden)
    assert count_off(ReplayModel(DEVICE).fit(steps)) < 0.1


def test_a_gap_that_waits_for_the_host_is_not_work() -> None:
    """Hidden operators are then answered for as other kinds of their phase are: not by a gap 100 times as long."""
    model = ReplayModel(DEVICE).fit(run_many(step_s=SLOW, hidden=is_hidden))
    assert count_off(model) < 1.0
    asked = [run(make_workload(seed), step_s=SLOW) for seed in (100, 101)]
    predicted = [times.iteration_s for times in model.predict([step.workload for step in asked])]
    assert relative_error(predicted, asked) < 0.05


def test_the_largest_task_is_fitted_on_the_remaining_time() -> None:
    """A convolution with a bias is always timed with its addition, whose time is known from elsewhere."""

    def make(images: int, *, phase: StepPhase = StepPhase.FORWARD, bias: bool) -> Operator:
        inputs = ((images, 64, 32, 32), (64, 64, 3, 3), *([(64,)] if bias else []))
        return Operator(kind="conv2d", phase=phase, inputs=inputs, output=(images, 64, 32, 32))

    def measure(operators: Sequence[Operator], seconds: Sequence[float]) -> MeasuredStep:
        own = np.array(seconds)
        start = np.cumsum(own) - own
        workload = Workload(name="made up", operators=tuple(operators))
        return MeasuredStep(
            workload=workload, device="made up", iteration_s=float(own.sum()), kernel_s=own, span_s=own, start_s=start,
            launch_s=start - 0.1,
        )  # fmt: skip

    sizes = range(4, 64)
    adds = [make_operator("add_", shape=(n, 64, 32, 32), flops=n * 65536.0, moved=n * 524288.0) for n in sizes]
    steps = [
        measure(adds, [n * 1e-5 for n in sizes]),
        measure([make(n, bias=True) for n in sizes], [n * 6e-5 for n in sizes]),
    ]
    model = ReplayModel(DEVICE).fit(steps)
    alone, both = model.predict(
        [Workload(name="", operators=tuple(make(n, bias=bias) for n in (10, 20, 40))) for bias in (False, True)]
    )
    assert alone.kernel_s == pytest.approx([5e-4, 1e-3, 2e-3], rel=0.1)
    assert both.kernel_s == pytest.approx([6e-4, 1.2e-3, 2.4e-3], rel=0.1)


def test_unknown_operators_are_predicted(model: ReplayModel) -> None:
    strange = replace(make_operator("never_seen", flops=1e9, moved=1e8), kernels=2)
    none = replace(make_operator("view_of_nothing"), kernels=0)
    workload = replace(make_workload(5), operators=(*make_workload(5).operators, strange, none))
    (times,) = model.predict([workload])
    assert len(times.kernel_s) == len(times.gap_s) == 26
    assert np.isfinite([*times.kernel_s, *times.gap_s]).all()
    assert times.gap_s.min() >= 0
    assert times.kernel_s[-2] > 5e-4 / 2
    assert times.kernel_s[-1] == 0


def test_same_steps_give_the_same_predictions() -> None:
    steps, asked = run_many(step_s=SLOW)[:4], [make_workload(seed) for seed in (100, 101)]
    first, again = ([one.iteration_s for one in ReplayModel(DEVICE).fit(steps).predict(asked)] for _ in range(2))
    assert first == again


def test_no_workloads_give_no_predictions(model: ReplayModel) -> None:
    assert model.predict([]) == []


def test_another_device_is_predicted_by_its_figures(model: ReplayModel) -> None:
    fast = replace(DEVICE, name="fast", peak_flops=4 * DEVICE.peak_flops, bandwidth_bytes=4 * DEVICE.bandwidth_bytes)
    (here,), (there,) = (one.predict([make_workload(100)]) for one in (model, model.transfer(fast, [])))
    large = here.kernel_s > 1e-4
    assert float(np.median(here.kernel_s[large] / there.kernel_s[large])) == pytest.approx(4, rel=0.15)


def test_steps_of_another_device_improve_on_its_figures(model: ReplayModel) -> None:
    """The same figures, but all takes half as long again: of the host, half of that is believed."""
    step = run(make_workload(50), step_s=1.5 * SLOW)
    shown = replace(step, kernel_s=1.5 * step.kernel_s, span_s=1.5 * step.span_s)
    (before,), (after,) = (one.predict([make_workload(100)]) for one in (model, model.transfer(DEVICE, [shown] * 3)))
    assert after.kernel_s.sum() / before.kernel_s.sum() == pytest.approx(1.5, rel=0.1)
    assert after.iteration_s / before.iteration_s == pytest.approx(1.5**0.5, rel=0.1)
