"""The blocks of memory that a step allocates and frees, compared with what they must be, and with PyTorch itself."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase
from foretell.workloads.generation_memory import capture_generation_memory
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import InputSpec, StepOptions

MIB = 2**20


def live_bytes(trace: MemoryTrace) -> np.ndarray[Any, Any]:
    """The bytes in use after each event."""
    allocated = set((trace.events[trace.events > 0] - 1).tolist())
    begin = sum(int(size) for block, size in enumerate(trace.sizes) if block not in allocated)
    return begin + np.cumsum(np.sign(trace.events) * trace.sizes[np.abs(trace.events) - 1])


def find_peak(trace: MemoryTrace) -> int:
    return int(live_bytes(trace)[trace.second :].max())


def build_net() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.LayerNorm(256))


INPUT = [InputSpec(shape=(512, 256))]


@pytest.fixture(scope="module")
def adam() -> MemoryTrace:
    return capture_memory(build_net(), INPUT, options=StepOptions(optimizer="adamw", loss="sum"))


def test_weights_gradients_and_states_are_exact(adam: MemoryTrace) -> None:
    size = 4 * sum(each.numel() for each in build_net().parameters())
    scalars = 4 * len(list(build_net().parameters()))  # the step counters of AdamW
    assert adam.measure(MemoryKind.WEIGHTS) == size
    assert adam.measure(MemoryKind.GRADIENTS) == 2 * size  # of two steps
    assert adam.measure(MemoryKind.OPTIMIZER) == 2 * size + scalars


def test_every_block_comes_before_it_goes_and_goes_once(adam: MemoryTrace) -> None:
    there: set[int] = set(range(len(adam.sizes))) - set((adam.events[adam.events > 0] - 1).tolist())
    for event in adam.events.tolist():
        if event > 0:
            assert event - 1 not in there
            there.add(event - 1)
        else:
            there.remove(-event - 1)


def test_phases_are_in_order_and_both_steps_have_all(adam: MemoryTrace) -> None:
    phases = [StepPhase.FORWARD, StepPhase.BACKWARD, StepPhase.UPDATE]
    assert [phase for _, phase in adam.phases] == phases * 2
    begins = [event for event, _ in adam.phases]
    assert begins == sorted(begins)
    assert begins[2] < adam.second <= begins[3]


def test_states_are_made_in_the_first_step_only(adam: MemoryTrace) -> None:
    second = adam.events[adam.second :]
    made = adam.kinds[second[second > 0] - 1]
    assert MemoryKind.OPTIMIZER not in made


def test_views_are_no_blocks() -> None:
    def capture(*views: nn.Module) -> MemoryTrace:
        net = nn.Sequential(nn.Linear(256, 64), *views, nn.Linear(64, 8))
        return capture_memory(net, INPUT, options=StepOptions(loss="sum"))

    plain, viewed = capture(), capture(nn.Unflatten(1, (8, 8)), nn.Flatten(1))
    assert viewed.sizes.tolist() == plain.sizes.tolist()


def test_checkpointing_keeps_less() -> None:
    def build() -> nn.Module:
        block = [nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(8)]
        return nn.Sequential(*block)

    kept = find_peak(capture_memory(build(), INPUT, options=StepOptions(loss="sum")))
    again = find_peak(capture_memory(build(), INPUT, options=StepOptions(loss="sum", checkpointing=True)))
    assert again < 0.8 * kept


def build_llama() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=100,
    )
    model: nn.Module = transformers.LlamaForCausalLM(config)
    return model


TOKENS = [InputSpec(shape=(8, 256), dtype="int64", high=100, name=name) for name in ("input_ids", "labels")]


def test_less_is_recomputed_as_asked() -> None:
    def measure(**options: Any) -> int:
        return find_peak(capture_memory(build_llama(), TOKENS, options=StepOptions(**options)))

    every, second = measure(checkpointing=True), measure(checkpointing=True, recompute="every=2")
    cheap, none = measure(checkpointing=True, recompute="cheap"), measure()
    assert every < second < none
    assert every < cheap < none


def test_dropout_keeps_a_mask_of_truth_values_as_on_a_gpu() -> None:
    def measure(*layers: nn.Module) -> int:
        net = nn.Sequential(nn.Linear(256, 4096), *layers, nn.Linear(4096, 8))
        trace = capture_memory(net, INPUT, options=StepOptions(loss="sum"))
        return trace.measure(MemoryKind.ACTIVATIONS) // 2

    assert measure(nn.Dropout(0.5)) - measure() == pytest.approx(512 * 4096 * (1 + 4) - 512 * 4096 * 4, abs=1024)


def test_mixed_precision_casts_weights_once_for_each_batch() -> None:
    trace = capture_memory(build_net(), INPUT, options=StepOptions(loss="sum", precision="bf16"))
    matrices = 2 * (2 * 256 * 1024 + 1024 + 256)  # the layer norm is not cast
    assert trace.measure(MemoryKind.CASTS) == 2 * matrices


def test_two_batches_of_an_update_keep_gradients() -> None:
    one = capture_memory(build_net(), INPUT, options=StepOptions(loss="sum"))
    two = capture_memory(build_net(), INPUT, options=StepOptions(loss="sum", accumulation=4))
    phases = [phase for event, phase in two.phases if event >= two.second]
    assert phases == [StepPhase.FORWARD, StepPhase.BACKWARD] * 2 + [StepPhase.UPDATE]
    assert find_peak(two) > find_peak(one)


def test_inference_keeps_nothing() -> None:
    trace = capture_memory(build_net(), INPUT, options=StepOptions(mode="inference"))
    assert trace.measure(MemoryKind.ACTIVATIONS) == 0
    assert trace.measure(MemoryKind.GRADIENTS) == 0


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.layers(images).mean((2, 3)))
        return out


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 1000)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.layers(self.table(ids)))
        return out


@pytest.mark.parametrize(
    ("build", "given"),
    [
        (build_net, InputSpec(shape=(512, 256))),
        (Convolutions, InputSpec(shape=(8, 3, 64, 64))),
        (Words, InputSpec(shape=(4, 32), dtype="int64", high=1000)),
    ],
)
@pytest.mark.parametrize("batch", [8, 64])
def test_the_same_blocks_come_at_every_batch(build: Callable[[], nn.Module], given: InputSpec, batch: int) -> None:
    other = InputSpec(shape=(batch, *given.shape[1:]), dtype=given.dtype, high=given.high)
    one, two = (capture_memory(build(), [each], options=StepOptions()) for each in (given, other))
    assert np.array_equal(one.events, two.events)


def test_generated_text_needs_its_cache() -> None:
    options = StepOptions(mode="generate", prompt=48, new=17)
    ids = [InputSpec(shape=(4, 8), dtype="int64", high=100)]
    trace = capture_generation_memory(build_llama(), ids, options=options)
    second = trace.events[trace.second :]
    made = second[second > 0] - 1
    before = made[: int(np.argmax(trace.kinds[made] != MemoryKind.CACHE))]  # the cache with which the last step begins
    layers, kinds, batch, tokens, heads, size = 4, 2, 4, 48 + 17 - 2, 2, 16
    assert trace.sizes[before].sum() == layers * kinds * batch * tokens * heads * size * 4
    assert trace.length == 48


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_blocks_are_freed_when_their_last_reference_goes_not_by_the_garbage_collector(precision: str) -> None:
    options = StepOptions(precision=precision, checkpointing=True, loss="sum")

    def record() -> MemoryTrace:
        layers = [nn.TransformerEncoderLayer(32, 2, 64, batch_first=True) for _ in range(3)]
        return capture_memory(nn.Sequential(*layers), [InputSpec(shape=(2, 8, 32))], options=options)

    threshold = gc.get_threshold()
    gc.set_threshold(20)
    try:
        often = record()
        gc.disable()
        never = record()
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
    assert np.array_equal(never.events, often.events)


def test_recurrent_layers_of_a_gpu_are_noted() -> None:
    given, options = [InputSpec(shape=(2, 8, 16))], StepOptions(mode="inference")
    notes = {
        on_gpu: capture_memory(nn.LSTM(16, 16), given, options=options, on_gpu=on_gpu).notes for on_gpu in (True, False)
    }
    assert any("cuDNN" in note for note in notes[True])
    assert not notes[False]
