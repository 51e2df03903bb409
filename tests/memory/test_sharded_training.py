"""Strategies against PyTorch: the live peak of one rank while it trains, its collectives without the other ranks."""

import pytest
from tests.memory.sharded_training import RANKS, TOKENS, VOCABULARY, Transformer, measure_peak, one_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)

from foretell.core.layouts import parse_layout
from foretell.core.memory import MemoryTrace
from foretell.memory.layout_shards import apply_layout
from foretell.memory.pipeline_stages import find_live_peak
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import InputSpec, StepOptions

BATCHES = [2, 16]  # the peak is in the update, and in the backward phase


def record(batch: int, *, implementation: str = "foreach") -> MemoryTrace:
    inputs = [InputSpec(shape=(batch, TOKENS), dtype="int64", high=VOCABULARY)]
    options = StepOptions(optimizer="adamw", loss="cross_entropy", implementation=implementation)
    return capture_memory(Transformer(), inputs, options=options)


def predict(trace: MemoryTrace, layout: str) -> int:
    return find_live_peak(apply_layout(trace, parse_layout(layout, gpus=RANKS)))


@pytest.mark.parametrize("batch", BATCHES)
def test_whole(batch: int) -> None:
    assert find_live_peak(record(batch)) == pytest.approx(measure_peak(lambda model: model, batch=batch), rel=0.001)


@pytest.mark.parametrize("batch", BATCHES)
def test_fsdp(batch: int) -> None:
    def shard(model: Transformer) -> Transformer:
        mesh = init_device_mesh("cpu", (RANKS,))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    with one_of():
        measured = measure_peak(shard, batch=batch)
    assert predict(record(batch), "fsdp") == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize("batch", BATCHES)
def test_tensor_parallel(batch: int) -> None:
    plan: dict[str, ParallelStyle] = {}
    plan |= {f"attn.{name}_proj": ColwiseParallel() for name in "qkv"}
    plan |= {"attn.o_proj": RowwiseParallel(), "mlp.fc1": ColwiseParallel(), "mlp.fc2": RowwiseParallel()}
    ends: dict[str, ParallelStyle] = {
        "embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }

    def shard(model: Transformer) -> Transformer:
        mesh = init_device_mesh("cpu", (RANKS,))
        for layer in model.layers:
            parallelize_module(layer, mesh, plan)
        parallelize_module(model, mesh, ends)
        return model

    with one_of(), loss_parallel():
        measured = measure_peak(shard, batch=batch, foreach=False)
    assert predict(record(batch, implementation="for-loop"), f"tp={RANKS}") == pytest.approx(measured, rel=0.03)
