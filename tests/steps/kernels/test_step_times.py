"""Steps on any device follow the laws of kernels and launches."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from foretell.core.devices import Device, get_device, list_devices
from foretell.core.model_files import load_model, save_model
from foretell.core.workload import Floats, MeasuredStep, Operator, StepEstimate, StepPhase, Workload
from foretell.steps.kernels.kernel_bounds import KernelBounds
from foretell.steps.kernels.split_steps import split_step
from foretell.steps.kernels.step_times import KernelStepModel
from foretell.steps.step_predictor import StepPredictor, find_step_predictor

FORWARD, BACKWARD, UPDATE = StepPhase
GPUS = [device.name for device in list_devices() if device.kind == "gpu"]


def linear(rows: int, width: int, *, dtype: str = "float32", phase: StepPhase = FORWARD) -> Operator:
    times = 2 if phase is BACKWARD else 1
    item = 4 if dtype == "float32" else 2
    return Operator(
        kind="linear",
        phase=phase,
        inputs=((rows, width), (width, width)),
        output=(rows, width),
        dtype=dtype,
        flops=2.0 * times * rows * width**2,
        bytes_moved=float(times * item * (2 * rows * width + width**2)),
        parameters=width**2,
        kernels=times,
    )


def relu(rows: int, width: int, *, phase: StepPhase = FORWARD) -> Operator:
    size = rows * width
    return Operator(
        kind="relu", phase=phase, inputs=((rows, width),), output=(rows, width), flops=size, bytes_moved=8.0 * size
    )


def update(width: int, layers: int) -> Operator:
    return Operator(
        kind="_foreach_add_",
        phase=UPDATE,
        inputs=((width, width),) * layers,
        attributes=(("tensors", layers),),
        flops=float(layers * width**2),
        bytes_moved=12.0 * layers * width**2,
    )


def build_step(rows: int, width: int, *, layers: int = 12, dtype: str = "float32", **settings: str) -> Workload:
    forward = [linear(rows, width, dtype=dtype), relu(rows, width)] * layers
    backward = [relu(rows, width, phase=BACKWARD), linear(rows, width, dtype=dtype, phase=BACKWARD)] * layers
    return Workload(
        name="made up",
        operators=(*forward, *backward, update(width, layers)),
        batch=rows,
        settings={"precision": {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[dtype], **settings},
        parameters=layers * width**2,
    )


SMALL = build_step(8, 64)
LARGE = build_step(16384, 4096)


def predict(workload: Workload, device: str | Device, *, level: float = 0.9) -> StepEstimate:
    found = get_device(device) if isinstance(device, str) else device
    model = KernelStepModel.from_figures(found)
    assert model is not None
    return StepPredictor(model, device=found, spreads={}).predict(workload, level=level)


def test_a_small_step_takes_as_long_as_its_launches() -> None:
    slow, fast = predict(SMALL, "A100-40"), predict(SMALL, "H200")
    assert fast.main_limit == "host"
    assert fast.iteration.value == pytest.approx(slow.iteration.value, rel=0.05)
    assert fast.overhead_s > fast.busy_s


def test_fewer_launches_make_a_small_step_faster() -> None:
    eager, compiled = predict(SMALL, "H100"), predict(build_step(8, 64, compile="yes"), "H100")
    assert compiled.iteration.value < 0.9 * eager.iteration.value


def test_a_large_step_is_limited_by_computing_and_faster_on_a_faster_device() -> None:
    slow, fast = predict(LARGE, "A100-40"), predict(LARGE, "H100")
    assert fast.main_limit == slow.main_limit == "compute"
    assert fast.iteration.value < 0.6 * slow.iteration.value


def test_half_precision_is_faster_where_products_take_the_time() -> None:
    single, half = predict(LARGE, "H100"), predict(build_step(16384, 4096, dtype="bfloat16"), "H100")
    assert half.iteration.value < 0.35 * single.iteration.value
    assert half.mfu is not None
    assert 0.2 < half.mfu < 1.0


def test_passes_over_memory_take_as_long_as_the_memory() -> None:
    only = Workload(name="made up", operators=(relu(2**20, 1024),) * 20, settings={})
    found = predict(only, "A100-80")
    assert found.main_limit == "memory"
    assert found.iteration.value == pytest.approx(only.bytes_moved / get_device("A100-80").bandwidth_bytes, rel=0.4)


@pytest.mark.parametrize("device", GPUS)
def test_no_bound_breaks_physics(device: str) -> None:
    found, figures = predict(LARGE, device), get_device(device)
    peak = max(figures.find_peak("fp32") or 0.0, figures.peak_flops)
    products = sum(each.flops for each in LARGE.operators if each.kind == "linear")
    assert found.iteration.low >= 0.999 * products / peak
    assert found.iteration.low <= found.iteration.value <= found.iteration.high
    assert np.isfinite(found.iteration.high)


@pytest.mark.parametrize("device", ["T4", "MI300X", "RTX4090", "Gaudi2"])
@pytest.mark.parametrize("workload", [SMALL, LARGE], ids=["small", "large"])
def test_parts_add_up(workload: Workload, device: str) -> None:
    found = predict(workload, device)
    assert sum(found.phases.values()) == pytest.approx(found.iteration.value)
    assert (found.kernel_s.sum() + found.gap_s.sum()) == pytest.approx(found.iteration.value)
    assert found.busy_s + found.overhead_s == pytest.approx(found.iteration.value)
    assert sum(found.limits.values()) == pytest.approx(1.0, abs=0.01)
    assert sum(found.evidence.values()) == pytest.approx(1.0)
    assert (found.kernel_s >= 0).all()
    assert (found.gap_s >= 0).all()


def test_a_higher_level_gives_a_wider_interval() -> None:
    narrow, wide = (predict(LARGE, "H100", level=level).iteration for level in (0.5, 0.95))
    assert wide.low <= narrow.low <= narrow.value <= narrow.high <= wide.high
    assert wide.high / wide.low > narrow.high / narrow.low


def test_the_time_of_the_host_is_less_certain_than_that_of_the_device() -> None:
    small, large = predict(SMALL, "H100").iteration, predict(LARGE, "H100").iteration
    assert small.high / small.value > large.high / large.value


def test_a_device_with_few_figures_is_predicted() -> None:
    bare = Device(name="new", kind="gpu", peak_flops=2e13, bandwidth_bytes=1e12, units=64, memory_bytes=0)
    found = predict(LARGE, bare)
    assert found.iteration.value >= 0.8 * sum(each.flops for each in LARGE.operators) / 2.25 / bare.peak_flops
    assert found.main_evidence == "figures"


def test_a_step_without_operators_takes_no_time() -> None:
    assert predict(Workload(name="empty", operators=()), "T4").iteration.value == 0.0


def test_every_gpu_of_the_catalogue_is_predicted_from_its_kernels() -> None:
    assert {find_step_predictor(device).method for device in GPUS} == {"kernels"}
    assert find_step_predictor("T4", method="replay").method == "replay"


def test_the_kernels_of_a_step_are_split_once() -> None:
    assert split_step(LARGE) is split_step(LARGE)
    assert split_step(replace(LARGE, batch=3)) is not split_step(LARGE)


def test_no_kernel_is_lost() -> None:
    split = split_step(LARGE)
    products = split.bounds.flops[: len(split.calls["product"])] @ split.count[: len(split.calls["product"])]
    assert products == pytest.approx(sum(each.flops for each in LARGE.operators if each.kind == "linear"))
    assert split.add_up(np.ones(len(split.count))).sum() == pytest.approx(split.count.sum())


def test_a_type_that_a_device_lacks_runs_as_another() -> None:
    half = split_step(build_step(4096, 1024, dtype="bfloat16")).calls["product"]
    volta = KernelBounds.count(half).compute_s(get_device("V100-32"))
    assert volta == pytest.approx(KernelBounds.count(half).flops / get_device("V100-32").peak_flops)


# Measured steps of the device


def measure(workload: Workload, kernel_s: Floats, host_s: float) -> MeasuredStep:
    """A step of such kernels, each launched ``host_s`` after the one before."""
    launch: Floats = np.arange(len(kernel_s), dtype=float) * host_s
    start, free = np.zeros(len(kernel_s)), 0.0
    for place, seconds in enumerate(kernel_s.tolist()):
        start[place] = max(free, launch[place])
        free = start[place] + seconds
    return MeasuredStep(
        workload=workload,
        device="H100",
        iteration_s=free,
        kernel_s=kernel_s,
        span_s=kernel_s,
        start_s=start,
        launch_s=launch,
    )


def run_slowly(workloads: Sequence[Workload], *, factor: float) -> list[MeasuredStep]:
    return [measure(each, factor * predict(each, "H100").kernel_s, 1e-6) for each in workloads]


def test_measured_steps_shift_the_kernels_of_a_device() -> None:
    seen, unseen = build_step(8192, 2048), build_step(16384, 2048)
    model = KernelStepModel(get_device("H100")).fit(run_slowly([seen], factor=1.3))
    plain = KernelStepModel(get_device("H100"))
    first, second = (one.predict([unseen])[0].kernel_s.sum() for one in (model, plain))
    assert first == pytest.approx(1.3 * second)


def test_a_profile_of_the_network_improves_other_sizes() -> None:
    profile, other = (run_slowly([build_step(rows, 4096)], factor=1.4)[0] for rows in (8192, 16384))
    model = KernelStepModel(get_device("H100"))
    plain, refined = model.predict([other.workload])[0], model.refine([profile]).predict([other.workload])[0]
    errors = [abs(times.iteration_s / other.iteration_s - 1) for times in (plain, refined)]
    assert errors[1] < 0.5 * errors[0]


def test_a_file_gives_the_same_predictions(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("models") / "H100.safetensors"
    model = KernelStepModel(get_device("H100")).fit(run_slowly([LARGE], factor=1.2))
    save_model(path, model, {})
    loaded, _facts = load_model(path, [KernelStepModel], remedy="fit it again")
    assert loaded.predict([SMALL])[0].iteration_s == model.predict([SMALL])[0].iteration_s
