"""Generated text: the prompt's step, and steps that read the cache."""

from typing import Any

import pytest
import torch
from tests.workloads.test_flops import _CPU, _GROUPED, build
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from foretell.core.errors import WorkloadError
from foretell.core.generation import Generation
from foretell.core.workload import Operator, Workload
from foretell.workloads.generation_capture import capture_generation
from foretell.workloads.step_options import StepOptions, parse_input
from foretell.workloads.workload_warnings import find_generation_warnings

IDS = "input_ids=2,24:int64:200"


class Bigrams(nn.Module):
    """A model of language without a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(ids))


def read(model: nn.Module, text: str = IDS, **options: Any) -> Generation:
    return capture_generation(model, [parse_input(text)], options=StepOptions(mode="generate", **options))


def find(step: Workload, kind: str) -> list[Operator]:
    return [each for each in step.operators if each.kind == kind]


def test_the_prompt_is_read_once_and_each_token_attends_to_the_cache() -> None:
    text = read(build("LlamaForCausalLM", **_GROUPED)(), new=9)
    assert (text.batch, text.prompt, text.new, text.lengths) == (2, 24, 9, (24, 27, 31))
    queries = {each.inputs[0][-2] for each in find(text.prefill, "scaled_dot_product_attention")}
    assert queries == {24}
    for length, step in zip(text.lengths, text.decodes, strict=True):
        attentions = find(step, "scaled_dot_product_attention")
        assert [(each.inputs[0][-2], each.inputs[1][-2]) for each in attentions] == [(1, length + 1)] * 2
        assert all(each.get("key_heads", 0) == 2 for each in attentions)
        assert {each.inputs[0][:2] for each in find(step, "linear")} == {(2, 1)}
        assert all(each < place for place, own in enumerate(step.sources) for each in own)
        assert step.layers[0] == "model.embed_tokens"


def test_only_the_last_tokens_scores_are_computed() -> None:
    text = read(build("LlamaForCausalLM", **_GROUPED)(), new=2)
    assert find(text.prefill, "linear")[-1].output == (2, 1, 200)
    assert text.prefill.operators[-1].kind == "argmax"


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MixtralForCausalLM"])
def test_operations_are_those_of_real_generation(name: str) -> None:
    model = build(name, **_GROUPED)()
    if name == "MixtralForCausalLM":
        model.config._experts_implementation = "eager"
    ids = torch.randint(0, 200, (2, 24))
    with FlopCounterMode(display=False, custom_mapping=_CPU) as counter:
        model.eval().generate(ids, max_new_tokens=9, min_new_tokens=9, do_sample=False)
    text = read(build(name, **_GROUPED)(), new=9)
    steps = zip(text.weights, text.decodes, strict=True)
    found = text.prefill.product_flops + sum(weight * step.product_flops for weight, step in steps)
    assert found == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_a_longer_prompt_costs_more_and_a_longer_cache_moves_more() -> None:
    short, long = (read(build("LlamaForCausalLM", **_GROUPED)(), prompt=length, new=4) for length in (16, 64))
    assert long.prefill.flops > 3.5 * short.prefill.flops
    assert long.decodes[0].bytes_moved > short.decodes[0].bytes_moved
    assert len(long.decodes[0].operators) == len(short.decodes[0].operators)
    assert dict(long.prefill.settings)["mode"] == "generate"


def test_half_precision_reads_half_the_weights_for_each_token() -> None:
    whole, half = (
        read(build("LlamaForCausalLM", **_GROUPED)(), new=2, precision=each) for each in ("fp32", "pure-bf16")
    )
    moved = [sum(each.bytes_moved for each in find(text.decodes[0], "linear")) for text in (whole, half)]
    assert moved[1] == pytest.approx(moved[0] / 2)


def test_without_a_cache_each_token_reads_the_whole_text() -> None:
    text = read(Bigrams(), "2,10:int64:50", new=3)
    assert not text.cached
    assert [find(step, "linear")[0].inputs[0][1] for step in text.decodes] == [11, 12]
    assert [warning.code for warning in find_generation_warnings(text)] == ["no-cache"]


def test_one_token_needs_no_further_step() -> None:
    assert read(Bigrams(), "2,10:int64:50", new=1).decodes == ()


@pytest.mark.parametrize(
    ("model", "text", "expected"),
    [
        (lambda: nn.Linear(8, 8), "4,8", "token ids"),
        (lambda: nn.Embedding(50, 8), "4,8:int64:50", None),
        (lambda: nn.EmbeddingBag(50, 8), "4,8:int64:50", "batch, tokens, vocabulary"),
        (build("T5ForConditionalGeneration", d_model=32, num_layers=1), IDS, "causal language models"),
    ],
)
def test_other_models_are_refused(model: Any, text: str, expected: str | None) -> None:
    if expected is None:
        assert read(model(), text, new=2).decodes
        return
    with pytest.raises(WorkloadError, match=expected):
        read(model(), text, new=2)


def test_compiled_steps_have_fewer_kernels_and_the_same_products() -> None:
    plain, compiled = (read(build("LlamaForCausalLM", **_GROUPED)(), new=9, compile=each) for each in (False, True))
    assert compiled.prefill.settings["compile"] == "yes"
    for before, after in zip(plain.decodes, compiled.decodes, strict=True):
        assert len(after.operators) < len(before.operators) / 2
        assert after.product_flops == before.product_flops
        assert after.bytes_moved < before.bytes_moved
