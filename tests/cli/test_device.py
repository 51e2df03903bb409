"""Devices from the command line: known ones are listed, the one at hand is learned, and steps are told for it."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.test_workload import MODEL, NET, assert_refused

from foretell.workloads.device_measurements import MeasuredNetworks, NetworkOrder, measure_network, measure_networks
from foretell.workloads.measurement_files import Profile

Run = Callable[..., Any]

NETWORKS = 5
PREDICT = ("workload", "predict", *MODEL)


def measure_tiny(order: NetworkOrder) -> Profile:
    """Only networks without images, few steps, here."""
    return measure_network(replace(order, number=10 * order.number + 1, seconds=0.0))


class Enough(Exception):  # noqa: N818
    pass


def stop(known: MeasuredNetworks) -> None:
    if len(known.profiles) >= NETWORKS:
        raise Enough


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which small networks were measured, but nothing was learned yet."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "net.py").write_text(NET)
    path, device = folder / ".foretell/devices/cpu.jsonl", torch.device("cpu")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("foretell.workloads.device_measurements.measure_speed", lambda _device: 1e9)
        with pytest.raises(Enough):
            measure_networks(path, device=device, measure=measure_tiny, on_progress=stop)
    return folder


@pytest.fixture(scope="module")
def run(measured: Path, foretell: Run) -> Iterator[Run]:
    """The command line there, on a machine without an accelerator."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("torch.cuda.is_available", lambda: False)
        yield partial(foretell, folder=measured)


@pytest.fixture(scope="module")
def learned(run: Run) -> Any:
    """That device, learned from what was measured: the budget is spent."""
    outcome = run("device", "measure_networks", "--budget", "1ms", "--json")
    assert outcome.code == 0, outcome.err
    return outcome.record


def test_known_devices_are_listed(run: Run, learned: Any) -> None:
    assert learned["device"]["name"] == "cpu"
    text = run("device", "list").out
    assert "foretell device measure_networks" in text
    assert max(map(len, text.splitlines())) <= 100
    times = {one["device"]["name"]: one["times"] for one in run("device", "list", "--json").record}
    assert times["cpu"] == "learned"
    assert (times["T4"], times["2080Ti"]) == ("shipped", "shipped")
    assert times["H100"] == ""


def test_a_device_is_learned_from_what_was_measured(learned: Any, measured: Path) -> None:
    assert (learned["networks"], learned["profiles"]) == (NETWORKS, 0)
    assert Path(learned["file"]).is_relative_to(measured / ".foretell" / "devices")


def test_profiles_of_ones_own_are_learned_from_too(measured: Path, tmp_path: Path, foretell: Run) -> None:
    folder = shutil.copytree(measured, tmp_path / "copy", ignore=shutil.ignore_patterns("profiles"))
    threads = str(torch.get_num_threads())
    profiled = foretell("workload", "profile", *MODEL, "--seconds", "1ms", "--json", folder=folder).record
    assert profiled["facts"]["threads"] == threads
    outcome = foretell("device", "measure_networks", "--budget", "1ms", folder=folder)
    assert outcome.code == 0, outcome.err
    assert f"learned from {NETWORKS} networks and 1 profile of yours" in outcome.out


@pytest.mark.parametrize("device", ["cpu", "T4", "Tesla T4"])
def test_a_step_is_told(run: Run, learned: Any, device: str) -> None:
    (answer,) = run(*PREDICT, "--device", device, "--level", "80%", "--rows", "3", "--json").record
    iteration = answer["iteration_s"]
    assert 0 < iteration["low"] <= iteration["value"] <= iteration["high"]
    assert iteration["level"] == pytest.approx(0.8)
    assert sum(answer["phases_s"].values()) == pytest.approx(iteration["value"], rel=1e-6)
    assert answer["busy_s"] + answer["overhead_s"] == pytest.approx(iteration["value"], rel=1e-6)
    assert answer["examples_per_s"] == pytest.approx(8 / iteration["value"])
    assert len(answer["costly"]) == 3


