"""Networks are measured within a budget, and none is measured twice."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from foretell.core.devices import get_device
from foretell.core.errors import ImportDataError, OutputError, WorkloadError
from foretell.workloads.capture import capture
from foretell.workloads.device_measurements import (
    DeviceFile,
    MeasuredNetworks,
    NetworkOrder,
    build_input,
    choose_batch,
    measure_in_process,
    measure_network,
    run_in_process,
)
from foretell.workloads.device_measurements import measure_networks as measure_any_networks
from foretell.workloads.measurement_files import Profile
from foretell.workloads.mixed_networks import sample_mixed_network, sample_training_network
from foretell.workloads.network_layers import NetworkSpec, Sampler
from foretell.workloads.random_networks import sample_network
from foretell.workloads.step_options import StepOptions

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _known_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.workloads.device_measurements.measure_speed", lambda _device: 1e9)


def measure_tiny(order: NetworkOrder) -> Profile:
    """Measure a perceptron with few steps in this process."""
    return measure_network(replace(order, number=2 * (11 * order.number + 1), seconds=0.0))


measure_networks = partial(measure_any_networks, measure=measure_tiny)


@pytest.fixture(scope="module")
def measured_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with one measured network."""
    path = tmp_path_factory.mktemp("measured") / "device.jsonl"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("foretell.workloads.device_measurements.measure_speed", lambda _device: 1e9)
        measure_networks(path, budget_s=0.01)
    return path.read_text()


@pytest.fixture
def measured(tmp_path: Path, measured_text: str) -> Path:
    """A copy of that file."""
    path = tmp_path / "device.jsonl"
    path.write_text(measured_text)
    return path


class Enough(Exception):  # noqa: N818
    pass


def stop_after(count: int) -> Callable[[MeasuredNetworks], None]:
    def check(known: MeasuredNetworks) -> None:
        if known.tried >= count:
            raise Enough

    return check


def test_an_interrupted_measurement_is_kept_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "new" / "device.jsonl"
    with pytest.raises(Enough):
        measure_networks(path, on_progress=stop_after(2))
    assert DeviceFile(path).read().tried == 2
    with pytest.raises(Enough):
        measure_networks(path, on_progress=stop_after(3))
    known = DeviceFile(path).read()
    assert sorted(known.profiles) == [0, 1, 2]
    assert [step.workload.name for step in known.steps] == ["perceptron-0-1", "perceptron-0-12", "perceptron-0-23"]
    assert known.seconds > 0


def test_a_used_budget_measures_nothing(measured: Path) -> None:
    before = measured.read_text()
    assert measure_networks(measured, budget_s=1e-6).tried == 1
    assert measured.read_text() == before


def test_a_line_that_was_cut_off_is_measured_again(measured: Path) -> None:
    measured.write_text(measured.read_text()[:-200])
    with pytest.raises(Enough):
        measure_networks(measured, on_progress=stop_after(1))
    assert sorted(DeviceFile(measured).read().profiles) == [0]


def test_a_network_that_takes_too_long_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.workloads.device_measurements.LONGEST_S", 0.0)
    path = tmp_path / "device.jsonl"
    with pytest.raises(Enough):
        measure_networks(path, on_progress=stop_after(2))
    assert DeviceFile(path).read().profiles == {}
    assert "Use a smaller batch" in json.loads(path.read_text().splitlines()[1])["skipped"]


@pytest.mark.parametrize("change", [{"threads": 99}, {"device": "T4"}, {"torch": "1.0"}, {"version": 7}, {"seed": 5}])
def test_times_of_another_device_are_refused(measured: Path, change: dict[str, object]) -> None:
    header, *rest = measured.read_text().splitlines()
    measured.write_text("\n".join([json.dumps({**json.loads(header), **change}), *rest]) + "\n")
    with pytest.raises(ImportDataError, match="Use another name"):
        measure_networks(measured)


@pytest.mark.parametrize("text", ["{}\n", "[]\n", '{"format": "foretell device"}\n{"number": "one"}\n'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "device.jsonl"
    path.write_text(text)
    with pytest.raises(ImportDataError, match="Use another name"):
        measure_networks(path)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        measure_networks(tmp_path / "file" / "device.jsonl")


@pytest.mark.parametrize("number", range(22))
def test_networks_are_repeatable_and_can_be_captured(number: int) -> None:
    network = sample_training_network(number)
    with torch.device("meta"):
        first, second = (sample_training_network(number).build() for _ in range(2))
    assert [each.shape for each in first.parameters()] == [each.shape for each in second.parameters()]
    workload = capture(first, [build_input(network, 2)], options=StepOptions(loss=network.loss))
    assert workload.flops > 0
    assert {each.phase for each in workload.operators} == {"forward", "backward", "update"}


@pytest.mark.parametrize("number", range(4))
def test_the_batch_of_a_network_is_repeatable(number: int) -> None:
    network, options = sample_training_network(number), StepOptions()
    batches = {choose_batch(network, options, Sampler(number), 1e9) for _ in range(2)}
    assert len(batches) == 1
    assert min(batches) >= 2


@pytest.mark.parametrize("sample", [sample_network, sample_mixed_network])
def test_other_seeds_give_other_networks(sample: Callable[..., NetworkSpec]) -> None:
    with torch.device("meta"):
        assert sample(0, seed=1).build() is not None
    assert {sample(0, seed=seed).example for seed in range(5)} != {sample(0).example}


def test_every_second_network_is_mixed_and_has_layers_of_all_families() -> None:
    assert [sample_training_network(number).name for number in range(4)] == [
        "plain-0-0",
        "mixed-0-0",
        "perceptron-0-1",
        "mixed-0-1",
    ]
    with torch.device("meta"):
        layers = [layer for number in range(60) for layer in sample_mixed_network(number).build().modules()]
    expected = {nn.Linear, nn.LSTM, nn.GRU, nn.MultiheadAttention, nn.ConvTranspose2d, nn.Embedding, nn.MaxPool2d}
    assert expected <= {type(layer) for layer in layers}
    assert any(isinstance(layer, nn.Conv2d) and layer.groups == layer.in_channels > 1 for layer in layers)


def test_the_number_of_threads_is_restored(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    measure_networks(tmp_path / "device.jsonl", budget_s=0.01)
    assert torch.get_num_threads() == before


ORDER = NetworkOrder(number=1, seed=0, flops_per_s=1e9, threads=1, device="cpu", seconds=0.0)


def exit_at_once() -> None:
    os._exit(3)


def test_a_step_is_measured_in_its_own_process() -> None:
    there, here = measure_in_process(ORDER), measure_network(ORDER)
    assert there.step.workload == here.step.workload
    assert there.facts["threads"] == "1"
    with pytest.raises(WorkloadError, match=r"exit code 3.*Use a smaller batch"):
        run_in_process(exit_at_once)
    with pytest.raises(WorkloadError, match="T9"):
        run_in_process(get_device, "T9")
