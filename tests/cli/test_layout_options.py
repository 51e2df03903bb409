"""``foretell workload predict --gpus … --layout …``: one layout, the best ones, and what cannot be."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from foretell.cli.main import app

_NET = """
from torch import nn
from torch.nn import functional

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(64, 256), "fc2": nn.Linear(256, 64)})
    def forward(self, x):
        return x + self.mlp["fc2"](functional.gelu(self.mlp["fc1"](self.norm(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(1000, 64)
        self.layers = nn.ModuleList(Layer() for _ in range(4))
        self.lm_head = nn.Linear(64, 1000)
    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.lm_head(x).flatten(0, 1), ids.flatten())

def build_model():
    return Net()
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(_NET)
    return f"{tmp_path / 'net.py'}:build_model"


def _run(net: str, *words: str) -> Result:
    usual = ("--input", "8,32:int64:1000", "--loss", "own", "--optimizer", "adamw", "--device", "A100-40")
    return CliRunner().invoke(app, ["workload", "predict", net, *usual, *words])


def _read(net: str, *words: str) -> dict[str, Any]:
    result = _run(net, *words, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_one_layout_has_its_parts_and_memory(net: str) -> None:
    (choice,) = _read(net, "--layout", "dp=4,pp=2,micro=4")["choices"]
    assert choice["gpus"] == 8
    assert choice["examples"] == 8 * 4 * 4
    assert sum(choice["parts_s"].values()) == pytest.approx(choice["step_s"]["value"])
    assert choice["fits"]
    assert 0 < choice["memory_bytes"]["value"] < choice["usable_bytes"]


def test_options_are_words_of_the_layout(net: str) -> None:
    (choice,) = _read(net, "--gpus", "4", "--layout", "pp=2", "--zero", "1", "--interleave", "2")["choices"]
    assert choice["layout"] == "dp=2,zero1,pp=2,micro=2,interleave=2"


def test_the_best_layouts_are_sorted_and_divide_the_batch(net: str) -> None:
    found = _read(net, "--gpus", "4", "--global-batch", "64")
    assert found["searched"]
    seconds = [choice["step_s"]["value"] for choice in found["choices"]]
    assert seconds == sorted(seconds)
    assert {choice["examples"] for choice in found["choices"]} == {64}


def test_a_slower_network_takes_longer(net: str) -> None:
    near, far = (
        _read(net, "--gpus", "16", "--layout", "ddp", "--network", rate)["choices"][0]["step_s"]["value"]
        for rate in ("400Gb/s", "1Gb/s")
    )
    assert far > near


def test_the_answer_for_people(net: str) -> None:
    one = _run(net, "--layout", "fsdp", "--gpus", "2").output
    assert "2 x A100-40 by fsdp" in one
    assert "fits" in one
    several = _run(net, "--gpus", "2").output
    assert "Layout" in several
    assert "Shares of the step" in several


_SCRIPT = """
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(100):
    optimizer.zero_grad()
    net(torch.randn(16, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("words", "at_once", "examples"),
    [((), 16, 64), (("--micro-batch", "4"), 4, 64), (("--global-batch", "32", "--micro-batch", "2"), 2, 32)],
)
def test_the_step_of_a_script_on_several_gpus(
    tmp_path: Path, words: Sequence[str], at_once: int, examples: int
) -> None:
    """Each copy of the model has the batch of the script, unless the batch of all GPUs is given."""
    (tmp_path / "train.py").write_text(_SCRIPT)
    options = ("--device", "T4", "--gpus", "4", "--layout", "zero1", *words, "--json")
    result = CliRunner().invoke(
        app, ["workload", "predict", *options, "--", sys.executable, str(tmp_path / "train.py")]
    )
    assert result.exit_code == 0, result.output
    (choice,) = json.loads(result.stdout)["choices"]
    assert choice["layout"] == "zero1"
    assert choice["examples"] == examples
    assert choice["micro_batches"] * choice["copies"] * at_once == examples


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--gpus", "6", "--layout", "tp=4"], "expected a multiple of 4"),
        (["--layout", "pp=8"], "expected at most 4, the repeated layers"),
        (["--layout", "cp=5"], "expected a divisor of the 32 tokens"),
        (["--gpus", "4", "--layout", "ep=2"], "a model with layers whose name has the part 'experts'"),
        (["--gpus", "4", "--layout", "ddp", "--global-batch", "6"], "found 6; expected a multiple of 4"),
        (["--layout", "best"], "how many GPUs share the step"),
        (["--gpus", "4", "--layout", "best", "--zero", "1"], "--layout best chooses zero1 by itself"),
        (["--layout", "magic"], "no-overlap"),
        (["--global-batch", "8"], "needs --gpus or --layout"),
        (["--gpus", "2", "--mode", "inference"], "layouts share the steps of a training"),
        (["--gpus", "2", "--batch", "8,16"], "several batches cannot be used"),
        (["--gpus", "2", "--network", "fast"], "expected a rate"),
    ],
)
def test_what_cannot_be_is_explained(net: str, words: Sequence[str], expected: str) -> None:
    result = _run(net, *words)
    assert result.exit_code != 0
    text = " ".join(f"{result.output} {result.exception}".split())
    assert expected in text
