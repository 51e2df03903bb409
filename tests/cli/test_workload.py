"""Training steps from the command line: read, measured, predicted, and errors."""

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

Run = Callable[..., Any]

NET = """
from torch import nn


def build_model(width: int = 4, deep: bool = False) -> nn.Module:
    layers = [nn.Linear(16, width), nn.ReLU(), *([nn.Linear(width, width)] if deep else []), nn.Linear(width, 3)]
    return nn.Sequential(*layers)


class Branching(nn.Linear):
    def forward(self, x):
        x = super().forward(x)
        return x * 2 if x.sum() > 0 else x


def build_branching():
    return Branching(16, 16)


def build_broken():
    raise KeyError("no such layer")
"""
MODEL = ("net.py:build_model", "--input", "8,16")
SHOW, PROFILE = ("workload", "show"), ("workload", "profile")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steps")
    (folder / "net.py").write_text(NET)
    return folder


@pytest.fixture(scope="module")
def run(folder: Path, foretell: Run) -> Run:
    return partial(foretell, folder=folder)


@pytest.fixture(scope="module")
def profiled(run: Run) -> Any:
    """A step that was measured and stored."""
    outcome = run(*PROFILE, *MODEL, "--seconds", "10ms", "--output", "there/here.json", "--json")
    assert outcome.code == 0, outcome.err
    return outcome.record


def test_a_step_is_shown(run: Run) -> None:
    outcome = run(*SHOW, *MODEL, "--rows", "2")
    assert outcome.code == 0, outcome.err
    assert "batch 8, 83 parameters, fp32, sgd (foreach)" in outcome.out
    assert outcome.out.count(" forward ") == 3  # the phase, and two operators
    assert max(map(len, outcome.out.splitlines())) <= 100
    assert " update " in run(*SHOW, *MODEL, "--all").out


def test_code_that_depends_on_a_large_tensor_is_read_as_if_the_condition_did_not_hold(run: Run) -> None:
    outcome = run(*SHOW, "net.py:build_branching", "--input", "8,16", "--json")
    assert outcome.code == 0, outcome.err
    forward = [each["kind"] for each in outcome.record["operators"] if each["phase"] == "forward"]
    assert (forward[0], "__mul__" in forward) == ("linear", False)


def test_options_change_the_step(run: Run) -> None:
    plain = run(*SHOW, *MODEL, "--json").record
    words = "--set width=32 --set deep=true --batch 64 --optimizer adamw --implementation fused --loss mse"
    other = run(*SHOW, *MODEL, *words.split(), "--precision", "pure-bf16", "--accumulation", "2", "--json").record
    assert [one["kind"] for one in plain["operators"]][:4] == ["linear", "relu", "linear", "cross_entropy"]
    assert (plain["batch"], other["batch"]) == (8, 64)
    assert other["parameters"] == 16 * 32 + 32 + 32 * 32 + 32 + 32 * 3 + 3
    kinds = [one["kind"] for one in other["operators"]]
    assert kinds.count("mse_loss") == 4
    assert kinds[-1] == "_fused_adamw_"
    assert {one["dtype"] for one in other["operators"] if one["kind"] == "linear"} == {"bfloat16"}
    assert other["settings"]["accumulation"] == "2"


LANGUAGE = """
import torch
from torch import nn

class Bigrams(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, ids):
        return self.head(self.embedding(ids))
"""


def test_generated_text_is_shown_and_saved(run: Run, folder: Path) -> None:
    (folder / "language.py").write_text(LANGUAGE)
    words = (*SHOW, "language.py:Bigrams", "--input", "2,10:int64:50", "--mode", "generate", "--new", "5")
    outcome = run(*words, "--output", "text.csv")
    assert outcome.code == 0, outcome.err
    assert "5 tokens after a prompt of 10 tokens" in outcome.out
    assert "token after 11" in outcome.out
    assert "reads the whole text again" in outcome.out.replace("\n", " ")
    assert list(pd.read_csv(folder / "text.csv")["step"].unique()) == [
        "prompt", "token after 10", "token after 11", "token after 13",
    ]  # fmt: skip
    record = run(*words, "--json").record
    assert [step["stands_for"] for step in record["steps"]] == pytest.approx([1, 1, 1.5, 1.5])
    assert record["steps"][0]["settings"]["mode"] == "generate"


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_operators_are_written_to_a_file(run: Run, folder: Path, kind: str) -> None:
    path = folder / "new" / f"step.{kind}"
    outcome = run(*SHOW, *MODEL, "--output", str(path))
    assert outcome.code == 0, outcome.err
    expected = run(*SHOW, *MODEL, "--json").record
    if kind == "json":
        assert json.loads(path.read_text()) == expected
        return
    frame = pd.read_csv(path) if kind == "csv" else pd.read_parquet(path)
    assert list(frame["kind"]) == [one["kind"] for one in expected["operators"]]
    assert frame["flops"].sum() == expected["flops"]


