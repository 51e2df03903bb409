"""Times of convolutions and passes: laws of physics, files, levels and calibration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.core.devices import Device, get_device
from foretell.core.model_files import load_model, save_model
from foretell.core.workload import Floats
from foretell.steps.kernels._base import Evidence
from foretell.steps.kernels.convolution_times import ConvolutionTimeModel
from foretell.steps.kernels.corrected_times import CorrectedTimeModel
from foretell.steps.kernels.kernel_calls import Convolution, MemoryPass
from foretell.steps.kernels.pass_times import PassTimeModel

T4, V100, A100, H100 = (get_device(name) for name in ("T4", "V100", "A100", "H100"))
BARE = Device(name="bare", kind="gpu", peak_flops=1e13, bandwidth_bytes=5e11, units=40, memory_bytes=10**10)


def convolve(images: int = 16, channels: int = 64, filters: int = 64, size: int = 28, **other: Any) -> Convolution:
    settings: dict[str, Any] = {"groups": 1, "kernel": (3, 3)} | other
    return Convolution(
        images=images, channels=channels, filters=filters, size_in=(size, size), size_out=(size, size), **settings
    )


def relu(elements: int, *, kind: str = "relu", backward: bool = False, kernels: int = 1) -> MemoryPass:
    moved = 8.0 * elements * kernels
    return MemoryPass(
        kind=kind,
        backward=backward,
        elements=elements,
        row=64,
        bytes_moved=moved,
        flops=float(elements),
        kernels=kernels,
    )


def draw_convolutions(count: int, seed: int) -> list[Convolution]:
    random = np.random.default_rng(seed)
    sizes = np.stack(
        [2 ** random.integers(0, 7, count), 2 ** random.integers(3, 10, count), 2 ** random.integers(3, 7, count)]
    )
    windows, directions = random.choice([1, 3], count).tolist(), random.choice(["forward", "data", "weights"], count)
    shares = random.choice([0.0, 0.0, 0.25, 1.0], count)  # of the channels that are groups
    return [
        convolve(
            int(images),
            int(channels),
            int(channels),
            int(size),
            kernel=(window, window),
            direction=direction,
            groups=max(1, int(channels * share)),
        )
        for (images, channels, size), window, direction, share in zip(sizes.T, windows, directions, shares, strict=True)
    ]


def draw_passes(count: int, seed: int) -> list[MemoryPass]:
    random = np.random.default_rng(seed)
    sizes, kinds = 2 ** random.uniform(8, 28, count), random.choice(["relu", "batch_norm", "softmax", "clone"], count)
    return [relu(int(size), kind=str(kind), backward=bool(size > 1e6)) for size, kind in zip(sizes, kinds, strict=True)]


@dataclass(frozen=True, slots=True)
class Family:
    """A model and calls for it."""

    model: type[CorrectedTimeModel[Any]]
    draw: Callable[[int, int], Sequence[Any]]

    def measure(self, calls: Sequence[Any], device: Device, factor: float) -> Floats:
        """Times by a law: the physics, and a factor that depends on the kind and on the size."""
        model = self.model()
        figures = model.build_figures(calls, device)
        names = [model.name_path(call, device)[1] for call in calls]
        bent = np.array([0.2 * (len(name) % 3) for name in names])
        return np.asarray(figures.find_seconds() * factor * np.exp(bent))

    def fit(self, factors: dict[Device, float], *, count: int = 400) -> CorrectedTimeModel[Any]:
        calls: list[Any] = []
        devices: list[Device] = []
        seconds: list[Floats] = []
        for place, (device, factor) in enumerate(factors.items()):
            some = self.draw(count, place)
            calls += some
            devices += [device] * count
            seconds.append(self.measure(some, device, factor))
        return self.model().fit(calls, devices, np.concatenate(seconds))


FAMILIES = [Family(ConvolutionTimeModel, draw_convolutions), Family(PassTimeModel, draw_passes)]


@pytest.fixture(scope="module", params=FAMILIES, ids=["convolutions", "passes"])
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


@pytest.fixture(scope="module")
def model(family: Family) -> CorrectedTimeModel[Any]:
    return family.fit({T4: 1.5, V100: 1.0})


def find_errors(model: CorrectedTimeModel[Any], family: Family, device: Device, factor: float) -> Floats:
    calls = family.draw(200, 77)
    return np.abs(np.log(model.predict(calls, device) / family.measure(calls, device, factor)))


def test_finds_the_law_of_devices_it_knows(family: Family, model: CorrectedTimeModel[Any]) -> None:
    for device, factor in ((T4, 1.5), (V100, 1.0)):
        assert np.median(find_errors(model, family, device, factor)) < 0.08


def test_an_unknown_device_lies_between_those_known(family: Family, model: CorrectedTimeModel[Any]) -> None:
    calls = family.draw(200, 77)
    ratio = np.median(model.predict(calls, A100) / family.measure(calls, A100, 1.0))
    assert 0.8 < ratio < 1.8


def test_calibration_moves_towards_measured_calls(family: Family, model: CorrectedTimeModel[Any]) -> None:
    some = family.draw(24, 5)
    before = find_errors(model, family, A100, 2.5)
    calibrated = model.calibrate(some, A100, family.measure(some, A100, 2.5))
    assert np.median(find_errors(calibrated, family, A100, 2.5)) < 0.4 * np.median(before)
    assert find_errors(model, family, A100, 2.5) == pytest.approx(before)
    assert calibrated.predict(some, V100) == pytest.approx(model.predict(some, V100))


def test_evidence_follows_what_was_measured(family: Family, model: CorrectedTimeModel[Any]) -> None:
    turing, some = replace(T4, name="another Turing"), family.draw(5, 5)
    assert model.find_evidence(T4, "fp32") is Evidence.MEASURED
    assert model.find_evidence(turing, "fp32") is Evidence.SIMILAR
    assert model.find_evidence(H100, "fp32") is Evidence.FIGURES
    assert model.calibrate(some, H100, np.ones(5)).find_evidence(H100, "fp32") is Evidence.MEASURED


def test_a_file_predicts_the_same(family: Family, model: CorrectedTimeModel[Any], tmp_path: Path) -> None:
    calls, path = family.draw(50, 9), tmp_path / "model.safetensors"
    known = model.calibrate(calls[:9], H100, np.full(9, 1e-3)).with_levels({family.model.kind: 0.1})
    save_model(path, known, {})
    read, _ = load_model(path, [family.model], remedy="fit it again")
    for device in (T4, H100, BARE):
        assert read.predict(calls, device) == pytest.approx(known.predict(calls, device), rel=1e-4)


@pytest.mark.parametrize("device", [T4, A100, H100, get_device("MI300X"), BARE], ids=lambda device: device.name)
def test_no_time_is_shorter_than_the_device_allows(
    family: Family, model: CorrectedTimeModel[Any], device: Device
) -> None:
    calls = family.draw(300, 3)
    fast = model.with_levels(dict.fromkeys(["pass", "convolution"], -5.0))
    figures = model.build_figures(calls, device)
    assert np.all(fast.predict(calls, device) >= figures.find_least())
    if isinstance(figures.find_least(), np.ndarray) and family.model is PassTimeModel:
        moved = np.array([call.bytes_moved for call in calls])
        large = moved > 5 * max(device.l2_bytes, 2**20)
        assert np.all(fast.predict(calls, device)[large] >= moved[large] / device.bandwidth_bytes)


def test_untrained_models_predict_by_figures_alone(family: Family) -> None:
    calls = family.draw(50, 3)
    seconds = family.model().predict(calls, BARE)
    assert np.all((seconds > 1e-7) & (seconds < 10))
    assert len(family.model().predict([], BARE)) == 0


def test_levels_multiply_the_calls_of_their_names() -> None:
    passes = PassTimeModel()
    calls = [relu(10**7), relu(10**7, kind="batch_norm"), relu(10**7, kind="batch_norm", backward=True)]
    plain = passes.predict(calls, H100)
    moved = passes.with_levels({"pass": 0.1, "pass/batch_norm/backward": 0.2, "pass/normalization": 0.4})
    assert np.log(moved.predict(calls, H100) / plain) == pytest.approx([0.1, 0.5, 0.7])


def test_levels_of_convolutions_name_type_layout_and_class() -> None:
    model = ConvolutionTimeModel()
    depthwise = convolve(groups=64, precision="fp16")
    calls = [
        convolve(precision="fp16"),
        convolve(precision="fp16", channels_last=True),
        depthwise,
        convolve(precision="tf32"),
    ]
    levels = {"convolution/fp16/NCHW": 0.3, "convolution/fp16/depthwise": 0.2, "convolution/tf32": 0.5}
    ratio = np.log(model.with_levels(levels).predict(calls, A100) / model.predict(calls, A100))
    assert ratio == pytest.approx([0.3, 0.0, 0.5, 0.5])


def test_single_precision_is_tf32_where_the_device_has_it_only() -> None:
    model, call = ConvolutionTimeModel(), convolve(128, 256, 256, 28, kernel=(1, 1), precision="tf32")
    plain = replace(call, precision="fp32")
    assert model.predict([call], A100)[0] < 0.6 * model.predict([plain], A100)[0]
    assert model.predict([call], T4)[0] == model.predict([plain], T4)[0]


def test_half_precision_wants_channels_last() -> None:
    model, call = ConvolutionTimeModel(), convolve(128, 256, 256, 28, precision="fp16")
    last = replace(call, channels_last=True)
    assert model.predict([last], A100)[0] < model.predict([call], A100)[0]


def test_more_work_takes_longer() -> None:
    convolutions = [convolve(images) for images in (8, 32, 128, 512)]
    assert np.all(np.diff(ConvolutionTimeModel().predict(convolutions, A100)) > 0)
    passes = [relu(10**power) for power in range(3, 10)]
    assert np.all(np.diff(PassTimeModel().predict(passes, A100)) > 0)


def test_what_fits_into_the_cache_is_faster() -> None:
    small, large = PassTimeModel().predict([relu(10**6), relu(10**8)], A100)
    assert large > 120 * small


def test_equal_calls_are_computed_once() -> None:
    calls = [relu(10**6), relu(10**7)] * 1000
    seconds = PassTimeModel().predict(calls, A100)
    assert seconds[::2] == pytest.approx(seconds[0])
    assert seconds[1::2] == pytest.approx(seconds[1])
