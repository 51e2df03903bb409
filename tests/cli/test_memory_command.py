"""Memory from the command line: what it prints, as JSON and as a plot, and errors."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

NET = """
import torch
from torch import nn


def build_model(width: int = 64) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten(1),
                         nn.Linear(width * 32 * 32, 10))


@torch.library.custom_op("memory_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


twice.register_fake(torch.empty_like)
twice.register_autograd(lambda _, gradient: 2 * gradient)


class Extended(nn.Linear):
    def forward(self, x):
        return torch.ops.memory_test.twice(super().forward(x))


def build_extended():
    return Extended(64, 64)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, 64)
        self.head = nn.Linear(64, 1000)

    def forward(self, ids):
        return self.head(self.table(ids))
"""
MODEL = ("net.py:build_model", "--input", "256,3,32,32", "--optimizer", "adamw")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, foretell: Run) -> Run:
    folder = tmp_path_factory.mktemp("memory")
    (folder / "net.py").write_text(NET)
    return partial(foretell, folder=folder)


def test_it_says_how_much_what_for_and_where_it_fits(run: Run) -> None:
    outcome = run("memory", *MODEL, "--device", "T4,H100")
    assert outcome.code == 0, outcome.err
    for words in ("Memory of the GPU", "optimizer states", "CUDA context", "|backward", "H100", "Largest batch"):
        assert words in outcome.out


def test_the_parts_of_the_record_add_up(run: Run) -> None:
    record = run("memory", *MODEL, "--device", "T4", "--json").record
    parts = record["parts"]
    assert sum(parts.values()) == record["reserved_bytes"] + record["context_bytes"]
    assert parts["weights"] >= 4 * record["parameters"]
    assert parts["optimizer states"] >= 8 * record["parameters"]
    assert record["needed_bytes"]["low"] <= record["needed_bytes"]["value"] <= record["needed_bytes"]["high"]
    assert max(record["course"]["allocated_bytes"]) <= record["allocated_bytes"] <= record["reserved_bytes"]


def test_the_largest_batch_fits_and_the_next_does_not(run: Run) -> None:
    found = run("memory", *MODEL, "--device", "T4", "--json").record["devices"][0]
    batch = found["largest_batch"]
    assert batch > 256
    fits = [
        run("memory", *MODEL, "--batch", str(size), "--device", "T4", "--json").record["devices"][0]["fits"]
        for size in (batch, int(1.02 * batch))
    ]
    assert fits == [True, False]


def test_what_is_too_large_gets_remedies(run: Run) -> None:
    record = run("memory", *MODEL, "--batch", "60000", "--device", "T4", "--json").record
    assert not record["devices"][0]["fits"]
    assert record["devices"][0]["risk"] == 1.0
    fitting = [each for each in record["remedies"] if each["fits"]]
    assert any("--accumulation" in each["options"] for each in fitting)
    assert all(each["freed_bytes"] > 0 for each in record["remedies"])


def test_where_nothing_helps_the_nearest_change_is_named(run: Run) -> None:
    tiny = "fp32=1e12,bandwidth=1e11,memory=400MB,units=10,name=Tiny"
    outcome = run("memory", *MODEL, "--device-figures", tiny)
    assert outcome.code == 0, outcome.err
    assert "makes it fit Tiny" in outcome.out


def test_the_longest_sequence(run: Run) -> None:
    words = ("net.py:Words", "--input", "8,128:int64:1000", "--device", "T4", "--longest", "--json")
    found = run("memory", *words).record["devices"][0]
    assert found["longest_sequence"] == pytest.approx(128 * found["largest_batch"] / 8, rel=0.02)


SCRIPT = """
import torch
from torch import nn

net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 8)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(100):
    optimizer.zero_grad()
    net(torch.randn(256, 512, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_a_script_as_it_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    outcome = run("memory", "--device", "T4", "--json", "--", sys.executable, str(tmp_path / "train.py"))
    assert outcome.code == 0, outcome.err
    record = outcome.record
    weights = 4 * (512 * 2048 + 2048 + 2048 * 8 + 8)
    assert record["parts"]["weights"] == pytest.approx(weights, abs=4 * 512)
    assert record["parts"]["optimizer states"] == pytest.approx(2 * weights, abs=16 * 512)
    assert record["devices"][0]["fits"]


def test_a_script_on_several_gpus(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ("--gpus", "8", "--layout", "zero1", "--json", "--", sys.executable, str(tmp_path / "train.py"))
    record = run("memory", *words).record
    weights = 4 * (512 * 2048 + 2048 + 2048 * 8 + 8)
    assert record["parts"]["optimizer states"] == pytest.approx(2 * weights / 8, rel=0.05)
    assert "zero1" in record["settings"]["layout"]


def test_a_script_takes_no_options_of_a_model(run: Run) -> None:
    assert "it sets its own inputs" in run("memory", "--longest", "--", sys.executable, "train.py").err
    outcome = run("memory", "--batch", "8", "--", sys.executable, "train.py")
    assert "the script sets it" in outcome.err


@pytest.mark.parametrize("words", [("python", "net.py"), ("net.py",)])
def test_a_command_without_its_dashes_is_explained(run: Run, words: tuple[str, ...]) -> None:
    outcome = run("memory", *words)
    assert outcome.code in (1, 2)
    assert "-- python" in outcome.err


def test_what_is_not_seen_is_said(run: Run) -> None:
    words = ("net.py:build_extended", "--input", "8,64", "--device", "T4", "--json")
    record = run("memory", *words).record
    (warning,) = record["warnings"]
    assert warning["code"] == "memory-not-seen"
    assert "memory_test.twice" in warning["text"]


def test_a_strategy_without_effect_is_said(run: Run) -> None:
    record = run("memory", *MODEL, "--layout", "fsdp", "--gpus", "1", "--json").record
    assert "saves no memory" in record["warnings"][0]["text"]


def test_several_gpus_need_less_each(run: Run) -> None:
    one, eight = (run("memory", *MODEL, "--gpus", count, "--layout", "fsdp", "--json").record for count in ("1", "8"))
    assert eight["parts"]["optimizer states"] < 0.2 * one["parts"]["optimizer states"]
    outcome = run("memory", *MODEL, "--gpus", "8", "--layout", "zero1,fsdp")
    assert "one of them" in outcome.err


def test_a_plot(run: Run) -> None:
    outcome = run("memory", *MODEL, "--plot", "there/memory.svg")
    assert outcome.code == 0, outcome.err
    assert "Wrote there/memory.svg" in outcome.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device", "H1000"), "no device named 'H1000'"),
        (("--device", "T4", "--precision", "bf16"), "expected fp32 or fp16"),
        (("--batch", "0"), "--batch"),
        (("--allocator", "expandable:True"), "expandable"),
        (("--risk", "2"), "--risk"),
        (("--longest", "--device", "T4"), "an input of token ids"),
        (("--plot", "memory.txt"), "memory.txt"),
    ],
)
def test_what_cannot_be_used_is_said(run: Run, words: tuple[str, ...], said: str) -> None:
    outcome = run("memory", *MODEL, *words)
    assert outcome.code in (1, 2)
    assert said in outcome.err.replace("\n", " ")
