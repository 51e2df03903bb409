"""The model of the device finds known factors on its roofline."""

from dataclasses import replace

import numpy as np
import pytest

from foretell.core.devices import Device
from foretell.core.workload import Floats, Operator, StepPhase
from foretell.steps.device_tasks import DeviceTask, TaskKind, split_operator
from foretell.steps.kernel_times import KernelModel, describe, roofline

DEVICE = Device(name="made up", kind="gpu", peak_flops=8e12, bandwidth_bytes=3e11, units=40, memory_bytes=16 * 2**30)
FACTORS = {"relu": 1.2, "layer_norm": 3.0, "linear": 1.6, "matmul": 5.0}


def make_pass(kind: str, rows: int, columns: int, *, phase: StepPhase = StepPhase.FORWARD) -> DeviceTask:
    size = float(rows * columns)
    return DeviceTask(
        task_kind=TaskKind.MEMORY_PASS, kind=kind, phase=phase, sizes=(rows, columns, 1.0, columns, size), flops=size,
        bytes_moved=8 * size,
    )  # fmt: skip


def make_product(kind: str, rows: int, columns: int, inner: int) -> DeviceTask:
    return DeviceTask(
        task_kind=TaskKind.PRODUCT, kind=kind, phase=StepPhase.FORWARD, sizes=(rows, columns, inner, 1.0),
        flops=2.0 * rows * columns * inner, bytes_moved=4.0 * (rows * inner + inner * columns + rows * columns),
    )  # fmt: skip


def make_convolution() -> DeviceTask:
    shapes = ((8, 16, 10, 10), (32, 1, 3, 3))
    operator = Operator(kind="conv2d", phase=StepPhase.FORWARD, inputs=shapes, output=(8, 32, 10, 10))
    (part,) = split_operator(operator)
    return part


def draw(count: int, *, seed: int = 0) -> list[DeviceTask]:
    random = np.random.default_rng(seed)
    sizes = (2 ** random.integers(5, 12, size=(count, 3))).tolist()
    passes = [make_pass(kind, a, b) for a, b, _ in sizes for kind in ("relu", "layer_norm")]
    products = [make_product(kind, a, b, c) for a, b, c in sizes for kind in ("linear", "matmul")]
    return list(dict.fromkeys(passes + products))


def law(parts: list[DeviceTask], device: Device = DEVICE) -> Floats:
    return np.asarray(roofline(parts, device) * np.array([FACTORS[part.kind] for part in parts]))


@pytest.fixture(scope="module")
def model() -> KernelModel:
    parts = draw(120)
    return KernelModel(DEVICE).fit(parts, law(parts))


def test_roofline_is_launch_and_the_slower_of_computing_and_moving() -> None:
    computes = replace(make_product("linear", 1, 1, 1), flops=8e12, bytes_moved=3e11 / 2, kernels=2)
    moves = replace(make_pass("relu", 1, 1), flops=8e12 / 2, bytes_moved=3e11, repeats=3)
    assert roofline([computes, moves], DEVICE) == pytest.approx([1 + 6e-6, 3 * (1 + 3e-6)], rel=1e-9)


def test_factors_of_kinds_are_found(model: KernelModel) -> None:
    asked = draw(60, seed=1)
    assert model.predict(asked) == pytest.approx(law(asked), rel=0.1)


def test_a_factor_that_depends_on_sizes_is_found() -> None:
    def slowed(parts: list[DeviceTask]) -> Floats:
        return np.asarray(roofline(parts, DEVICE) * np.array([4.0 if one.sizes[2] < 64 else 1.0 for one in parts]))

    parts = [part for part in draw(400) if part.task_kind is TaskKind.PRODUCT]
    asked = [part for part in draw(60, seed=1) if part.task_kind is TaskKind.PRODUCT]
    predicted = KernelModel(DEVICE).fit(parts, slowed(parts)).predict(asked)
    assert float(np.mean(np.abs(predicted / slowed(asked) - 1))) < 0.1


def test_an_unknown_kind_is_like_others_of_its_phase(model: KernelModel) -> None:
    known = [make_pass(kind, 512, 1024) for kind in ("relu", "layer_norm")]
    (unknown,) = model.predict([make_pass("never_seen", 512, 1024)])
    low, high = model.predict(known)
    assert low <= unknown <= high


