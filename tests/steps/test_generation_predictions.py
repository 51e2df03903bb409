"""Predicted text generation: the prompt and the tokens after it, on one and many devices."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.core.errors import SpecError
from foretell.steps.generation_results import GenerationPrediction
from foretell.steps.render_generated import build_generation_records, render_generations
from foretell.steps.step_results import LeftOutDevice

NET = """
import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.mix = nn.Linear(64, 64)
        self.head = nn.Linear(64, 100)

    def forward(self, ids, past_key_values=None):
        found = self.mix(self.embed(ids))
        past = found if past_key_values is None else torch.cat([past_key_values, found], 1)
        scores = nn.functional.softmax(found @ past.transpose(1, 2), -1)
        return {"logits": self.head(scores @ past), "past_key_values": past}
"""
INPUTS = ["4,32:int64:100"]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reading_net.py").write_text(NET)
    return "reading_net:Reader"


def predict(source: str, *names: str, new: int = 20, **others: Any) -> Any:
    options = foretell.StepOptions(mode="generate", prompt=64, new=new)
    return foretell.predict_generation(source, INPUTS, devices=names, options=options, **others)


def test_a_text_takes_its_prompt_and_its_tokens(source: str) -> None:
    (found,) = predict(source, "A100")
    assert found.total_s.value == pytest.approx(found.first_token_s.value + 19 * found.token_s.value)
    assert found.tokens_per_s == pytest.approx(4 * 20 / found.total_s.value)
    assert found.total_s.low < found.total_s.value < found.total_s.high
    assert len(found.steps) == 4  # the prompt, and the first, a middle and the last token after it


def test_one_token_takes_only_its_prompt(source: str) -> None:
    (found,) = predict(source, "A100", new=1)
    assert found.total_s == found.first_token_s
    assert found.token_s.value == 0
    assert found.main_step is found.steps[0]


def test_the_fastest_device_for_texts_comes_first(source: str) -> None:
    found = predict(source, "all", batches=[1, 4])
    rates = [each.tokens_per_s for each in found if each.generation.batch == 4]
    assert rates == sorted(rates, reverse=True)
    assert len(found) == 2 * len(rates)


def test_a_step_of_text_is_not_predicted_as_one_of_training(source: str) -> None:
    with pytest.raises(SpecError, match="predict_generation"):
        foretell.predict_workload(source, INPUTS, device="T4", options=foretell.StepOptions(mode="generate"))


def test_texts_are_shown(source: str, tmp_path: Path, foretell: Callable[..., Any]) -> None:
    words = ("workload", "predict", source, "--input", *INPUTS, "--mode", "generate", "--prompt", "64", "--new", "20")
    several = foretell(*words, "--device", "A100,T4", "--precision", "bf16", folder=tmp_path)
    assert several.code == 0, several.err
    assert all(word in several.out for word in ("First token", "Per token", "A100-80", "T4: no bf16"))
    assert max(map(len, several.out.splitlines())) <= 100
    one = foretell(*words, "--device", "T4", folder=tmp_path)
    assert "Each further token" in one.out
    assert "Most costly operators of a token" in one.out
    (record, left) = foretell(*words, "--device", "A100,T4", "--precision", "bf16", "--json", folder=tmp_path).record
    assert record["total_s"]["value"] > record["first_token_s"]["value"]
    assert [step["step"] for step in record["steps"]] == ["prompt", *(f"token after {n}" for n in (64, 73, 82))]
    assert left["reason"].startswith("no bf16")


@pytest.mark.parametrize("option", ["--plot", "--profile"])
def test_options_of_single_steps_are_refused(
    source: str, tmp_path: Path, foretell: Callable[..., Any], option: str
) -> None:
    words = ("workload", "predict", source, "--input", *INPUTS, "--mode", "generate", "--device", "T4")
    outcome = foretell(*words, option, "a.svg", folder=tmp_path)
    assert outcome.code != 0
    assert option in outcome.err
    assert "mode generate" in outcome.err


def test_texts_of_several_batches_have_a_column_for_them(source: str) -> None:
    found = predict(source, "A100", batches=[1, 4])
    left_out = [LeftOutDevice(device="T4", reason="no bf16, only fp32 and fp16")]
    records = build_generation_records(found, rows=1, left_out=left_out)
    assert [record.get("batch") for record in records] == [1, 4, None]
    assert json.loads(json.dumps(records, default=str))
    assert render_generations(found, rows=1, left_out=left_out)


def test_warnings_are_given_once(source: str) -> None:
    (found,) = predict(source, "A100")
    doubled = replace(found, steps=(*found.steps, *found.steps))
    assert isinstance(doubled, GenerationPrediction)
    assert len(doubled.warnings) == len({each.code for each in doubled.warnings})
