"""What distributed training will consume, from the command line; a setting learned; and what cannot be."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_workload import assert_refused
from tests.trained_models import PretendedGroup, pretend, save_law

Run = Callable[..., Any]

NET = """
from torch import nn


def build_model(width: int = 256):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8))
"""
SOURCE = ("net.py:build_model", "--input", "32,64", "--model", "law")
PREDICT = ("consumption", "predict", *SOURCE)
SAID = (
    *("Iteration", "Exposed communication", "is the limit", "compute (GPU)", "transmit", "receive"),
    *("memory (GPU): not told", "What would change", "Notes"),
)
LEARN = ("consumption", "learn", "--device", "core", "--jobs", "3", "--scratch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("consumption")
    (folder / "net.py").write_text(NET)
    save_law(folder / ".foretell", "law")
    return folder


@pytest.fixture(scope="module")
def run(folder: Path, foretell: Run) -> Run:
    return partial(foretell, folder=folder)


def test_what_a_training_consumes_is_told_to_people(run: Run) -> None:
    outcome = run(*PREDICT, "--device", "T4", "--workers", "4", "--link", "200Mb")
    assert outcome.code == 0, outcome.err
    for word in (*SAID, "4 workers, all-reduce, links of 200 Mb/s, T4"):
        assert word in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_what_a_training_consumes_is_told_to_programs(run: Run) -> None:
    words = "--device T4 --strategy ps --workers 2 --servers 2 --asynchronous --link 800Mb --batch 16 --level 80%"
    told = run(*PREDICT, *words.split(), "--set", "width=64", "--optimizer", "adam", "--json").record
    assert told["setting"]["servers"] == 2
    assert not told["setting"]["synchronous"]
    assert told["setting"]["link_bytes_per_s"] == pytest.approx(1e8)
    assert told["batch"] == 16
    assert told["iteration_s"]["level"] == pytest.approx(0.8)
    assert set(told["changes"]) == {"link", "workers", "servers", "batch"}
    assert told["resources"]["transmit"]["cycle"]["burst_s"]["value"] > 0


def test_a_server_is_there_unless_said(run: Run) -> None:
    told = run(*PREDICT, "--device", "T4", "--strategy", "ps", "--no-curves", "--json").record
    assert told["setting"]["servers"] == 1
    assert told["changes"] == {}


@pytest.mark.parametrize("words", ["", "--no-curves", "--workers 1"])
def test_it_is_drawn(run: Run, folder: Path, words: str) -> None:
    outcome = run(*PREDICT, "--device", "T4", *words.split(), "--plot", "new/outlook.svg")
    assert outcome.code == 0, outcome.err
    assert (folder / "new" / "outlook.svg").read_text().startswith("<?xml")
    assert "Wrote new/outlook.svg." in outcome.err


def test_one_worker_and_no_link_are_told(run: Run) -> None:
    outcome = run(*PREDICT, "--device", "T4", "--workers", "1")
    assert "no link named" in outcome.out
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
        ("--device T4 --model nosuch", ["'nosuch'", "law", "foretell consumption learn"]),
        ("--device T4 --plot curve.pdf", ["curve.pdf", ".png"]),
        ("--device T4 --input 8,17", ["Check --input"]),
    ],
)
def test_a_mistake_is_one_message(run: Run, words: str, expected: list[str]) -> None:
    assert_refused(run(*PREDICT, *words.split()), *expected)


def test_a_file_that_is_no_model_is_told(run: Run, folder: Path) -> None:
    (folder / ".foretell/consumption/broken.safetensors").write_bytes(b"nothing")
    assert_refused(run(*PREDICT, "--device", "T4", "--model", "broken"), "broken.safetensors", "learn it again")


# Learning, with trainings that are pretended


@pytest.fixture
def learn(tmp_path: Path, foretell: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    pretend(monkeypatch)
    (tmp_path / "net.py").write_text(NET)
    return partial(foretell, *LEARN, folder=tmp_path)


def test_a_setting_is_learned_and_used(learn: Run, tmp_path: Path, foretell: Run) -> None:
    outcome = learn("--link", "200Mb", "--name", "lab")
    assert outcome.code == 0, outcome.err
    assert "learned from scratch, with 3 measured trainings" in outcome.out
    assert "--model lab" in outcome.out
    assert outcome.err.count("an iteration, quiet") == 3
    assert "3/3" in outcome.err
    words = ("net.py:build_model", "--input", "32,64", "--device", "core", "--link", "200Mb", "--model", "lab")
    told = foretell("consumption", "predict", *words, "--json", folder=tmp_path)
    assert told.code == 0, told.err
    assert told.record["resources"]["compute"]["cycle"] is not None


def test_again_with_more_jobs_it_goes_on(learn: Run) -> None:
    first = learn("--json").record
    again = learn("--jobs", "5", "--repetitions", "2", "--json")
    assert (first["jobs"], again.record["jobs"]) == (3, 5)
    assert again.err.count("an iteration") == 7


def test_interrupted_it_says_how_to_go_on(learn: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("foretell.distributed.learning.sample", interrupt)
    outcome = learn()
    assert outcome.code == 130
    assert "the same command goes on" in outcome.err
    assert "Traceback" not in outcome.err


def test_without_root_a_link_is_refused_and_none_is_taken(
    tmp_path: Path, foretell: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, apart=False)
    learn = partial(foretell, *LEARN, folder=tmp_path)
    assert_refused(learn("--link", "1Gb"), "cannot be held to 1 Gb/s", "as root on Linux", "name no link")
    outcome = learn()
    assert outcome.code == 0, outcome.err
    assert "needs network namespaces" in " ".join(outcome.out.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--jobs 2", ["jobs", "3 or more"]),
        ("--repetitions 0", ["repetitions", "1 or more"]),
        ("--name a/b", ["name", "'a/b'", "letters"]),
        ("--device T4", ["T4, a GPU", "foretell device learn"]),
        ("--device T9", ["'T9'", "foretell device learn"]),
        ("--link 10apples", ["--link", "'10apples'", "10Gb"]),
        ("--servers 1", ["servers", "--strategy ps"]),
    ],
)
def test_a_mistake_of_learning_is_one_message(learn: Run, words: str, expected: list[str]) -> None:
    assert_refused(learn(*words.split()), *expected)


def test_trainings_that_fail_are_told(tmp_path: Path, foretell: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, PretendedGroup(failing=frozenset({0, 1, 2})))
    outcome = foretell(*LEARN, folder=tmp_path)
    assert_refused(outcome, "1/3 number 0: failed", "no luck", "0 of 3 trainings could be measured")
