"""The models of products and attention keep to physics, follow laws again, and learn from a few measurements."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest

from foretell.core.devices import Device, get_device, list_devices
from foretell.core.workload import Floats
from foretell.steps.kernels._base import Evidence
from foretell.steps.kernels.attention_times import AttentionTimeModel
from foretell.steps.kernels.device_rates import find_rates
from foretell.steps.kernels.kernel_calls import Attention, Product
from foretell.steps.kernels.physics_parameters import start_values
from foretell.steps.kernels.product_times import ProductTimeModel
from foretell.steps.kernels.shipped_models import load_kernel_models

H100, B200, L40S = (get_device(name) for name in ("H100", "B200", "L40S"))
Model: TypeAlias = Any
SIZES = (64, 192, 1024, 4096)
PRODUCTS = [
    Product(rows=rows, columns=columns, inner=inner, precision="bf16")
    for rows in SIZES
    for columns in SIZES
    for inner in SIZES
]
ATTENTION = [
    Attention(batch=batch, heads=16, key_heads=key_heads, queries=length, keys=length, width=width, causal=True)
    for batch in (1, 8)
    for key_heads in (2, 16)
    for length in (128, 1024, 4096)
    for width in (64, 128)
]
KINDS = [(ProductTimeModel, PRODUCTS, "product"), (AttentionTimeModel, ATTENTION, "attention")]


def measure(model: Model, calls: Sequence[Any], device: Device, *, slower: float = 1.3) -> Floats:
    """A device whose kernels follow the law, all of them slower."""
    return slower * model.describe(calls, find_rates(device, "bf16"), start_values(model.parameters)).seconds


@pytest.fixture(params=KINDS, ids=[kind for _model, _calls, kind in KINDS])
def fitted(request: pytest.FixtureRequest) -> tuple[Model, Sequence[Any]]:
    model_class, calls, _kind = request.param
    seconds = np.concatenate([measure(model_class(), calls, device) for device in (H100, B200)])
    return model_class().fit([*calls, *calls], [H100] * len(calls) + [B200] * len(calls), seconds), calls


@pytest.fixture(params=KINDS, ids=[kind for _model, _calls, kind in KINDS])
def shipped(request: pytest.FixtureRequest) -> tuple[Model, Sequence[Any]]:
    _class, calls, kind = request.param
    return load_kernel_models()[kind], calls


def test_known_and_unknown_devices_follow_the_law(fitted: tuple[Model, Sequence[Any]]) -> None:
    model, calls = fitted
    for device, tolerance in ((H100, 0.05), (L40S, 0.2)):
        errors = np.log(model.predict(calls, device) / measure(model, calls, device))
        assert np.abs(errors).mean() < tolerance


def test_evidence_is_the_strongest_there_is(fitted: tuple[Model, Sequence[Any]]) -> None:
    model, calls = fitted
    assert model.find_evidence(H100, "fp16") is Evidence.MEASURED
    assert model.find_evidence(get_device("GH200"), "bf16") is Evidence.SIMILAR
    assert model.find_evidence(H100, "fp8") is Evidence.FIGURES
    assert model.find_evidence(L40S, "bf16") is Evidence.FIGURES
    calibrated = model.calibrate(calls[::3], L40S, measure(model, calls[::3], L40S))
    assert calibrated.find_evidence(L40S, "bf16") is Evidence.MEASURED
    assert model.find_evidence(L40S, "bf16") is Evidence.FIGURES


def test_a_few_measurements_of_a_device_improve_the_others(fitted: tuple[Model, Sequence[Any]]) -> None:
    model, calls = fitted
    seconds = measure(model, calls, L40S, slower=2.0)
    few, rest = np.split(np.random.default_rng(0).permutation(len(calls)), [len(calls) // 3])
    calibrated = model.calibrate([calls[place] for place in few], L40S, seconds[few])

    def error(which: Model) -> float:
        return float(np.abs(np.log(which.predict(calls, L40S) / seconds))[rest].mean())

    assert error(calibrated) < 0.1 < error(model)
    assert calibrated.predict(calls, H100) == pytest.approx(model.predict(calls, H100))


def test_kernels_of_a_device_say_how_its_shapes_differ(fitted: tuple[Model, Sequence[Any]]) -> None:
    """A shape that is slower on the devices that were fitted, and much slower on this one."""
    model, calls = fitted
    odd = np.array([call.width == 128 if isinstance(call, Attention) else call.inner == 192 for call in calls])
    fitted_seconds = np.concatenate([measure(model, calls, device) * np.where(odd, 1.2, 1) for device in (H100, B200)])
    model = type(model)().fit([*calls, *calls], [H100] * len(calls) + [B200] * len(calls), fitted_seconds)
    seconds = measure(model, calls, L40S) * np.where(odd, 1.5, 1)
    few, rest = np.split(np.random.default_rng(0).permutation(len(calls)), [len(calls) * 2 // 3])
    calibrated = model.calibrate([calls[place] for place in few], L40S, seconds[few])
    errors = {
        name: np.abs(np.log(each.predict(calls, L40S) / seconds))[rest]
        for name, each in (("shared", model), ("own", calibrated))
    }
    assert errors["own"].mean() < 0.5 * errors["shared"].mean()
    again = type(model).from_state(*calibrated.to_state())
    assert again.predict(calls, L40S).tolist() == calibrated.predict(calls, L40S).tolist()


def test_leaves_of_other_trees_are_refused(fitted: tuple[Model, Sequence[Any]]) -> None:
    model, calls = fitted
    record, arrays = model.calibrate(calls, L40S, measure(model, calls, L40S)).to_state()
    place = next(name for name in arrays if "/leaves/" in name)
    with pytest.raises(ValueError, match="shape"):
        type(model).from_state(record, {**arrays, place: arrays[place][:-1]})


def test_a_file_gives_the_same_predictions(shipped: tuple[Model, Sequence[Any]]) -> None:
    model, calls = shipped
    again = type(model).from_state(*model.to_state())
    for device in (H100, L40S):
        assert again.predict(calls, device).tolist() == model.predict(calls, device).tolist()
        assert again.find_evidence(device, "bf16") is model.find_evidence(device, "bf16")
    assert again.spreads_ == model.spreads_


@pytest.mark.parametrize(
    "device", [device for device in list_devices() if device.kind == "gpu"], ids=lambda it: it.name
)
def test_no_product_is_faster_than_the_device(device: Device) -> None:
    model = load_kernel_models()["product"]
    for precision in ("fp32", "tf32", "fp16", "bf16", "fp8"):
        peak = device.find_peak(precision)
        if peak is None:
            continue
        calls = [replace(call, precision=precision) for call in PRODUCTS]
        least = np.array([2.0 * call.rows * call.columns * call.inner / peak for call in calls])
        seconds = model.predict(calls, device)
        assert np.all(seconds >= least)
        assert np.all(seconds < 1.0)


def test_larger_kernels_take_longer(shipped: tuple[Model, Sequence[Any]]) -> None:
    """By a factor of four at least in every size, where tiles and waves do not decide."""
    model, calls = shipped
    for device in (H100, L40S, get_device("MI300X")):
        seconds = dict(zip(calls, model.predict(calls, device), strict=True))
        for call, taken in seconds.items():
            if isinstance(call, Product):
                wider = replace(call, rows=call.rows * 16, columns=call.columns * 16)
            else:
                wider = replace(call, queries=call.queries * 8, keys=call.keys * 8)
            assert model.predict([wider], device)[0] > taken


def test_unknown_figures_are_tolerated(shipped: tuple[Model, Sequence[Any]]) -> None:
    model, calls = shipped
    bare = replace(L40S, name="bare", architecture="", year=0, l2_bytes=0, clock_hz=0.0, power_w=0.0, link_bytes=0.0)
    assert model.find_evidence(bare, "bf16") is Evidence.FIGURES
    ratios = model.predict(calls, bare) / model.predict(calls, L40S)
    assert np.all((ratios > 1 / 3) & (ratios < 3))


def test_decoding_is_limited_by_memory(shipped: tuple[Model, Sequence[Any]]) -> None:
    model, calls = shipped
    if isinstance(calls[0], Product):
        call: Any = Product(rows=1, columns=16384, inner=8192, precision="bf16")
        moved = 2.0 * 16384 * 8192
    else:
        call = Attention(batch=64, heads=32, key_heads=8, queries=1, keys=8192, width=128)
        moved = 2.0 * 2 * 64 * 8 * 8192 * 128
    least = moved / H100.bandwidth_bytes
    assert least <= model.predict([call], H100)[0] < 2 * least


def test_backward_takes_two_to_four_times_as_long() -> None:
    model = load_kernel_models()["attention"]
    large = [call for call in ATTENTION if call.queries == 4096]
    forward = model.predict(large, H100)
    backward = model.predict([replace(call, backward=True) for call in large], H100)
    assert np.all((backward > 2 * forward) & (backward < 4 * forward))


@pytest.mark.parametrize("change", ["regime", "columns", "theta", "spread"])
def test_other_states_are_refused(change: str) -> None:
    record, arrays = load_kernel_models()["product"].to_state()
    record, arrays = dict(record), dict(arrays)
    if change == "regime":
        record["regimes"] = ["other"]
    elif change == "columns":
        arrays["matrix/trees/feature"] = arrays["matrix/trees/feature"] + np.int16(50)
    elif change == "theta":
        arrays["matrix/theta"] = arrays["matrix/theta"][:-1]
    else:
        record["spreads"] = {"measured": "wide"}
    with pytest.raises((ValueError, LookupError, TypeError)):
        ProductTimeModel.from_state(record, arrays)


def test_rows_of_an_odd_number_of_halves_take_longer() -> None:
    model = load_kernel_models()["product"]
    padded = Product(rows=8192, columns=50304, inner=768, precision="bf16")
    odd = replace(padded, columns=50257)

    def compare(first: Product, second: Product) -> float:
        one, other = model.predict([first, second], H100)
        return float(one / other)

    assert compare(odd, padded) > 1.5
    assert compare(replace(padded, rows=8191), padded) < 1.2  # rows as such may be of any number
    assert compare(replace(odd, precision="fp32"), replace(padded, precision="fp32")) < 1.2
    assert compare(replace(padded, columns=50262), padded) < 1.5
