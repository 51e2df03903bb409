"""Calibrating a device from the command line, and predictions that use it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.test_workload import MODEL, NET, assert_refused

from foretell.steps.kernels.kernel_calls import Product

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
CHOSEN = tuple(Product(rows=size, columns=16, inner=16, precision="fp32") for size in range(8, 8 * 30, 8))
PREDICT = ("workload", "predict", *MODEL)


@pytest.fixture
def run(tmp_path: Path, foretell: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line on a machine whose CPU takes the place of an H100."""
    (tmp_path / "net.py").write_text(NET)
    gpu = (torch.device("cpu"), "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr("foretell.steps.calibration.find_gpu", lambda: gpu)
    monkeypatch.setattr("foretell.steps.calibration.choose_kernels", lambda _device: CHOSEN)
    monkeypatch.setattr("foretell.steps.kernels.calibration_runs._SPAN_S", 1e-5)
    monkeypatch.setattr("foretell.steps.kernels.calibration_runs.measure_host", lambda _device: 1.25)
    return partial(foretell, folder=tmp_path)


def test_a_calibrated_device_is_predicted_by_what_was_measured(run: Run, tmp_path: Path) -> None:
    (before,) = run(*PREDICT, "--device", "H100", "--json").record
    done = run("device", "calibrate", "--budget", "1m", "--output", "h100.jsonl")
    assert done.code == 0, done.err
    for words in (f"H100: {len(CHOSEN)} kernels measured", f"{len(CHOSEN)} product", "1.25 times", "h100.jsonl"):
        assert words in " ".join(done.out.split())
    assert max(map(len, done.out.splitlines())) <= 100
    (after,) = run(*PREDICT, "--device", "H100", "--json").record
    assert after["iteration_s"]["value"] != before["iteration_s"]["value"]
    listed = {one["device"]["name"]: one["times"] for one in run("device", "list", "--json").record}
    assert (listed["H100"], listed["A100-80"]) == ("calibrated", "")
    (tmp_path / ".foretell/devices/H100.calibration.jsonl").unlink()
    (again,) = run(*PREDICT, "--device", "H100", "--json").record
    assert again["iteration_s"] == before["iteration_s"]
    (shared,) = run(*PREDICT, "--device", "H100", "--calibration", "h100.jsonl", "--json").record
    assert shared["iteration_s"] == after["iteration_s"]


def test_what_was_measured_is_a_record(run: Run) -> None:
    record = run("device", "calibrate", "--json").record
    assert (record["device"], record["kernels"], record["left"]) == ("H100", {"product": len(CHOSEN)}, 0)
    assert record["file"].endswith("H100.calibration.jsonl")
    assert record["host_ratio"] == 1.25


def test_after_an_interruption_it_says_how_to_continue(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("foretell.steps.calibration.measure_kernels", interrupt)
    outcome = run("device", "calibrate")
    assert outcome.code == 130
    assert "the same command continues" in outcome.err


def test_without_a_gpu_it_says_so(foretell: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert_refused(foretell("device", "calibrate", folder=tmp_path), "no GPU here", "foretell device learn")


def test_mistakes_are_one_message(run: Run, tmp_path: Path) -> None:
    assert_refused(run("device", "calibrate", "--budget", "soon"), "--budget", "'soon'", "90s")
    assert_refused(run("device", "calibrate", "--device", "H1000"), "'H1000'", "Did you mean H100")
    assert run("device", "calibrate", "--output", "h100.jsonl").code == 0
    predict = partial(run, *PREDICT, "--calibration")
    assert_refused(predict("none.jsonl", "--device", "H100"), "none.jsonl", "foretell device calibrate")
    assert_refused(predict("net.py", "--device", "H100"), "net.py", "foretell device calibrate")
    assert_refused(predict("h100.jsonl", "--device", "A100"), "one of H100", "one of A100-80")
    refused = predict("h100.jsonl", "--device", "H100", "--method", "roofline")
    assert_refused(refused, "calibration", "method 'roofline'", "'kernels'")
