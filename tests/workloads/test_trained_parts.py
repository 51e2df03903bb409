from typing import Any

import pytest
import torch
from tests.memory.sharded_training import TOKENS, VOCABULARY, WIDTH, Transformer
from torch import nn

from foretell.core.errors import MissingExtraError, SpecError
from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.workloads.lora_options import parse_lora
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.optimizers import build_optimizer
from foretell.workloads.step_options import InputSpec, StepOptions

INPUTS = [InputSpec(shape=(2, TOKENS), dtype="int64", high=VOCABULARY)]
LAYERS = 4


def record(model: nn.Module | None = None, **options: Any) -> MemoryTrace:
    given = StepOptions(**{"optimizer": "adamw", "loss": "cross_entropy", **options})
    return capture_memory(model or Transformer(LAYERS), INPUTS, options=given)


def count(trace: MemoryTrace, kind: MemoryKind) -> int:
    """Bytes of a kind that the first step allocates, or that are there before."""
    later = set((trace.events[trace.second :][trace.events[trace.second :] > 0] - 1).tolist())
    return sum(int(size) for block, size in enumerate(trace.sizes) if trace.kinds[block] == kind and block not in later)


def test_eight_bit_states_are_two_bytes_and_scales() -> None:
    trace = record(optimizer="adamw8bit")
    large = [size // 4 for size in trace.sizes[trace.kinds == MemoryKind.WEIGHTS] if size >= 4 * 4096]
    small = trace.measure(MemoryKind.WEIGHTS) - 4 * sum(large)
    scales = sum(-(-each // 256) * 4 for each in large)
    levels = 2 * 256 * 4
    assert count(trace, MemoryKind.OPTIMIZER) == 2 * (sum(large) + scales + small) + levels


def test_eight_bits_on_a_real_device_need_a_library() -> None:
    with pytest.raises(MissingExtraError, match="bitsandbytes"):
        build_optimizer([nn.Parameter(torch.zeros(8))], StepOptions(optimizer="adamw8bit"))


@pytest.mark.parametrize(("name", "states"), [("sgd", 1), ("adamw", 2), ("rmsprop", 1), ("adagrad", 1)])
def test_states_of_each_optimizer(name: str, states: int) -> None:
    trace = record(optimizer=name)
    assert count(trace, MemoryKind.OPTIMIZER) == pytest.approx(states * 4 * trace.parameters, rel=0.001)


def test_adafactor_keeps_rows_and_columns() -> None:
    trace = record(optimizer="adafactor")
    assert 0 < count(trace, MemoryKind.OPTIMIZER) < 0.05 * 4 * trace.parameters


def test_adapters_are_those_of_peft() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=16, target_modules=["q_proj", "v_proj"], lora_alpha=16)
    expected = record(peft.get_peft_model(Transformer(LAYERS), config).base_model.model)
    found = record(lora=parse_lora("r=16"))
    assert count(found, MemoryKind.GRADIENTS) == LAYERS * 2 * 2 * WIDTH * 16 * 4
    for kind in (MemoryKind.WEIGHTS, MemoryKind.GRADIENTS, MemoryKind.OPTIMIZER, MemoryKind.ACTIVATIONS):
        assert count(found, kind) == count(expected, kind), kind


def test_adapters_are_in_single_precision_beside_half() -> None:
    whole, adapted = record(precision="pure-bf16"), record(precision="pure-bf16", lora=parse_lora("r=8"))
    added = LAYERS * 2 * 2 * WIDTH * 8
    assert count(adapted, MemoryKind.WEIGHTS) == count(whole, MemoryKind.WEIGHTS) + 4 * added
    assert count(adapted, MemoryKind.OPTIMIZER) == pytest.approx(2 * 4 * added, rel=0.01)


def test_all_linear_layers() -> None:
    trace = record(lora=parse_lora("r=4,targets=all-linear"))
    linear = LAYERS * (4 * 2 * WIDTH + 2 * 5 * WIDTH) + WIDTH + VOCABULARY
    assert count(trace, MemoryKind.GRADIENTS) == 4 * 4 * linear


def test_the_model_is_as_before() -> None:
    model = Transformer(LAYERS)
    names = [path for path, _ in model.named_parameters()]
    record(model, lora=parse_lora("r=4"))
    record(model, frozen=("layers.0",))
    assert [path for path, each in model.named_parameters() if each.requires_grad] == names


def test_frozen_layers_have_no_gradients_and_states() -> None:
    whole, trace = record(), record(frozen=("embed_tokens", "layers.[01]"))
    learned = [layer for _, layer in _find_owners(trace, MemoryKind.GRADIENTS)]
    assert learned
    assert not any(layer.startswith(("embed", "layers.0", "layers.1")) for layer in learned)
    assert count(trace, MemoryKind.ACTIVATIONS) < 0.7 * count(whole, MemoryKind.ACTIVATIONS)  # backward ends early


def _find_owners(trace: MemoryTrace, kind: MemoryKind) -> set[tuple[str, str]]:
    return {trace.owner_names[owner] for owner in trace.owners[trace.kinds == kind].tolist()}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"frozen": ("layer",)}, "embed_tokens, layers"),
        ({"frozen": ("*",)}, "some parameters that are trained"),
        ({"lora": parse_lora("r=4,targets=other")}, "all-linear, or names of linear layers"),
    ],
)
def test_unknown_parts_are_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        record(**options)


@pytest.mark.parametrize("text", ["16", "r=0", "r=16,target=x", "r=x"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="r=RANK"):
        parse_lora(text)


def test_options_that_exclude_each_other() -> None:
    with pytest.raises(SpecError, match="one of them"):
        StepOptions(frozen=("a",), lora=parse_lora("r=4"))
    with pytest.raises(SpecError, match="foreach"):
        StepOptions(optimizer="rmsprop", implementation="fused")
