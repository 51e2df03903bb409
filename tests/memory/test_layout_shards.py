from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.memory.sharded_training import TOKENS, VOCABULARY, Transformer
from torch import nn

from foretell.core.errors import SpecError
from foretell.core.layouts import DATA_PARALLEL, Layout, parse_layout
from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.memory import zero_shards
from foretell.memory.layout_shards import NCCL_BYTES, apply_layout
from foretell.memory.pipeline_stages import find_live_peak
from foretell.memory.step_events import repeat_steps
from foretell.memory.usage import measure_usage
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import InputSpec, StepOptions

EVERY = [*DATA_PARALLEL, "tp=2,ddp", "tp=2,sp,ddp", "pp=2,ddp", "tp=2,pp=2,zero1", "pp=2,fsdp", "tp=2,pp=2,dp=2,zero3"]
FSDP = ["fsdp,wrap=2", "fsdp,wrap=0", "fsdp,keep", "fsdp,keep,wrap=2", "fsdp,half-reduce", "fsdp,hsdp=4"]


def record(precision: str = "pure-bf16", *, accumulation: int = 1, layers: int = 4) -> MemoryTrace:
    options = StepOptions(optimizer="adamw", precision=precision, loss="cross_entropy", accumulation=accumulation)
    inputs = [InputSpec(shape=(2, TOKENS), dtype="int64", high=VOCABULARY)]
    return capture_memory(Transformer(layers), inputs, options=options)


@pytest.fixture(scope="module")
def half() -> MemoryTrace:
    return record()


@pytest.fixture(scope="module")
def mixed() -> MemoryTrace:
    return record("bf16")


@pytest.fixture
def every_weight_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also small ones, and gathered only while they are used: this network has no others."""
    monkeypatch.setattr(zero_shards, "_PERSISTENT", 0)
    for name in ("_REUSE_DISTANCE", "_PREFETCH_BUCKET"):
        monkeypatch.setattr(zero_shards, name, 0)


def share(trace: MemoryTrace, text: str, *, gpus: int = 8, offload: str = "") -> MemoryTrace:
    return apply_layout(trace, parse_layout(text, gpus=gpus, offload=offload))


def at_update(trace: MemoryTrace, kinds: tuple[MemoryKind, ...]) -> int:
    """Bytes of these kinds when the second update begins."""
    end = trace.phases[-1][0]
    born = set((trace.events[:end][trace.events[:end] > 0] - 1).tolist())
    initial = set(range(len(trace.sizes))) - set((trace.events[trace.events > 0] - 1).tolist())
    freed = set((-trace.events[:end][trace.events[:end] < 0] - 1).tolist())
    return sum(int(trace.sizes[each]) for each in (born | initial) - freed if trace.kinds[each] in kinds)


class Recurrent(nn.Module):
    """A network whose first layer gets its gradients after the layer itself has run backward."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 16)
        self.layers = nn.ModuleList(nn.LSTM(16, 16, batch_first=True) for _ in range(2))
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = self.table(ids)
        for layer in self.layers:
            found, _ = layer(found)
        scores: torch.Tensor = self.head(found)
        return scores


@pytest.mark.parametrize("text", [*DATA_PARALLEL, *FSDP])
def test_every_block_of_a_recurrent_network_is_allocated_before_it_is_freed(text: str) -> None:
    inputs = [InputSpec(shape=(2, 8), dtype="int64", high=VOCABULARY)]
    trace = capture_memory(Recurrent(), inputs, options=StepOptions(optimizer="adamw", precision="bf16"))
    assert measure_usage(share(trace, text, gpus=4)).allocated_bytes > 0


