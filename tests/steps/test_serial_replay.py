"""A CPU whose times follow a known law."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.core.devices import Device
from foretell.core.workload import MeasuredStep, Operator, Shape, StepPhase, Workload
from foretell.steps.cpu_times import LEAST_S
from foretell.steps.serial_replay import SerialModel

DEVICE = Device(name="made up", kind="cpu", peak_flops=1e10, bandwidth_bytes=1e9, units=1, memory_bytes=2**30)
GAP_S = 5e-6
FACTORS = {"relu": 2.0, "linear": 3.0, "conv2d": 1.5, "scaled_dot_product_attention": 4.0, "add_": 1.0}


def list_inputs(kind: str, size: int, output: Shape) -> tuple[Shape, ...]:
    known: dict[str, tuple[Shape, ...]] = {
        "conv2d": (output, (8, 8, 3, 3)),
        "linear": ((size, 64), (32, 64)),
        "scaled_dot_product_attention": ((4, 2, size, 8),) * 3,
    }
    return known.get(kind, (output,))


def build_operator(kind: str, size: int) -> Operator:
    shape = (4, 8, size, size) if kind == "conv2d" else (size, 32)
    return Operator(
        kind=kind,
        phase=StepPhase.UPDATE if kind == "add_" else StepPhase.FORWARD,
        inputs=list_inputs(kind, size, shape),
        output=shape,
        flops=2e5 * size,
        bytes_moved=1e4 * size,
    )


def find_seconds(operator: Operator) -> float:
    work = max(operator.flops / DEVICE.peak_flops, operator.bytes_moved / DEVICE.bandwidth_bytes)
    return FACTORS[operator.kind] * (LEAST_S + work)


def build_step(
    number: int, *, repeats: int = 1, slower: float | NDArray[np.float64] = 1.0, gap_s: float = GAP_S
) -> MeasuredStep:
    operators = tuple(build_operator(kind, 4 + number % 37) for kind in FACTORS) * repeats
    kernel = np.array([find_seconds(each) for each in operators]) * slower
    start = np.cumsum(kernel + gap_s) - kernel - gap_s
    return MeasuredStep(
        workload=Workload(name=f"made up {number}", operators=operators),
        device=DEVICE.name,
        iteration_s=float(kernel.sum() + gap_s * len(kernel)),
        kernel_s=kernel,
        span_s=kernel,
        start_s=start,
        launch_s=start,
    )


@pytest.fixture(scope="module")
def model() -> SerialModel:
    return SerialModel(DEVICE).fit([build_step(number) for number in range(0, 74, 2)])


def test_factors_and_gaps_are_found(model: SerialModel) -> None:
    wanted = build_step(11)
    (predicted,) = model.predict([wanted.workload])
    assert predicted.iteration_s == pytest.approx(wanted.iteration_s, rel=0.05)
    assert predicted.kernel_s == pytest.approx(wanted.kernel_s, rel=0.15)
    assert predicted.gap_s == pytest.approx(GAP_S)


def test_times_are_in_order_and_add_up(model: SerialModel) -> None:
    workload = build_step(11).workload
    turned = replace(workload, operators=workload.operators[::-1])
    predicted, other = model.predict([workload, turned])
    assert other.kernel_s.tolist() == predicted.kernel_s[::-1].tolist()
    assert predicted.iteration_s == pytest.approx(predicted.kernel_s.sum() + predicted.gap_s.sum())


def test_the_scale_corrects_sums_of_medians() -> None:
    """A quarter of all calls takes five times as long: their middle is half of their mean."""
    random = np.random.default_rng(0)
    steps = [build_step(3, repeats=20, slower=random.choice([1.0, 1.0, 1.0, 5.0], 100)) for _ in range(30)]
    model = SerialModel(DEVICE).fit(steps)
    (predicted,) = model.predict([steps[0].workload])
    assert model.scale_ == pytest.approx(2.0, rel=0.1)
    assert predicted.iteration_s == pytest.approx(np.median([step.iteration_s for step in steps]), rel=0.05)


def test_steps_that_follow_the_law_need_no_scale(model: SerialModel) -> None:
    assert model.scale_ == pytest.approx(1.0, abs=0.05)


def test_missing_times_are_not_used() -> None:
    steps = [build_step(number) for number in range(30)]
    for step in steps:
        step.kernel_s[1] = step.start_s[1] = np.nan
    (predicted,) = SerialModel(DEVICE).fit(steps).predict([steps[0].workload])
    assert np.isfinite(predicted.kernel_s).all()
    assert predicted.gap_s[0] == pytest.approx(GAP_S)  # not the time of what is missing


def test_an_unknown_kind_is_predicted_by_what_it_moves(model: SerialModel) -> None:
    shape = (1000, 1000)
    small, large = (
        Operator(kind="never_seen", phase=StepPhase.FORWARD, inputs=(shape,), output=shape, bytes_moved=moved)
        for moved in (8e6, 8e7)
    )
    (predicted,) = model.predict([Workload(name="other", operators=(small, large))])
    assert predicted.kernel_s[0] == pytest.approx(8e6 / DEVICE.bandwidth_bytes * FACTORS["relu"], rel=0.3)
    assert predicted.kernel_s[1] == pytest.approx(10 * predicted.kernel_s[0], rel=0.1)
    assert predicted.gap_s == pytest.approx(GAP_S)


@pytest.mark.parametrize("kind", ["conv1d", "linear", "matmul", "multi_head_attention_forward", "lstm", "relu"])
@pytest.mark.parametrize("inputs", [(), ((),), ((), ()), ((3,), (3,)), ((0, 4), (2, 4)), ((2, 3, 4), (5, 3, 1))])
def test_odd_shapes_get_finite_times(model: SerialModel, kind: str, inputs: tuple[tuple[int, ...], ...]) -> None:
    operator = Operator(kind=kind, phase=StepPhase.BACKWARD, inputs=inputs, output=(), kernels=0)
    (predicted,) = model.predict([Workload(name="odd", operators=(operator,))])
    assert 0 < predicted.iteration_s < 1


def test_a_step_without_operators_takes_no_time(model: SerialModel) -> None:
    (predicted,) = model.predict([Workload(name="nothing", operators=())])
    assert predicted.iteration_s == 0


def test_a_state_gives_equal_predictions(model: SerialModel) -> None:
    record, arrays = model.to_state()
    again = SerialModel.from_state(json.loads(json.dumps(record)), arrays)
    workload = build_step(11).workload
    (predicted,), (repeated,) = model.predict([workload]), again.predict([workload])
    assert again.device == DEVICE
    assert repeated.iteration_s == predicted.iteration_s
    assert repeated.kernel_s.tolist() == predicted.kernel_s.tolist()
    assert repeated.gap_s.tolist() == predicted.gap_s.tolist()


def test_the_same_steps_give_the_same_model() -> None:
    steps = [build_step(number) for number in range(30)]
    first, second = (SerialModel(DEVICE).fit(steps).predict([steps[3].workload])[0].iteration_s for _ in range(2))
    assert first == second


def test_a_profile_of_the_step_predicts_its_time(model: SerialModel) -> None:
    profile = build_step(11, slower=2.0, gap_s=3 * GAP_S)
    (predicted,) = model.refine([profile]).predict([profile.workload])
    assert predicted.iteration_s == pytest.approx(profile.iteration_s)
    assert predicted.kernel_s == pytest.approx(profile.kernel_s)
    assert predicted.gap_s == pytest.approx(profile.start_s[1] - profile.kernel_s[0])


def test_a_profile_at_another_size_reduces_the_error(model: SerialModel) -> None:
    wanted = build_step(30, slower=2.0, gap_s=3 * GAP_S)
    (predicted,) = model.predict([wanted.workload])
    refined = model.refine([build_step(11, slower=2.0, gap_s=3 * GAP_S)])
    (closer,) = refined.predict([wanted.workload])
    assert predicted.iteration_s < 0.6 * wanted.iteration_s
    assert closer.iteration_s == pytest.approx(wanted.iteration_s, rel=0.15)


def test_operators_without_a_profile_stay_as_expected(model: SerialModel) -> None:
    profile = build_step(11, gap_s=3 * GAP_S)
    profile.kernel_s[1] = profile.start_s[1] = np.nan
    (predicted,) = model.refine([profile]).predict([profile.workload])
    assert predicted.kernel_s[1] == pytest.approx(build_step(11).kernel_s[1], rel=0.15)
    assert predicted.gap_s == pytest.approx(3 * GAP_S)  # at the pace of the others


def test_another_network_has_the_ratio_of_gaps(model: SerialModel) -> None:
    workload = build_step(11).workload
    other = replace(workload, operators=workload.operators[:3])
    (predicted,) = model.refine([build_step(11, gap_s=3 * GAP_S)]).predict([other])
    assert predicted.gap_s == pytest.approx(3 * GAP_S)
