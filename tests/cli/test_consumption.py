"""``foretell consumption predict`` and ``learn``: output, JSON, plots, methods and mistakes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_workload import assert_refused
from tests.trained_models import know_core, save_jobs, save_law

from foretell.distributed import METHODS
from foretell.distributed.consumption import Setting
from foretell.distributed.driple import DripleModel

pytestmark = pytest.mark.slow

Run = Callable[..., Any]

NET = """
from torch import nn


def build_model(width: int = 256):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8))
"""
SOURCE = ("net.py:build_model", "--input", "32,64", "--model", "law")
PREDICT = ("consumption", "predict", *SOURCE)
SHOWN = (
    *("Iteration", "Exposed communication", "is the limit", "compute (GPU)", "transmit", "receive"),
    *("memory (GPU): not predicted", "What would change", "Warnings"),
)
LEARN = ("consumption", "learn", "--jobs", "jobs.jsonl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("consumption")
    (folder / "net.py").write_text(NET)
    save_law(folder / ".foretell", "law")
    return folder


@pytest.fixture(scope="module")
def run(folder: Path, foretell: Run) -> Run:
    return partial(foretell, folder=folder)


def test_a_prediction_as_text(run: Run) -> None:
    outcome = run(*PREDICT, "--device", "T4", "--workers", "4", "--link", "200Mb")
    assert outcome.code == 0, outcome.err
    for word in (*SHOWN, "4 workers, all-reduce, links of 200 Mb/s, T4"):
        assert word in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_a_prediction_as_json(run: Run) -> None:
    words = "--device T4 --strategy ps --workers 2 --servers 2 --asynchronous --link 800Mb --batch 16 --level 80%"
    predicted = run(*PREDICT, *words.split(), "--set", "width=64", "--optimizer", "adam", "--json").record
    assert predicted["setting"]["servers"] == 2
    assert not predicted["setting"]["synchronous"]
    assert predicted["setting"]["link_bytes_per_s"] == pytest.approx(1e8)
    assert predicted["batch"] == 16
    assert predicted["iteration_s"]["level"] == pytest.approx(0.8)
    assert set(predicted["changes"]) == {"link", "workers", "servers", "batch"}
    assert predicted["resources"]["transmit"]["cycle"]["burst_s"]["value"] > 0


def test_there_is_one_server_by_default(run: Run) -> None:
    predicted = run(*PREDICT, "--device", "T4", "--strategy", "ps", "--no-curves", "--json").record
    assert predicted["setting"]["servers"] == 1
    assert predicted["changes"] == {}


@pytest.mark.parametrize("words", ["", "--no-curves", "--workers 1"])
def test_it_is_plotted(run: Run, folder: Path, words: str) -> None:
    outcome = run(*PREDICT, "--device", "T4", *words.split(), "--plot", "new/outlook.svg")
    assert outcome.code == 0, outcome.err
    assert (folder / "new" / "outlook.svg").read_text().startswith("<?xml")
    assert "Wrote new/outlook.svg." in outcome.err


def test_one_worker_without_a_link_has_no_communication(run: Run) -> None:
    outcome = run(*PREDICT, "--device", "T4", "--workers", "1")
    assert "no link" in outcome.out
    assert "no communication to wait for" in outcome.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", ["--device"]),
        ("--device T9", ["'T9'", "T4", "foretell device learn"]),
        ("--device T4 --link apples", ["--link", "'apples'", "10Gb"]),
        ("--device T4 --link 10", ["--link", "'10'", "10Gb"]),
        ("--device T4 --strategy gossip", ["--strategy", "'gossip'", "allreduce or ps"]),
        ("--device T4 --servers 1", ["servers", "--strategy ps"]),
        ("--device T4 --strategy ps --servers 0", ["servers", "1 or more"]),
        ("--device T4 --asynchronous", ["asynchronous", "--strategy ps"]),
        ("--device T4 --workers 0", ["workers", "a whole number from 1"]),
        ("--device T4 --batch 0", ["--batch", "1"]),
        ("--device T4 --level 2", ["--level", "'2'", "5%"]),
        ("--device T4 --model nosuch", ["'nosuch'", "law", "foretell consumption learn --jobs FILE --name nosuch"]),
        ("--device T4 --method magic", ["'magic'", "bandwidth, driple, timeline, totals"]),
        ("--device T4 --method driple", ["law, fitted by timeline", "--method timeline"]),
        ("--device T4 --plot curve.pdf", ["curve.pdf", ".png"]),
        ("--device T4 --input 8,17", ["Check --input"]),
    ],
)
def test_a_mistake_is_one_message(run: Run, words: str, expected: list[str]) -> None:
    assert_refused(run(*PREDICT, *words.split()), *expected)


def test_a_file_that_is_no_model_is_refused(run: Run, folder: Path) -> None:
    (folder / ".foretell/consumption/broken.safetensors").write_bytes(b"nothing")
    assert_refused(run(*PREDICT, "--device", "T4", "--model", "broken"), "broken.safetensors", "fit it again")


def test_a_method_without_a_shipped_model_says_how_to_fit_one(run: Run) -> None:
    words = ("consumption", "predict", "net.py:build_model", "--input", "32,64", "--device", "T4")
    learn = "foretell consumption learn --jobs FILE --method driple --name NAME"
    assert_refused(run(*words, "--method", "driple"), "'driple'", learn, "then pass --model NAME")


# Models fitted to measured trainings


@pytest.fixture
def learn(tmp_path: Path, foretell: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``consumption learn`` in a folder with four small trainings."""
    know_core(monkeypatch)
    monkeypatch.setattr(DripleModel.__init__, "__defaults__", (2, 2, 8, "proportional", 100, 32, 0.003, 1, 0))
    (tmp_path / "net.py").write_text(NET)
    save_jobs(tmp_path / "jobs.jsonl", [Setting(device="core", link_bytes_per_s=2.5e7)])
    return partial(foretell, *LEARN, folder=tmp_path)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_fitted_and_predicts(learn: Run, tmp_path: Path, foretell: Run, method: str) -> None:
    outcome = learn("--method", method, "--scratch", "--name", "lab")
    assert outcome.code == 0, outcome.err
    assert f"{method}, fitted from scratch, with 4 measured trainings" in " ".join(outcome.out.split())
    assert "2 workers, all-reduce, links of 200 Mb/s, core" in outcome.out
    assert "--model lab" in outcome.out
    words = ("net.py:build_model", "--input", "32,64", "--device", "core", "--link", "200Mb", "--model", "lab")
    predicted = foretell("consumption", "predict", *words, "--method", method, "--json", folder=tmp_path)
    assert predicted.code == 0, predicted.err
    assert predicted.record["resources"]["compute"]["cycle"] is not None
    assert predicted.record["limited_by"] in ("compute", "communication", "link")


