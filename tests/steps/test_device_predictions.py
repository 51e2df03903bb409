"""Steps on many devices: which are predicted, in which order, and which are left out."""

from pathlib import Path

import pytest

import foretell
from foretell.core import devices
from foretell.core.errors import NotFoundError, SpecError
from foretell.steps import prediction_api
from foretell.steps.api import read_workload
from foretell.steps.step_results import StepPredictions

NET = """
from torch import nn


def build_model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))


def build_text_model():
    return nn.Sequential(nn.Embedding(100, 16), nn.Flatten(), nn.Linear(16 * 32, 4))
"""
INPUTS = ["8,64"]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many_net.py").write_text(NET)
    return "many_net:build_model"


def predict(source: str, *names: str, **others: object) -> StepPredictions:
    values = {"method": "roofline", **others}
    return foretell.predict_workload(source, INPUTS, devices=names, **values)  # type: ignore[arg-type]


def test_devices_are_in_the_order_of_the_request(source: str) -> None:
    found = predict(source, "H100", "T4", "h100", "V100", batches=[8, 16])
    assert [(each.device, each.workload.batch) for each in found] == [
        (name, batch) for name in ("H100", "T4", devices.get_device("V100").name) for batch in (8, 16)
    ]


def test_one_device_is_given_as_before(source: str) -> None:
    (one,) = foretell.predict_workload(source, INPUTS, device="T4", method="roofline")
    assert one.estimate.iteration == predict(source, "T4")[0].estimate.iteration


def test_all_devices_are_ranked_by_speed(source: str) -> None:
    found = predict(source, "all")
    assert {each.device for each in found} == {device.name for device in devices.list_devices()}
    rates = [each.examples_per_s for each in found]
    assert rates == sorted(rates, reverse=True)


def test_the_step_is_captured_once(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(
        prediction_api, "read_workload", lambda *given, **named: calls.append(1) or read_workload(*given, **named)
    )
    predict(source, "all", batches=[8, 16])
    assert len(calls) == 2  # one for each batch


def test_devices_without_the_precision_are_left_out(source: str) -> None:
    options = foretell.StepOptions(precision="bf16")
    found = predict(source, "T4", "A100", "V100", options=options)
    assert [each.device for each in found] == [devices.get_device("A100").name]
    assert [each.device for each in found.left_out] == ["T4", devices.get_device("V100").name]
    assert {each.reason for each in found.left_out} == {"no bf16, only fp32 and fp16"}


def test_a_single_device_without_the_precision_is_refused(source: str) -> None:
    with pytest.raises(SpecError, match=r"bf16 on T4.*fp32 or fp16"):
        predict(source, "T4", options=foretell.StepOptions(precision="pure-bf16"))
    with pytest.raises(SpecError, match=r"P4, V100.*no bf16"):
        predict(source, "P4", "V100", options=foretell.StepOptions(precision="bf16"))


def test_devices_without_a_model_of_the_method_are_left_out(source: str) -> None:
    found = predict(source, "T4", "H100", method="totals")
    assert [each.device for each in found] == ["T4"]
    assert [each.reason for each in found.left_out] == ["no totals model of it"]
    with pytest.raises(NotFoundError, match="device learn --method totals"):
        predict(source, "H100", method="totals")


def test_an_unknown_name_is_an_error_also_among_others(source: str) -> None:
    with pytest.raises(NotFoundError, match="H1000"):
        predict(source, "T4", "H1000")
    with pytest.raises(SpecError, match="no device"):
        predict(source)


def test_a_device_may_be_given_by_its_figures(source: str) -> None:
    own = devices.Device(name="mine", kind="gpu", peak_flops=1e12, bandwidth_bytes=1e11, units=10, memory_bytes=2**30)
    found = foretell.predict_workload(source, INPUTS, devices=[own, "T4"], method="roofline")
    assert [each.device for each in found] == ["mine", "T4"]
    assert found[0].examples_per_s < found[1].examples_per_s


def test_tokens_are_counted_for_sequences_only(source: str) -> None:
    (text,) = foretell.predict_workload("many_net:build_text_model", ["8,32:int64:100"], device="T4", method="roofline")
    assert text.tokens_per_s == pytest.approx(32 * text.examples_per_s)
    assert predict(source, "T4")[0].tokens_per_s is None


@pytest.mark.parametrize(
    ("method", "device"),
    [("totals", "T4"), ("totals", "2080Ti"), ("regression", "T4"), ("regression", "2080Ti"), ("ets", "T4")],
)
def test_methods_of_the_literature_have_shipped_models(source: str, method: str, device: str) -> None:
    (found,) = predict(source, device, method=method)
    assert found.method == method
    assert found.estimate.iteration.low < found.estimate.iteration.value < found.estimate.iteration.high
    assert [warning.code for warning in found.warnings] == ["limited-model"]  # the recorder of its traces


def test_the_published_method_predicts_more_for_a_larger_batch(source: str) -> None:
    small, large = predict(source, "T4", method="ets", batches=[8, 65536])
    assert small.estimate.busy_s < large.estimate.busy_s