def test_options_of_fsdp_change_what_they_say(mixed: MemoryTrace) -> None:
    def measure(text: str, gpus: int = 64) -> int:
        return find_live_peak(share(mixed, text, gpus=gpus))

    usual = measure("fsdp")
    assert measure("fsdp,wrap=2") > usual  # two layers are gathered at once
    assert measure("fsdp,wrap=0") > measure("fsdp,wrap=2")
    assert measure("fsdp,keep") > usual
    assert measure("fsdp,half-reduce") <= usual
    assert usual < measure("fsdp,hsdp=8") == measure("fsdp", gpus=8)


@pytest.mark.parametrize(
    ("text", "said"),
    [("zero3,keep", "fsdp, which these belong to"), ("fsdp,hsdp=3", "1, 2, 4, 8"), ("fsdp,kept", "keep")],
)
def test_options_of_fsdp_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_layout(text, gpus=8)


@pytest.mark.parametrize(
    ("stage", "bytes_of"),
    [(1, lambda n: 2 + 2 + 12 / n), (2, lambda n: 2 + 14 / n), (3, lambda n: 16 / n)],
)
@pytest.mark.usefixtures("every_weight_divided")
def test_states_of_zero_follow_its_paper(half: MemoryTrace, stage: int, bytes_of: Callable[[int], float]) -> None:
    gpus, states = 8, (MemoryKind.WEIGHTS, MemoryKind.GRADIENTS, MemoryKind.OPTIMIZER)
    trace = share(half, f"zero{stage}", gpus=gpus)
    whole = at_update(trace, states)
    assert whole / half.parameters == pytest.approx(bytes_of(gpus), rel=0.01)


@pytest.mark.parametrize("text", [*EVERY, *FSDP])
def test_events_are_those_of_a_step(mixed: MemoryTrace, text: str) -> None:
    trace = share(mixed, text)
    live = set(range(len(trace.sizes))) - set((trace.events[trace.events > 0] - 1).tolist())
    for event in trace.events.tolist():
        if event > 0:
            assert event - 1 not in live
            live.add(event - 1)
        else:
            live.remove(-event - 1)
    assert len(trace.events) == len(trace.places)
    assert [phase for _, phase in trace.phases] == [phase for _, phase in mixed.phases]
    assert trace.sizes.min() >= 0


@pytest.mark.parametrize("text", [*EVERY, *FSDP])
def test_later_steps_leave_no_more_than_earlier_ones(mixed: MemoryTrace, text: str) -> None:
    trace = share(mixed, text)

    def count_left(steps: int) -> int:
        repeated = repeat_steps(trace, steps)
        return len(repeated.find_initial()) + int(np.sign(repeated.events).sum())

    assert count_left(5) == count_left(3)


@pytest.mark.parametrize("text", EVERY)
@pytest.mark.usefixtures("every_weight_divided")
def test_inference_is_divided_as_well(text: str) -> None:
    trace = capture_memory(
        Transformer(4),
        [InputSpec(shape=(2, TOKENS), dtype="int64", high=VOCABULARY)],
        options=StepOptions(mode="inference", precision="pure-bf16"),
    )
    shared = share(trace, text)
    divides = "tp" in text or "pp" in text or text in ("zero3", "fsdp")
    assert (find_live_peak(shared) < find_live_peak(trace)) == divides
    assert shared.measure(MemoryKind.GRADIENTS) == 0


@pytest.mark.parametrize("text", ["zero1", "zero2", "zero3", "fsdp"])
def test_more_gpus_never_need_more_each(half: MemoryTrace, text: str) -> None:
    peaks = [find_live_peak(share(half, text, gpus=gpus)) for gpus in (2, 4, 8, 64)]
    assert peaks == sorted(peaks, reverse=True)


def test_buckets_of_ddp_are_a_second_copy_of_all_gradients(mixed: MemoryTrace) -> None:
    trace = share(mixed, "ddp")
    assert trace.measure(MemoryKind.COMMUNICATION) == 4 * mixed.parameters
    buckets = trace.sizes[trace.kinds == MemoryKind.COMMUNICATION]
    assert buckets[0] >= 2**20
    assert trace.outside_bytes == NCCL_BYTES


