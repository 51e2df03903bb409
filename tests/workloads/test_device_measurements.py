"""A device is learned within a budget, and nothing is measured twice."""

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
from foretell.workloads.device_measurements import measure_networks as learn_device
from foretell.workloads.measurement_files import Profile
from foretell.workloads.mixed_networks import sample_mixed_network, sample_training_network
from foretell.workloads.network_layers import NetworkSpec, Sampler
from foretell.workloads.random_networks import sample_network
from foretell.workloads.step_options import StepOptions


@pytest.fixture(autouse=True)
def _known_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.workloads.device_measurements.measure_speed", lambda _device: 1e9)


def measure_tiny(order: NetworkOrder) -> Profile:
    """Only networks without images, few steps, here."""
    return measure_network(replace(order, number=2 * (11 * order.number + 1), seconds=0.0))


learn = partial(learn_device, measure=measure_tiny)


class Enough(Exception):  # noqa: N818
    pass


def stop_after(count: int) -> object:
    def tell(known: MeasuredNetworks) -> None:
        if known.tried >= count:
            raise Enough

    return tell


def test_what_was_measured_is_kept_when_it_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "new" / "device.jsonl"
    with pytest.raises(Enough):
        learn(path, on_progress=stop_after(2))  # type: ignore[arg-type]
    assert DeviceFile(path).read().tried == 2
    with pytest.raises(Enough):
        learn(path, on_progress=stop_after(3))  # type: ignore[arg-type]
    known = DeviceFile(path).read()
    assert sorted(known.profiles) == [0, 1, 2]
    assert [step.workload.name for step in known.steps] == ["perceptron-0-1", "perceptron-0-12", "perceptron-0-23"]
    assert known.seconds > 0


def test_a_spent_budget_measures_nothing(tmp_path: Path) -> None:
    path = tmp_path / "device.jsonl"
    known = learn(path, budget_s=0.01)
    assert known.tried == 1
    before = path.read_text()
    assert learn(path, budget_s=0.01).tried == 1
    assert path.read_text() == before


def test_a_line_that_was_cut_short_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "device.jsonl"
    learn(path, budget_s=0.01)
    path.write_text(path.read_text()[:-200])
    with pytest.raises(Enough):
        learn(path, on_progress=stop_after(2))  # type: ignore[arg-type]
    assert sorted(DeviceFile(path).read().profiles) == [0, 1]


def test_a_network_that_takes_too_long_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.workloads.device_measurements.LONGEST_S", 0.0)
    path = tmp_path / "device.jsonl"
    with pytest.raises(Enough):
        learn(path, on_progress=stop_after(2))  # type: ignore[arg-type]
    assert DeviceFile(path).read().profiles == {}
    assert "Use a smaller batch" in json.loads(path.read_text().splitlines()[1])["skipped"]


@pytest.mark.parametrize("change", [{"threads": 99}, {"device": "T4"}, {"torch": "1.0"}, {"version": 7}, {"seed": 5}])
def test_times_of_another_device_are_not_mixed_in(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "device.jsonl"
    learn(path, budget_s=0.01)
    head, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(head), **change}), *rest]) + "\n")
    with pytest.raises(ImportDataError, match="Name another file"):
        learn(path)


@pytest.mark.parametrize("text", ["{}\n", "[]\n", '{"format": "foretell device"}\n{"number": "one"}\n'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "device.jsonl"
    path.write_text(text)
    with pytest.raises(ImportDataError, match="Name another file"):
        learn(path)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        learn(tmp_path / "file" / "device.jsonl")


@pytest.mark.parametrize("number", range(22))
def test_networks_are_the_same_each_time_and_can_be_captured(number: int) -> None:
    network, options = sample_training_network(number), StepOptions()
    first, second = (sample_training_network(number).build() for _ in range(2))
    assert [each.shape for each in first.parameters()] == [each.shape for each in second.parameters()]
    batch = choose_batch(network, options, Sampler(number), 1e9)
    assert batch == choose_batch(network, options, Sampler(number), 1e9) >= 2
    workload = capture(first, [build_input(network, 2)], options=StepOptions(loss=network.loss))
    assert workload.flops > 0
    assert {each.phase for each in workload.operators} == {"forward", "backward", "update"}


@pytest.mark.parametrize("draw", [sample_network, sample_mixed_network])
def test_other_seeds_draw_other_networks(draw: Callable[..., NetworkSpec]) -> None:
    assert draw(0, seed=1).build() is not None
    assert {draw(0, seed=seed).example for seed in range(5)} != {draw(0).example}


def test_mixed_networks_have_layers_of_all_families_and_come_every_second_time() -> None:
    assert [sample_training_network(number).name for number in range(4)] == [
        "plain-0-0",
        "mixed-0-0",
        "perceptron-0-1",
        "mixed-0-1",
    ]
    with torch.device("meta"):
        layers = [layer for number in range(60) for layer in sample_mixed_network(number).build().modules()]
    wanted = {nn.Linear, nn.LSTM, nn.GRU, nn.MultiheadAttention, nn.ConvTranspose2d, nn.Embedding, nn.MaxPool2d}
    assert wanted <= {type(layer) for layer in layers}
    assert any(isinstance(layer, nn.Conv2d) and layer.groups == layer.in_channels > 1 for layer in layers)


def test_threads_are_left_as_they_are(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    learn(tmp_path / "device.jsonl", budget_s=0.01)
    assert torch.get_num_threads() == before


ORDER = NetworkOrder(number=1, seed=0, flops_per_s=1e9, threads=1, device="cpu", seconds=0.0)


def end_at_once() -> None:
    os._exit(3)


def test_steps_are_measured_in_a_process_of_their_own() -> None:
    there, here = measure_in_process(ORDER), measure_network(ORDER)
    assert there.step.workload == here.step.workload
    assert there.facts["threads"] == "1"
    with pytest.raises(WorkloadError, match=r"exit code 3.*Use a smaller batch"):
        run_in_process(end_at_once)
    with pytest.raises(WorkloadError, match="T9"):
        run_in_process(get_device, "T9")