def test_an_unknown_phase_and_an_unknown_task_are_predicted(model: KernelModel) -> None:
    (backward,) = model.predict([make_pass("relu", 512, 1024, phase=StepPhase.BACKWARD)])
    low, high = model.predict([make_pass(kind, 512, 1024) for kind in ("relu", "layer_norm")])
    assert 0.5 * low <= backward <= 2 * high
    conv = make_convolution()
    assert model.predict([conv]) == pytest.approx(roofline([conv], DEVICE))  # nothing is known: the roofline


def test_more_work_of_an_unknown_kind_takes_longer(model: KernelModel) -> None:
    small, large = model.predict([make_pass("never_seen", 64, 64), make_pass("never_seen", 4096, 4096)])
    assert large > 10 * small


def test_one_outlier_does_not_set_the_level_of_a_kind() -> None:
    parts = [make_pass("relu", 2**n, 2**m) for n in range(6, 11) for m in range(6, 11)]
    seconds = roofline(parts, DEVICE)
    odd = make_pass("odd", 300, 300)
    model = KernelModel(DEVICE).fit([*parts, odd], np.append(seconds, 100 * roofline([odd], DEVICE)))
    asked = [make_pass("odd", 1024, 1024)]
    assert model.predict(asked)[0] < 20 * roofline(asked, DEVICE)[0]


def test_factors_of_convolutions_are_found() -> None:
    core = make_convolution()
    parts = [replace(core, flops=core.flops * n, sizes=(8.0 * n, *core.sizes[1:])) for n in range(1, 40)]
    model = KernelModel(DEVICE).fit(parts, 2.5 * roofline(parts, DEVICE))
    assert model.predict(parts) == pytest.approx(2.5 * roofline(parts, DEVICE), rel=0.02)


def test_columns_are_finite_for_the_smallest_tasks() -> None:
    for part in (make_pass("relu", 1, 1), make_product("matmul", 1, 1, 1), make_convolution()):
        nothing = replace(part, flops=0.0, bytes_moved=0.0)
        assert np.isfinite(describe([nothing, part], DEVICE)).all()


def test_same_tasks_and_seed_give_the_same_predictions() -> None:
    parts = draw(40)
    first, again = (KernelModel(DEVICE, seed=5).fit(parts, law(parts)).predict(parts).tolist() for _ in range(2))
    assert first == again


def test_arrays_and_levels_are_the_whole_model(model: KernelModel) -> None:
    asked = [*draw(20, seed=1), make_pass("never_seen", 64, 64)]
    again = KernelModel.from_arrays(DEVICE, model.to_arrays(), model.levels_)
    assert again.predict(asked).tolist() == model.predict(asked).tolist()


def test_another_device_has_the_same_factors_on_its_own_roofline(model: KernelModel) -> None:
    fast = replace(DEVICE, name="fast", peak_flops=4 * DEVICE.peak_flops, bandwidth_bytes=4 * DEVICE.bandwidth_bytes)
    asked = draw(30, seed=1)
    assert model.transfer(fast).predict(asked) == pytest.approx(law(asked, fast), rel=0.15)
    assert model.device is DEVICE


def test_a_common_error_shifts_all_levels() -> None:
    parts = draw(60)
    model = KernelModel(DEVICE).fit(parts, law(parts))
    model.shift([(part, float(np.log(2.0)), 1.0) for part in parts])
    asked = draw(30, seed=1)
    assert model.predict(asked) == pytest.approx(2 * law(asked), rel=0.15)


def test_the_error_of_a_kind_shifts_its_level_only() -> None:
    parts = draw(60)
    model = KernelModel(DEVICE).fit(parts, law(parts))
    before = model.predict(parts)
    model.shift([(part, float(np.log(3.0)) if part.kind == "layer_norm" else 0.0, 1.0) for part in parts])
    factor = model.predict(parts) / before
    off = np.array([part.kind == "layer_norm" for part in parts])
    assert factor[off] == pytest.approx(np.full(off.sum(), 3.0), rel=0.15)
    assert factor[~off] == pytest.approx(np.ones((~off).sum()), rel=0.15)
