"""A device is calibrated by measured kernels, in a file that continues and can be shared."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from foretell.core.devices import get_device
from foretell.core.errors import ImportDataError, NotFoundError, OutputError, SpecError
from foretell.steps.calibration import (
    LEAST_KERNELS,
    LEAST_OF_A_TYPE,
    build_calibrated_model,
    calibrate_device,
    calibrate_models,
    find_calibration,
    find_path,
    measure_kernels,
)
from foretell.steps.kernels.calibration_file import Calibration, CalibrationFile, MeasuredKernel, load_calibration
from foretell.steps.kernels.calibration_kernels import Chosen, Pass
from foretell.steps.kernels.kernel_calls import Product
from foretell.steps.kernels.shipped_models import load_kernel_models
from foretell.steps.step_predictor import find_step_predictor

H100 = get_device("H100")
CPU = torch.device("cpu")
CHOSEN = [Product(rows=size, columns=16, inner=16, precision="bf16") for size in range(8, 8 * (LEAST_KERNELS + 2), 8)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.steps.kernels.calibration_runs._SPAN_S", 1e-5)
    monkeypatch.setattr("foretell.steps.kernels.calibration_runs.measure_host", lambda _device: 1.25)


@pytest.fixture
def as_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """This CPU in the place of an H100, with few small kernels."""
    monkeypatch.setattr("foretell.steps.calibration.find_gpu", lambda: (CPU, "NVIDIA H100 80GB HBM3"))
    monkeypatch.setattr("foretell.steps.calibration.choose_kernels", lambda _device: tuple(CHOSEN))


def build_law(factor: float, *, count: int = 60) -> Calibration:
    """Kernels of an H100 that take so many times what the models expect."""
    calls = [
        Product(rows=rows, columns=columns, inner=1024, precision="bf16")
        for rows in (128, 512, 1024, 2048, 4096, 8192)
        for columns in range(512, 512 * (count // 6 + 1), 512)
    ]
    seconds = load_kernel_models()["product"].predict(calls, H100) * factor
    kernels = [MeasuredKernel(call=call, seconds=float(each)) for call, each in zip(calls, seconds, strict=True)]
    return Calibration(device=H100, kernels=tuple(kernels), host_ratio=2.0)


def test_what_was_measured_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "H100.calibration.jsonl"
    chosen: list[Chosen] = [CHOSEN[0], Pass(kind="relu", rows=16, row=16, backward=True)]
    known, left = measure_kernels(path, H100, CPU, budget_s=100, chosen=chosen)
    assert left == 0
    read = load_calibration(path)
    assert read.device == H100
    assert [each.call for each in read.kernels] == [each.call for each in known.kernels]
    assert [each.seconds for each in read.kernels] == pytest.approx([each.seconds for each in known.kernels], rel=1e-5)
    assert read.host_ratio == known.host_ratio == 1.25
    assert read.find_worst("cores") >= 1
    assert read.conditions == known.conditions
    assert read.facts["torch"] == str(torch.__version__)
    assert [each.kind for each in read.kernels] == ["product", "memory_pass"]
    assert path.read_bytes().isascii()


def test_an_interrupted_measurement_continues(tmp_path: Path) -> None:
    path, seen = tmp_path / "H100.calibration.jsonl", []

    def stop(known: Calibration, count: int) -> None:
        seen.append((len(known.kernels), count))
        if len(known.kernels) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_kernels(path, H100, CPU, budget_s=100, chosen=CHOSEN, on_progress=stop)
    with path.open("ab") as file:
        file.write(b'{"key":"cut o')  # as if the machine had failed
    known, left = measure_kernels(path, H100, CPU, budget_s=100, chosen=CHOSEN)
    assert seen == [(1, len(CHOSEN)), (2, len(CHOSEN)), (3, len(CHOSEN))]
    assert (len(known.kernels), left) == (len(CHOSEN), 0)
    assert len({each.call for each in load_calibration(path).kernels}) == len(CHOSEN)


def test_the_budget_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "H100.calibration.jsonl"
    known, left = measure_kernels(path, H100, CPU, budget_s=1e-9, chosen=CHOSEN)
    assert len(known.kernels) + left == len(CHOSEN)
    assert len(known.kernels) <= 1
    more, left = measure_kernels(path, H100, CPU, budget_s=100, chosen=CHOSEN)
    assert (len(more.kernels), left) == (len(CHOSEN), 0)


def test_two_processes_do_not_measure_at_once(tmp_path: Path) -> None:
    path = tmp_path / "H100.calibration.jsonl"
    measure_kernels(path, H100, CPU, budget_s=1e-9, chosen=CHOSEN)
    with CalibrationFile(path).locked(), pytest.raises(OutputError, match="another 'foretell device calibrate'"):
        measure_kernels(path, H100, CPU, budget_s=100, chosen=CHOSEN)


def test_a_kernel_that_fails_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("foretell.steps.kernels.calibration_runs._time", fail)
    path = tmp_path / "H100.calibration.jsonl"
    known, left = measure_kernels(path, H100, CPU, budget_s=100, chosen=CHOSEN[:3])
    assert (known.kernels, known.skipped, left) == ((), 3, 0)
    assert load_calibration(path).skipped == 3


# Using it


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.6])
def test_models_know_the_measured_kernels(factor: float) -> None:
    law = build_law(factor)
    models = load_kernel_models()
    calls, seconds = law.select("product")
    predicted = calibrate_models(models, law)["product"].predict(calls, H100)
    assert np.median(np.abs(np.log(predicted / seconds))) < 0.05
    others = [
        replace(call, rows=call.rows * 3 // 2) for call in calls if isinstance(call, Product)
    ]  # of sizes that were not measured
    expected = models["product"].predict(others, H100) * factor
    predicted = calibrate_models(models, law)["product"].predict(others, H100)
    assert np.median(np.abs(np.log(predicted / expected))) < 0.1


def test_other_devices_and_kinds_are_as_before() -> None:
    law, models = build_law(1.6), load_kernel_models()
    calibrated = calibrate_models(models, law)
    assert calibrated["convolution"] is models["convolution"]
    calls, _ = law.select("product")
    other = get_device("T4")
    calls = [replace(call, precision="fp16") for call in calls if isinstance(call, Product)]
    assert calibrated["product"].predict(calls, other) == pytest.approx(
        models["product"].predict(calls, other), rel=0.1
    )


def test_a_few_kernels_of_a_type_do_not_replace_what_is_known() -> None:
    law, models = build_law(1.6), load_kernel_models()
    few = replace(law, kernels=law.kernels[: LEAST_OF_A_TYPE - 1])
    assert calibrate_models(models, few)["product"] is models["product"]
    enough = replace(law, kernels=law.kernels[:LEAST_OF_A_TYPE])
    assert calibrate_models(models, enough)["product"] is not models["product"]


def test_the_host_is_as_it_was_measured() -> None:
    model = build_calibrated_model(build_law(1.0))
    assert np.exp(model.host_shift_) == pytest.approx(2.0)
    wild = build_calibrated_model(replace(build_law(1.0), host_ratio=1e6))
    assert wild.host_shift_ == 1.5


@pytest.mark.usefixtures("as_gpu")
def test_a_calibration_made_here_is_used(tmp_path: Path) -> None:
    plain = find_step_predictor("H100", learned=tmp_path / "devices").model
    found = calibrate_device(folder=tmp_path)
    assert (found.device.name, found.left) == ("H100", 0)
    assert found.path == find_path("H100", tmp_path / "devices")
    used = find_step_predictor("nvidia h100 80gb hbm3", learned=tmp_path / "devices").model
    calls, _ = found.calibration.select("product")
    assert used.models["product"].find_evidence(H100, "bf16") == "measured"  # type: ignore[attr-defined]
    before, after = (each.models["product"].predict(calls, H100) for each in (plain, used))  # type: ignore[attr-defined]
    assert not np.allclose(before, after)
    assert find_step_predictor("A100", learned=tmp_path / "devices").model.models == plain.models  # type: ignore[attr-defined]


@pytest.mark.usefixtures("as_gpu")
def test_a_calibration_can_be_taken_elsewhere(tmp_path: Path) -> None:
    found = calibrate_device(folder=tmp_path / "there", output=tmp_path / "h100.jsonl")
    given = load_calibration(found.path)
    assert find_calibration("H100", tmp_path / "here") is None
    predictor = find_step_predictor("H100", learned=tmp_path / "here", calibrations=[given])
    assert predictor.model.models["product"].find_evidence(H100, "bf16") == "measured"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("as_gpu")
def test_a_gpu_that_is_not_in_the_catalogue_needs_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.steps.calibration.find_gpu", lambda: (CPU, "NVIDIA X9000"))
    with pytest.raises(NotFoundError, match=r"'NVIDIA X9000'.*--device my-gpu\.toml"):
        calibrate_device(folder=tmp_path)
    (tmp_path / "x9000.toml").write_text('like = "H100"\nunits = 200\n')
    assert calibrate_device(name=str(tmp_path / "x9000.toml"), folder=tmp_path).device.units == 200


@pytest.mark.usefixtures("as_gpu")
def test_a_budget_for_few_kernels_is_too_short(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"budget: found 1e-09 s, enough for \d kernels; expected .* for example 2m"):
        calibrate_device(budget_s=1e-9, folder=tmp_path)
    assert find_calibration("H100", tmp_path / "devices") is None  # too few to be used


def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SpecError, match=r"device: found no GPU here; expected a machine with a GPU"):
        calibrate_device(folder=tmp_path)


# Files that somebody else may have written


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no calibration named .*none\.jsonl.*foretell device calibrate"):
        load_calibration(tmp_path / "none.jsonl")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.steps.kernels.calibration_file._MOST_BYTES", 10)
    (tmp_path / "large.jsonl").write_text("{}" * 100)
    with pytest.raises(ImportDataError, match="200 bytes; a calibration has 10 at most"):
        load_calibration(tmp_path / "large.jsonl")


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, lambda line: line.pop("format")),
        (0, lambda line: line.update(version=99)),
        (0, lambda line: line["device"].update(peak_flops=-1.0)),
        (0, lambda line: line.update(facts=3)),
        (1, lambda line: line.update(host_ratio="fast")),
        (-1, lambda line: line.update(conditions={"cores": "many"})),
        (2, lambda line: line.update(seconds=0)),
        (2, lambda line: line.update(seconds=float("nan"))),
        (2, lambda line: line.update(kind="os.system")),
        (2, lambda line: line["call"].update(rows=-5)),
        (2, lambda line: line["call"].pop("rows")),
        (2, lambda line: line.update(call=[1, 2])),
    ],
)
def test_a_file_that_cannot_be_used_is_one_message(
    tmp_path: Path, place: int, change: Callable[[dict[str, object]], object]
) -> None:
    path = tmp_path / "H100.calibration.jsonl"
    measure_kernels(path, H100, CPU, budget_s=100, chosen=CHOSEN[:2])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines[place])
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    with pytest.raises(ImportDataError, match="calibrat"):
        load_calibration(path)
