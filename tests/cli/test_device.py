"""Devices from the command line: known ones are listed, this machine is learned, and steps are predicted for it."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.test_workload import MODEL, NET, assert_refused

from foretell.steps.ets import EtsModel
from foretell.workloads.device_measurements import (
    DeviceFile,
    MeasuredNetworks,
    NetworkOrder,
    measure_network,
    measure_networks,
)
from foretell.workloads.measurement_files import Profile, save_profile

pytestmark = pytest.mark.slow

Run = Callable[..., Any]

NETWORKS = 5
PREDICT = ("workload", "predict", *MODEL)


def measure_tiny(order: NetworkOrder) -> Profile:
    """Measure a perceptron with few steps in this process."""
    return measure_network(replace(order, number=2 * (11 * order.number + 1), seconds=0.0))


class Enough(Exception):  # noqa: N818
    pass


def stop(known: MeasuredNetworks) -> None:
    if len(known.profiles) >= NETWORKS:
        raise Enough


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which small networks were measured, but no model was fitted yet."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "net.py").write_text(NET)
    path, device = folder / ".foretell/devices/cpu.jsonl", torch.device("cpu")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("foretell.workloads.device_measurements.measure_speed", lambda _device: 1e9)
        patched.setattr("foretell.measure.other_load.read_busy_s", lambda: 0.0)  # also where tests run side by side
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
    """That device, learned from these measurements: the budget is used."""
    outcome = run("device", "learn", "--budget", "1ms", "--json")
    assert outcome.code == 0, outcome.err
    return outcome.record


def test_known_devices_are_listed(run: Run, learned: Any) -> None:
    assert learned["device"]["name"] == "cpu"
    text = run("device", "list").out
    assert "foretell device learn" in text
    assert max(map(len, text.splitlines())) <= 100
    times = {one["device"]["name"]: one["times"] for one in run("device", "list", "--json").record}
    assert times["cpu"] == "learned"
    assert (times["T4"], times["2080Ti"]) == ("shipped", "shipped")
    assert times["H100"] == ""


def write_load(path: Path, busy: dict[int, float]) -> None:
    """Say that other processes used so many of two cores while each network was measured."""
    head, *lines = path.read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        facts = record["profile"]["facts"]
        record["profile"]["facts"] = facts | {
            "busy_cores": str(busy.get(record["number"], 0.0)),
            "cores": facts["threads"],
        }
    path.write_text("\n".join([head, *map(json.dumps, records)]) + "\n")


def test_what_a_busy_machine_measured_is_marked(measured: Path, tmp_path: Path, foretell: Run) -> None:
    folder = shutil.copytree(measured, tmp_path / "copy")
    write_load(folder / ".foretell/devices/cpu.jsonl", dict.fromkeys(range(2), 1.5))
    outcome = foretell("device", "learn", "--budget", "1ms", folder=folder)
    assert outcome.code == 0, outcome.err
    text = " ".join(outcome.out.split())
    threads = torch.get_num_threads()
    assert f"Other processes used 0.6 of {threads} cores while it was measured" in text
    assert f"times may be up to {0.6 / threads:.0%} too long. 2 networks of {NETWORKS} disturbed" in text
    (prediction,) = foretell(*PREDICT, "--device", "cpu", "--json", folder=folder).record
    assert any("too long" in warning["text"] for warning in prediction["warnings"])


def test_networks_that_were_disturbed_are_left_out_where_others_are_enough(
    measured: Path, tmp_path: Path, foretell: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(measured, tmp_path / "copy")
    write_load(folder / ".foretell/devices/cpu.jsonl", {0: 1.5})
    monkeypatch.setattr("foretell.steps.api.LEAST_NETWORKS", NETWORKS - 1)
    record = foretell("device", "learn", "--budget", "1ms", "--json", folder=folder).record
    assert (record["networks"], record["disturbed"], record["disturbed_used"]) == (NETWORKS - 1, 1, False)
    (prediction,) = foretell(*PREDICT, "--device", "cpu", "--json", folder=folder).record
    assert prediction["warnings"] == []


def test_a_device_is_shown_with_its_source(run: Run, learned: Any, measured: Path) -> None:
    shown = run("device", "show", "nvidia h100 80gb hbm3")
    assert shown.code == 0, shown.err
    for word in ("H100", "Hopper", "3,350 GB/s", "white paper", "Also known as"):
        assert word in shown.out
    record = run("device", "show", "h100", "--json").record
    assert record["precisions"] == ["fp32", "tf32", "fp16", "bf16", "fp8"]
    assert record["device"]["matrix_flops"]["fp8"] == pytest.approx(1978.9e12)
    assert run("device", "show", "T4", "--json").record["times"] == "shipped"
    assert run("device", "show", "cpu", "--json").record["times"] == "learned"
    (measured / "fast.toml").write_text('like = "H100"\nbandwidth = 4e12\n')
    assert run("device", "show", "fast.toml", "--json").record["device"]["bandwidth_bytes"] == 4e12


def test_a_device_that_cannot_be_shown_is_explained(run: Run, measured: Path) -> None:
    assert_refused(run("device", "show", "H1000"), "'H1000'", "Did you mean H100", "foretell device list")
    assert_refused(run("device", "show", "none.toml"), "none.toml", "bandwidth =")
    (measured / "bad.toml").write_text("bf16 = 400\n")
    assert_refused(run("device", "show", "bad.toml"), "bf16: found 400", "400e12", "bandwidth: found nothing")


def test_a_device_is_learned_from_what_was_measured(learned: Any, measured: Path) -> None:
    assert (learned["networks"], learned["profiles"]) == (NETWORKS, 0)
    assert Path(learned["file"]).is_relative_to(measured / ".foretell" / "devices")


def test_own_profiles_are_used_for_fitting(measured: Path, tmp_path: Path, foretell: Run) -> None:
    folder = shutil.copytree(measured, tmp_path / "copy", ignore=shutil.ignore_patterns("profiles"))
    threads = str(torch.get_num_threads())
    profiled = foretell("workload", "profile", *MODEL, "--seconds", "1ms", "--json", folder=folder).record
    assert profiled["facts"]["threads"] == threads
    outcome = foretell("device", "learn", "--budget", "1ms", folder=folder)
    assert outcome.code == 0, outcome.err
    assert f"serial model fitted on {NETWORKS} measured networks and 1 profile" in outcome.out


@pytest.mark.parametrize("device", ["cpu", "T4", "Tesla T4"])
def test_a_step_is_predicted(run: Run, learned: Any, device: str) -> None:
    (prediction,) = run(*PREDICT, "--device", device, "--level", "80%", "--rows", "3", "--json").record
    iteration = prediction["iteration_s"]
    assert 0 < iteration["low"] <= iteration["value"] <= iteration["high"]
    assert iteration["level"] == pytest.approx(0.8)
    assert sum(prediction["phases_s"].values()) == pytest.approx(iteration["value"], rel=1e-6)
    assert prediction["busy_s"] + prediction["overhead_s"] == pytest.approx(iteration["value"], rel=1e-6)
    assert prediction["examples_per_s"] == pytest.approx(8 / iteration["value"])
    assert len(prediction["costly"]) == 3


def test_a_predicted_step_is_readable(run: Run, learned: Any) -> None:
    outcome = run(*PREDICT, "--device", "cpu")
    assert outcome.code == 0, outcome.err
    for word in ("Iteration", "Forward", "Backward", "Update", "Device busy", "Framework overhead", "Most costly"):
        assert word in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_several_batches_are_a_table(run: Run, learned: Any, measured: Path) -> None:
    outcome = run(*PREDICT, "--device", "cpu", "--batch", "4, 512,4", "--plot", "new/curve.svg", "--json")
    assert outcome.code == 0, outcome.err
    assert [prediction["batch"] for prediction in outcome.record] == [4, 512]
    few, many = (prediction["iteration_s"]["value"] for prediction in outcome.record)
    assert few < many
    assert (measured / "new" / "curve.svg").read_text().startswith("<?xml")
    assert "Examples/s" in run(*PREDICT, "--device", "cpu", "--batch", "4,512").out


def test_a_profile_makes_the_prediction_more_accurate(run: Run, learned: Any) -> None:
    measured = run("workload", "profile", *MODEL, "--seconds", "20ms", "--json").record
    (plain,) = run(*PREDICT, "--device", "cpu", "--json").record
    (held,) = run(*PREDICT, "--device", "cpu", "--profile", measured["file"], "--json").record
    truth = measured["iteration_s"]
    off, still_off = (abs(prediction["iteration_s"]["value"] - truth) for prediction in (plain, held))
    assert still_off <= max(off, 0.2 * truth)


def test_profiles_of_other_models_and_devices_are_reported(run: Run, learned: Any, measured: Path) -> None:
    other = ("net.py:build_model", "--set", "deep=true", "--input", "8,16", "--seconds", "1ms", "--output", "deep.json")
    assert run("workload", "profile", *other).code == 0
    (prediction,) = run(*PREDICT, "--device", "cpu", "--profile", "deep.json", "--json").record
    assert any("may be of another model" in warning["text"] for warning in prediction["warnings"])
    text = (measured / "deep.json").read_text()
    (measured / "t4.json").write_text(text.replace('"device": "cpu"', '"device": "Tesla T4"'))
    refused = run(*PREDICT, "--device", "cpu", "--profile", "t4.json")
    assert_refused(refused, "profile", "on Tesla T4", "measured on cpu", "foretell workload profile")


def test_after_an_interruption_it_says_how_to_continue(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("foretell.workloads.device_measurements.measure_networks", interrupt)
    outcome = run("device", "learn")
    assert outcome.code == 130
    assert "the same command continues" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("method", ["roofline", "paleo"])
def test_some_methods_need_only_the_figures_of_a_device(run: Run, method: str) -> None:
    by_batch = {}
    for device in ("T4", "H100"):  # the H100 has no measured steps
        outcome = run(*PREDICT, "--device", device, "--batch", "8,512", "--method", method, "--json")
        assert outcome.code == 0, outcome.err
        few, many = outcome.record
        assert few["method"] == method
        assert 0 < few["iteration_s"]["low"] <= few["iteration_s"]["value"] < few["iteration_s"]["high"]
        assert [one["code"] for one in few["warnings"]] == ["operators-not-measured"]
        by_batch[device] = many["busy_s"] - few["busy_s"]
    assert 0 < by_batch["H100"] < by_batch["T4"]  # the same work on a faster device


def test_a_method_is_fitted_on_the_measured_steps_and_used(run: Run, learned: Any) -> None:
    assert_refused(run(*PREDICT, "--device", "cpu", "--method", "totals"), "'cpu'", "device learn --method totals")
    for method in ("totals", "paleo"):
        outcome = run("device", "learn", "--budget", "1ms", "--method", method, "--json")
        assert (outcome.code, outcome.record["method"]) == (0, method), outcome.err
        (prediction,) = run(*PREDICT, "--device", "cpu", "--method", method, "--json").record
        assert prediction["method"] == method
        assert prediction["iteration_s"]["value"] > 0
        assert prediction["warnings"] == []
    (default,) = run(*PREDICT, "--device", "cpu", "--json").record
    assert default["method"] == "serial"


def test_ets_is_fitted_on_profiles_and_used(run: Run, monkeypatch: pytest.MonkeyPatch, measured: Path) -> None:
    monkeypatch.setattr("foretell.steps.ets.EtsModel.build", lambda _device, seed=0: EtsModel(epochs=1, hidden=4))
    known = DeviceFile(measured / ".foretell/devices/cpu.jsonl").read()
    words = []
    for number, profile in known.profiles.items():
        save_profile(profile, measured / f"profile{number}.json")
        words += ["--profile", f"profile{number}.json"]
    outcome = run("device", "learn", "--method", "ets", "--name", "mine", *words)
    assert outcome.code == 0, outcome.err
    assert "--device mine --method ets" in " ".join(outcome.out.split())
    (prediction,) = run(*PREDICT, "--device", "mine", "--method", "ets", "--json").record
    assert prediction["method"] == "ets"
    assert prediction["iteration_s"]["value"] > 0
    assert_refused(run("device", "learn", "--method", "ets", *words[:2]), "profile", "5 or more of one device")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--device V100 --method ets", ["'V100-16'", "device learn --method ets", "--profile FILE"]),
        ("--device T9 --method roofline", ["'T9'", "Did you mean T4", "foretell device learn"]),
        ("--device T4 --method oracle", ["--method", "'oracle'", "roofline"]),
        ("--device T4 --method roofline --profile here.json", ["profile", "method 'roofline'", "replay"]),
    ],
)
def test_a_method_that_cannot_be_used_is_explained(run: Run, measured: Path, words: str, expected: list[str]) -> None:
    if "here.json" in words:
        made = run("workload", "profile", *MODEL, "--seconds", "1ms", "--output", "here.json")
        assert made.code == 0, made.err
        path = measured / "here.json"
        path.write_text(path.read_text().replace('"device": "cpu"', '"device": "Tesla T4"'))
    assert_refused(run(*PREDICT, *words.split()), *expected)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--device T9", ["'T9'", "Did you mean T4", "foretell device learn"]),
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


def test_a_budget_without_any_network_is_too_short(
    tmp_path: Path, foretell: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "foretell.workloads.device_measurements.measure_networks",
        lambda *_args, **_options: MeasuredNetworks(device="cpu"),
    )
    outcome = foretell("device", "learn", "--budget", "10s", folder=tmp_path)
    assert_refused(outcome, "budget", "enough for 0 networks", "5m")


def test_measurements_of_another_device_are_refused(measured: Path, tmp_path: Path, foretell: Run) -> None:
    kept = tmp_path / ".foretell" / "devices" / "cpu.jsonl"
    kept.parent.mkdir(parents=True)
    text = (measured / ".foretell/devices/cpu.jsonl").read_text()
    kept.write_text(text.replace('"torch":"', '"torch":"0.', 1))
    assert_refused(foretell("device", "learn", folder=tmp_path), "cpu.jsonl", "torch")