def test_a_profile_is_shown_kept_and_stored(run: Run, folder: Path, profiled: Any) -> None:
    assert sum(profiled["phases_s"].values()) == pytest.approx(profiled["iteration_s"])
    assert profiled["costly"][0]["seconds"] > 0
    kept, copy = Path(profiled["file"]), folder / "there" / "here.json"
    assert kept.parent == folder / ".foretell" / "profiles"
    assert kept.read_text() == copy.read_text()
    (stored,) = run("runs", "list", "workload", "--json").record["runs"]
    assert (stored["id"], stored["elapsed_s"]) == (profiled["run"], pytest.approx(profiled["iteration_s"]))
    assert (stored["batch"], stored["optimizer"], stored["state"]) == (8, "sgd", "completed")
    assert stored["phase_forward"] == pytest.approx(profiled["phases_s"]["forward"])


def test_the_same_step_again_is_a_repetition(tmp_path: Path, foretell: Run) -> None:
    (tmp_path / "net.py").write_text(NET)
    for _ in range(2):
        outcome = foretell(*PROFILE, *MODEL, "--seconds", "1ms", folder=tmp_path)
        assert outcome.code == 0, outcome.err
        assert "Most costly operators" in outcome.out
        assert "Stored as run" in outcome.err
    runs = foretell("runs", "list", "workload", "--json", folder=tmp_path).record["runs"]
    assert sorted(run["repetition"] for run in runs) == [0, 1]
    assert len(list((tmp_path / ".foretell" / "profiles").iterdir())) == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("workload show net.py:build_model", ["inputs of the model are unknown", "--input 32,3,224,224"]),
        ("workload show net.py:build_model --input 8x16", ["'8x16'", "SHAPE[:DTYPE[:HIGH]]"]),
        ("workload show net.py:build_model --input 8,0", ["'8,0'", "sizes of 1 or more"]),
        ("workload show net.py:build_model --input 8,16:float31", ["float31", "bfloat16"]),
        ("workload show net.py:build_model --input 8,16 --mode generate", ["token ids", "batch,tokens"]),
        ("workload show net.py:build_model --input 8,16 --new 8", ["new", "mode 'generate'"]),
        ("workload show net.py:build_model --input 8,16 --mode serving", ["'serving'", "inference"]),
        ("workload show net.py:build_model --input 8,17", ["layer '0'", "(8, 17)", "Check --input"]),
        ("workload show net.py:build_model --input 8,16 --batch 0", ["--batch", "1"]),
        ("workload show net.py:build_model --input 8,16 --batch -3", ["--batch", "1"]),
        ("workload show net.py:build_model --input 8,16 --accumulation 0", ["--accumulation", "1"]),
        ("workload show net.py:build_model --input 8,16 --optimizer lamb", ["optimizer", "'lamb'", "adamw"]),
        ("workload show net.py:build_model --input 8,16 --loss luck --precision x", ["2 mistakes", "mse", "pure-bf16"]),
        ("workload show net.py:build_model --input 8,16 --set width", ["--set", "'width'", "NAME=VALUE"]),
        ("workload show net.py:build_model --input 8,16 --set wide=3", ["wide", "width: int = 4"]),
        ("workload show net.py:build_model --input 8,16 --rows 0", ["--rows", "1"]),
        ("workload show net.py:build_model --input 8,16 --output step.xyz", ["step.xyz", ".parquet"]),
        ("workload show net.py:build_model --input 8,16 --output net.py/step.csv", ["net.py"]),
        ("workload show net.py:build_modell --input 8,16", ["'build_modell'", "build_model"]),
        ("workload show net.py:build_broken --input 8,16", ["net.py:", "KeyError", "no such layer"]),
        ("workload show nowhere.py:build --input 8,16", ["nowhere.py", "config.json"]),
        ("workload show no.such.module:build --input 8,16", ["no.such.module"]),
        ("workload show net.py --input 8,16", ["net.py", "workload show -- python net.py"]),
        ("workload show nowhere.json", ["nowhere.json"]),
        ("workload show nowhere.pt2", ["nowhere.pt2"]),
        ("workload profile net.py:build_model --input 8,17", ["(8, 17)", "Check --input"]),
        ("workload profile net.py:build_model", ["inputs of the model are unknown", "--input 32,3,224,224"]),
        ("workload profile net.py:build_model --input 8,16 --seconds soon", ["--seconds", "'soon'", "90s"]),
        ("workload predict net.py:build_model --input 8,16", ["--device"]),
        ("device learn --budget soon", ["--budget", "'soon'", "10m"]),
        ("device learn --name a/b", ["name", "'a/b'", "letters"]),
    ],
)
def test_a_mistake_is_one_message(run: Run, words: str, expected: list[str]) -> None:
    assert_refused(run(*words.split()), *expected)


@pytest.mark.parametrize("words", ["workload show net.py:build_model --input 8,16", "device learn"])
def test_without_torch_the_extra_is_named(run: Run, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert_refused(run(*words.split()), "pip install 'foretell[torch]'")


def assert_refused(outcome: Any, *expected: str) -> None:
    """One message without a traceback, that says all that is expected."""
    assert outcome.code in (1, 2), outcome.out
    assert "Traceback" not in outcome.err
    text = " ".join(re.sub("[│╭╮╰╯─]", " ", outcome.err).split())
    for part in expected:
        assert part in text