def test_fsdp_gathers_one_layer_and_the_next(half: MemoryTrace) -> None:
    trace = share(half, "fsdp", gpus=64)
    whole = half.measure(MemoryKind.WEIGHTS)
    layer = sum(
        int(size)
        for size, owner, kind in zip(half.sizes, half.owners, half.kinds, strict=True)
        if kind == MemoryKind.WEIGHTS and half.owner_names[owner][1].startswith("layers.0.")
    )
    root = whole - 4 * layer
    for first, phase in trace.phases[:2]:
        live = _find_most(trace, MemoryKind.WEIGHTS, first, trace.phases[2][0])
        assert live == pytest.approx(whole / 64 + root + layer, rel=0.01), phase


def _find_most(trace: MemoryTrace, kind: MemoryKind, start: int, end: int) -> int:
    initial = np.ones(len(trace.sizes), dtype=bool)
    initial[trace.events[trace.events > 0] - 1] = False
    blocks = np.abs(trace.events) - 1
    course = np.cumsum(np.sign(trace.events) * trace.sizes[blocks] * (trace.kinds[blocks] == kind))
    return int(trace.sizes[initial & (trace.kinds == kind)].sum() + course[start:end].max())


def test_pipeline_keeps_the_activations_of_as_many_batches_as_stages() -> None:
    trace = record("fp32", accumulation=2, layers=8)
    short, long = (share(trace, f"pp=4,micro={micro}", gpus=4) for micro in (2, 16))
    kept = [_find_most(each, MemoryKind.ACTIVATIONS, *_first_forward(each)) for each in (trace, short, long)]
    assert kept[2] / kept[1] == pytest.approx(2, rel=0.1)  # four batches, not sixteen, and two
    assert kept[2] == pytest.approx(kept[0], rel=0.35)  # a quarter of the layers, four times


def _first_forward(trace: MemoryTrace) -> tuple[int, int]:
    return trace.phases[0][0], trace.phases[1][0]


@pytest.mark.parametrize(("text", "offload"), [("zero2", "optimizer"), ("zero3", "parameters"), ("fsdp", "parameters")])
def test_offload_moves_states_to_the_host(half: MemoryTrace, text: str, offload: str) -> None:
    here, moved = share(half, text), share(half, text, offload=offload)
    assert moved.measure(MemoryKind.OPTIMIZER) == 0
    assert find_live_peak(moved) < find_live_peak(here)
    assert moved.host_bytes >= here.measure(MemoryKind.OPTIMIZER)


def test_one_gpu_saves_nothing_by_zero(half: MemoryTrace) -> None:
    assert any("saves no memory" in note for note in share(half, "zero2", gpus=1).notes)


@pytest.mark.parametrize(
    ("text", "gpus", "expected"),
    [
        ("zero1,fsdp", 8, "one of them"),
        ("tp=3,pp=2,dp=2", 16, "12 GPUs"),
        ("tp=3,ddp", 8, "a multiple of 3"),
        ("zero4", 8, "zero3"),
        ("sp,ddp", 8, "tp=2 or more"),
        ("micro=4,ddp", 8, "pp=2"),
        ("pp=0,ddp", 8, "1 or more"),
    ],
)
def test_contradictions_are_refused(text: str, gpus: int, expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        parse_layout(text, gpus=gpus)


@pytest.mark.parametrize(
    ("text", "gpus", "expected"), [("tp=3", 3, "divisor of the 4 heads"), ("pp=8", 8, "at most 4, the repeated layers")]
)
def test_models_that_cannot_be_divided_so_are_refused(half: MemoryTrace, text: str, gpus: int, expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        share(half, text, gpus=gpus)


def test_no_words_are_ddp() -> None:
    assert parse_layout("", gpus=4) == Layout(gpus=4, data_parallel="ddp")
    assert parse_layout("tp=4,pp=2") == Layout(gpus=8, tensor_parallel=4, pipeline_parallel=2)
