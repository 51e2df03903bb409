"""NeuSight's steps are predicted without kernels of the GPUs that its authors leave out, next to its own errors."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks.gpus import neusight_rows, neusight_steps, protocol_kernels
from benchmarks.gpus.kernel_observations import Observation, build_pass
from benchmarks.gpus.step_labels import StepLabel
from benchmarks.gpus.whole_steps import StepCase

from foretell.core.devices import get_device
from foretell.steps._base import StepTimes

LEFT_OUT = ("H100", "H200", "L4", "A100-80", "A100-PCIe-80")
AMD = ("MI210", "MI355X")
KEPT = ("P4", "P100", "V100-PCIe-32", "T4", "A100-PCIe-40", "B200")


def test_the_devices_left_out_are_those_that_neusight_has_not_seen() -> None:
    for vendor, expected in (("NVIDIA", LEFT_OUT), ("AMD", (*LEFT_OUT, *AMD))):
        names = [name for name in (*LEFT_OUT, *AMD, *KEPT) if protocol_kernels.is_left_out(name, vendor=vendor)]
        assert names == list(expected)
    unseen = set(neusight_steps.DEVICES.values()) - set(neusight_steps.SEEN) - {"A100-40"}
    assert all(protocol_kernels.is_left_out(name, vendor=get_device(name).vendor) for name in unseen)


@pytest.mark.parametrize(("vendor", "also"), [("NVIDIA", AMD), ("AMD", ())])
def test_no_measurement_of_a_device_left_out_is_fitted(
    vendor: str, also: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (*LEFT_OUT, *AMD, *KEPT)
    fitted: dict[str, set[str]] = {}
    monkeypatch.setattr(protocol_kernels, "read_products", lambda: pd.DataFrame({"device": names}))
    monkeypatch.setattr(protocol_kernels, "read_observations", lambda: [_observe(name) for name in names])
    monkeypatch.setattr(protocol_kernels, "save_model", lambda *_given: None)
    monkeypatch.setattr(protocol_kernels, "fit_products", lambda rows: fitted.update(products=set(rows.device)))

    def fit_models(observations: list[Observation]) -> Any:
        fitted["passes"] = {one.device for one in observations}
        return SimpleNamespace(convolutions=None, passes=None)

    monkeypatch.setattr(protocol_kernels, "fit_models", fit_models)
    protocol_kernels._fit_products(vendor)
    protocol_kernels._fit_passes(vendor)
    assert fitted == {"products": {*KEPT, *also}, "passes": set(KEPT)}


def _observe(device: str) -> Observation:
    call = build_pass("gelu", 1000, 10, 8000)
    return Observation(calls=(call,), device=device, seconds=1e-5, source="neusight", label="gelu")


def test_models_are_fitted_again_only_if_code_or_tables_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol_kernels, "DATA", tmp_path)
    table = tmp_path / "ets" / "some.csv"
    table.parent.mkdir()
    names = []
    for text in ("a", "a", "ab"):
        table.write_text(text, encoding="utf-8")
        protocol_kernels._hash_inputs.cache_clear()
        names.append(protocol_kernels._find_file("product", "NVIDIA").name)
    protocol_kernels._hash_inputs.cache_clear()
    assert names[0] == names[1] != names[2]


@pytest.fixture
def _published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of two steps, the second one with fused operators."""
    text = "model_name,seqlen,batch,device,mode,option,neusight_all_e2e_latency\n"
    text += "gpt,512,2,NVIDIA_H100_80GB_HBM3,train,,900\ngpt,512,4,NVIDIA_H100_80GB_HBM3,train,fusion,1\n"
    (tmp_path / "e2e_measured_and_peer_predictions.csv").write_text(text, encoding="utf-8")
    monkeypatch.setattr(neusight_steps, "FOLDER", tmp_path)
    neusight_steps.find_published.cache_clear()
    yield
    neusight_steps.find_published.cache_clear()


@pytest.mark.usefixtures("_published")
def test_rows_are_split_by_what_neusight_has_seen_and_show_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = (_build_case("H100", 2, 0.8), _build_case("H100", 4, 0.7), _build_case("T4", 2, 0.9))
    monkeypatch.setattr(neusight_rows, "_build_protocol", lambda **_given: cases)
    rows = {row.group: row for row in neusight_rows.judge_neusight()}
    assert {name: row.cases for name, row in rows.items()} == {
        "NVIDIA": 3,
        "NVIDIA, seen by NeuSight": 1,
        "NVIDIA, unseen": 2,
        "H100": 2,
        "T4": 1,
        "NVIDIA, without kernels of AMD": 3,
    }
    assert rows["NVIDIA, unseen"].mean == pytest.approx(25.0)
    assert rows["NVIDIA, unseen"].note == "NeuSight: mean 10.0, median 10.0, of 1"
    assert rows["T4"].note == ""


def _build_case(device: str, batch: int, predicted_s: float) -> StepCase:
    given: dict[str, Any] = {"source": "neusight", "model": "gpt 512", "family": "gpt", "precision": "fp32"}
    label = StepLabel(**given, device=device, mode="training", batch=batch, seconds=1.0, read=lambda: None)
    times = StepTimes(iteration_s=predicted_s, kernel_s=np.zeros(1), gap_s=np.zeros(1))
    return StepCase(label=label, device=get_device(device), times=times, groups={}, waiting_s=0.0)
