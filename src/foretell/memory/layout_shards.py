"""How a step is shared among GPUs: what one of them holds, the one that holds most."""

from collections.abc import Iterator
from dataclasses import replace

from foretell.core.layouts import Layout
from foretell.core.memory import MemoryTrace
from foretell.memory.context_shards import shard_sequences
from foretell.memory.expert_shards import shard_experts
from foretell.memory.fsdp_shards import shard_layers
from foretell.memory.gradient_buckets import add_buckets
from foretell.memory.pipeline_stages import split_stages
from foretell.memory.tensor_shards import shard_tensors
from foretell.memory.zero_shards import shard_states
from foretell.workloads.step_options import StepOptions

# A ring of one communicator has in each channel one buffer for each protocol: LL 8 lines x 512 threads x 8 steps x 16
# bytes, LL128 120 elements x 640 threads x 8 steps x 8 bytes, Simple 4 MiB (NCCL_BUFFSIZE), see NCCL's device.h and
# init.cc. Between GPUs joined by NVSwitch there are 24 channels.
NCCL_BYTES = 24 * (8 * 512 * 8 * 16 + 120 * 640 * 8 * 8 + 4 * 2**20)


def adapt_options(options: StepOptions, layout: Layout) -> StepOptions:
    """The options with which one GPU runs a step: ZeRO trains in half precision, a pipeline in several batches."""
    half = layout.trains_in_half and options.precision in ("bf16", "fp16")
    batches = max(options.accumulation, layout.accumulated) if options.mode == "training" else options.accumulation
    return replace(options, precision=f"pure-{options.precision}" if half else options.precision, accumulation=batches)


def apply_layout(trace: MemoryTrace, layout: Layout) -> MemoryTrace:
    """What one GPU holds: of several unequal ones, the one that holds most. The recorded batch is that of one GPU.

    Raises:
        SpecError: The model cannot be divided so.
    """
    if layout.context_parallel > 1:
        trace = shard_sequences(trace, layout.context_parallel)
    if layout.expert_parallel > 1:
        trace = shard_experts(trace, layout.expert_parallel)
    if layout.tensor_parallel > 1:
        trace = shard_tensors(trace, layout.tensor_parallel, sequence=layout.sequence_parallel)
    if layout.pipeline_parallel > 1:
        trace = split_stages(trace, layout.pipeline_parallel, micro_batches=layout.accumulated)
    if layout.data_parallel == "ddp":
        trace = add_buckets(trace) if layout.copies > 1 else trace
    elif layout.data_parallel == "fsdp":
        trace = shard_layers(
            trace, layout.copies * layout.context_parallel, offload=bool(layout.offload), options=layout.sharding
        )
    elif layout.data_parallel or layout.offload:
        stage = int(layout.data_parallel[-1]) if layout.data_parallel else 1
        trace = shard_states(trace, layout.copies * layout.context_parallel, stage=stage, offload=layout.offload)
    return replace(
        trace,
        outside_bytes=trace.outside_bytes + _count_communicators(layout) * NCCL_BYTES,
        settings={**trace.settings, "gpus": str(layout.gpus), "layout": str(layout)},
        notes=(*trace.notes, *_find_notes(layout)),
    )


def _count_communicators(layout: Layout) -> int:
    return sum(size > 1 for size in _list_sizes(layout))


def _list_sizes(layout: Layout) -> tuple[int, ...]:
    shared = layout.copies * layout.context_parallel
    return shared, layout.tensor_parallel, layout.pipeline_parallel, layout.context_parallel, layout.expert_parallel


def _find_notes(layout: Layout) -> Iterator[str]:
    if layout.data_parallel not in ("", "ddp") and layout.copies * layout.context_parallel == 1 and not layout.offload:
        yield f"{layout.data_parallel} with one copy of the model divides nothing: it saves no memory"