def test_a_step_is_told_to_people(run: Run, learned: Any) -> None:
    outcome = run(*PREDICT, "--device", "cpu")
    assert outcome.code == 0, outcome.err
    for word in ("Iteration", "Forward", "Backward", "Update", "Device busy", "Framework overhead", "cost most"):
        assert word in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_several_batches_are_a_curve(run: Run, learned: Any, measured: Path) -> None:
    outcome = run(*PREDICT, "--device", "cpu", "--batch", "4, 512,4", "--plot", "new/curve.svg", "--json")
    assert outcome.code == 0, outcome.err
    assert [answer["batch"] for answer in outcome.record] == [4, 512]
    few, many = (answer["iteration_s"]["value"] for answer in outcome.record)
    assert few < many
    assert (measured / "new" / "curve.svg").read_text().startswith("<?xml")
    assert "Examples/s" in run(*PREDICT, "--device", "cpu", "--batch", "4,512").out


def test_a_profile_brings_the_answer_closer(run: Run, learned: Any) -> None:
    measured = run("workload", "profile", *MODEL, "--seconds", "20ms", "--json").record
    (plain,) = run(*PREDICT, "--device", "cpu", "--json").record
    (held,) = run(*PREDICT, "--device", "cpu", "--profile", measured["file"], "--json").record
    truth = measured["iteration_s"]
    off, still_off = (abs(answer["iteration_s"]["value"] - truth) for answer in (plain, held))
    assert still_off <= max(off, 0.2 * truth)


def test_profiles_of_other_models_and_devices_are_told(run: Run, learned: Any, measured: Path) -> None:
    other = ("net.py:build_model", "--set", "deep=true", "--input", "8,16", "--seconds", "1ms", "--output", "deep.json")
    assert run("workload", "profile", *other).code == 0
    (answer,) = run(*PREDICT, "--device", "cpu", "--profile", "deep.json", "--json").record
    assert any("may be of another model" in warning["text"] for warning in answer["warnings"])
    text = (measured / "deep.json").read_text()
    (measured / "t4.json").write_text(text.replace('"device": "cpu"', '"device": "Tesla T4"'))
    refused = run(*PREDICT, "--device", "cpu", "--profile", "t4.json")
    assert_refused(refused, "profile", "on Tesla T4", "measured on cpu", "foretell workload profile")


def test_interrupted_it_says_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("foretell.workloads.device_measurements.measure_networks", interrupt)
    outcome = run("device", "measure_networks")
    assert outcome.code == 130
    assert "the same command goes on" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--device T9", ["'T9'", "T4", "2080Ti", "foretell device measure_networks"]),
        ("--device cpu --batch 0", ["--batch", "'0'", "16,32,64"]),
        ("--device cpu --batch -8", ["--batch", "'-8'", "16,32,64"]),
        ("--device cpu --batch 8;16", ["--batch", "'8;16'", "16,32,64"]),
        ("--device cpu --batch 8,", ["--batch", "'8,'", "16,32,64"]),
        ("--device cpu --level 2", ["--level", "'2'", "5%"]),
        ("--device cpu --profile nowhere.json", ["nowhere.json", "foretell workload profile"]),
        ("--device cpu --profile net.py", ["net.py", "foretell workload profile"]),
        ("--device cpu --plot curve.pdf", ["curve.pdf", ".png"]),
        ("--device cpu --input 8,17", ["Check --input"]),
    ],
)
def test_a_mistake_is_one_message(run: Run, learned: Any, words: str, expected: list[str]) -> None:
    assert_refused(run(*PREDICT, *words.split()), *expected)


def test_a_budget_for_nothing_is_too_short(tmp_path: Path, foretell: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "foretell.workloads.device_measurements.measure_networks",
        lambda *_args, **_options: MeasuredNetworks(device="cpu"),
    )
    outcome = foretell("device", "measure_networks", "--budget", "10s", folder=tmp_path)
    assert_refused(outcome, "budget", "enough for 0 networks", "5m")


def test_times_of_another_device_are_not_mixed_in(measured: Path, tmp_path: Path, foretell: Run) -> None:
    kept = tmp_path / ".foretell" / "devices" / "cpu.jsonl"
    kept.parent.mkdir(parents=True)
    text = (measured / ".foretell/devices/cpu.jsonl").read_text()
    kept.write_text(text.replace('"torch":"', '"torch":"0.', 1))
    assert_refused(foretell("device", "measure_networks", folder=tmp_path), "cpu.jsonl", "torch")
