"""Training scripts from the command line: shown, predicted, and what is refused."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., Any]

TRAIN = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--precision", default="fp32")
args = parser.parse_args()
print("noise on stdout")
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
open("log.txt", "w").write("started")
for step in range(50):
    with torch.autocast("cuda", torch.bfloat16, enabled=args.precision == "bf16"):
        scores = model(torch.randn(args.batch_size, 64, device="cuda"))
        loss = nn.functional.cross_entropy(scores, torch.zeros(args.batch_size, dtype=torch.long, device="cuda"))
    loss.backward()
    optimizer.step()
    open("late.txt", "w").write("too late")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


@pytest.fixture
def run(folder: Path, foretell: Run) -> Run:
    return partial(foretell, folder=folder)


def test_show_lists_the_step_and_the_files(run: Run, folder: Path) -> None:
    outcome = run("workload", "show", "--rows", "2", "--", sys.executable, "train.py", "--batch-size", "32")
    assert outcome.code == 0, outcome.err
    assert "train.py: batch 32, 9.61 K parameters, fp32, adamw (foreach)" in outcome.out
    assert "50 steps" in outcome.out
    assert "created" in outcome.out
    assert "noise" not in outcome.out
    assert (folder / "log.txt").read_text() == "started"
    assert not (folder / "late.txt").exists()


def test_predict_takes_the_precision_and_the_options_of_the_script(run: Run) -> None:
    words = ("--", sys.executable, "train.py", "--precision", "bf16")
    outcome = run("workload", "predict", "--device", "H100,T4", "--json", *words)
    assert outcome.code == 0, outcome.err
    predicted = [each for each in outcome.record if "iteration" in each or "estimate" in each or "device" in each]
    assert "H100" in str(predicted[0])
    assert "bf16" in str(predicted[0])
    assert "script-wrote-files" in str(predicted[0])
    assert "T4" in str(outcome.record[1:])  # left out: it has no bf16


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ("show", "--optimizer", "adam", "--batch", "4"),
            ["2 mistakes", "--optimizer: found 'adam'", "--batch: found 4"],
        ),
        (("show", "net.py:build"), ["SOURCE: found 'net.py:build'", "a command after --"]),
        (("predict", "--device", "H100", "--precision", "bf16"), ["--precision", "the script sets it"]),
        (("predict", "--device", "H1000"), ["no device named 'H1000'"]),
        (("show", "--timeout", "soon"), ["--timeout", "'soon'"]),
    ],
)
def test_what_the_script_sets_is_refused_before_it_starts(
    run: Run, folder: Path, words: tuple[str, ...], expected: list[str]
) -> None:
    outcome = run("workload", *words, "--", sys.executable, "train.py")
    assert outcome.code in (1, 2)
    assert all(text in outcome.err for text in expected), outcome.err
    assert not (folder / "log.txt").exists()


def test_neither_source_nor_command_is_a_usage_error(run: Run) -> None:
    outcome = run("workload", "show")
    assert outcome.code == 2
    assert "Missing argument 'SOURCE'" in outcome.err


def test_error_of_the_script_is_one_message(run: Run, folder: Path) -> None:
    (folder / "train.py").write_text("import json\njson.loads('no')\n")
    outcome = run("workload", "show", "--", sys.executable, "train.py")
    assert outcome.code == 1
    assert "train.py:2 'json.loads" in outcome.err
    assert "Traceback" not in outcome.err