def test_driple_is_transferred_from_a_model(learn: Run) -> None:
    assert learn("--method", "driple", "--name", "first").code == 0
    record = learn("--method", "driple", "--from", "first", "--name", "second", "--json").record
    assert (record["method"], record["transferred_from"], record["jobs"]) == ("driple", "first", 4)


def test_the_default_is_transferred_from_the_model_that_ships(learn: Run) -> None:
    record = learn("--json").record
    assert (record["name"], record["method"], record["transferred_from"]) == ("here", "timeline", "shared")


@pytest.mark.parametrize(
    "words",
    [
        "--workers 2 --link 1Gb --device cpu --name lab",
        "--jobs 20 --device cpu",
        "--jobs 20",
        "--strategy ps --asynchronous",
        "--repetitions 2",
    ],
)
def test_options_that_measured_say_where_they_are_now(foretell: Run, tmp_path: Path, words: str) -> None:
    outcome = foretell("consumption", "learn", *words.split(), folder=tmp_path)
    assert_refused(outcome, "options that measure trainings", "python -m lab measure --out FILE", "--jobs FILE")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--jobs nowhere.jsonl", ["nowhere.jsonl", "no such file", "python -m lab measure"]),
        ("--jobs net.py", ["net.py", "no file of measured trainings"]),
        ("--name a/b", ["name", "'a/b'", "letters"]),
        ("--method magic", ["'magic'", "bandwidth, driple, timeline, totals"]),
        ("--from nosuch", ["'nosuch'", "shared"]),
        ("--from shared --scratch", ["from", "--scratch"]),
    ],
)
def test_a_mistake_of_learning_is_one_message(learn: Run, words: str, expected: list[str]) -> None:
    assert_refused(learn(*words.split()), *expected)


def test_without_a_file_it_says_what_to_pass(foretell: Run, tmp_path: Path) -> None:
    assert_refused(foretell("consumption", "learn", folder=tmp_path), "--jobs", "python -m lab measure --out FILE")
