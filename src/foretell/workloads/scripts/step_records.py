"""The recorded step as plain values, built in the process of the script."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from foretell.core.workload import Workload
from foretell.workloads.capture import build_operators
from foretell.workloads.fused_chains import fuse_chains
from foretell.workloads.measurement_files import workload_to_record
from foretell.workloads.memory_records import trace_to_record
from foretell.workloads.operator_records import Record, build_gradients, build_sources
from foretell.workloads.scripts.host_facts import read_own_bytes
from foretell.workloads.scripts.loop_counts import find_counts
from foretell.workloads.scripts.script_facts import ScriptFacts, facts_to_record
from foretell.workloads.scripts.script_recorder import ScriptRecorder
from foretell.workloads.scripts.script_values import count_items
from foretell.workloads.scripts.step_watch import StepWatch
from foretell.workloads.scripts.training_counts import TrainingCounts

_PURE = {torch.bfloat16: "pure-bf16", torch.float16: "pure-fp16", torch.float64: "fp64"}
_MIXED = {torch.bfloat16: "bf16", torch.float16: "fp16"}


def build_result(watch: StepWatch, frame: FrameType | None) -> dict[str, Any]:
    """The step, what is known of the training, and what to know about the recording."""
    recorder = watch.recorder
    assert recorder is not None
    records = _select(recorder, watch)
    workload = _build_workload(recorder, records, watch)
    return {
        "workload": workload_to_record(workload),
        "sources": [list(each) for each in workload.sources],
        "facts": facts_to_record(_find_facts(watch, frame)),
        "waiting": sorted({type(each).__name__ for each in watch.find_waiting()}),
    }


def add_memory(result: Mapping[str, Any], watch: StepWatch) -> dict[str, Any]:
    """The step with the memory that was recorded so far."""
    assert watch.memory is not None
    workload = result["workload"]
    trace = watch.memory.finish(
        steps=watch.steps,
        name=workload["name"],
        batch=workload["batch"],
        settings=workload["settings"],
        parameters=workload["parameters"],
        notes=list(_list_memory_notes(watch)),
    )
    return {**result, "memory": trace_to_record(trace)}


def _list_memory_notes(watch: StepWatch) -> Iterator[str]:
    if watch.steps == 1:
        yield "the script took one step only; the later ones, which start with its states, are not known"
    if watch.other_on_gpu:
        yield "the script took no further step in which dropout and attention ran as on a GPU; they ran as on a CPU"
    if watch.compiled:
        yield "torch.compile: recorded as the code is written; compiled code fuses operators and keeps fewer tensors"
    for name in watch.wrappers:
        if name in ("FullyShardedDataParallel", "fully_shard"):
            yield f"{name}: recorded in one process, which holds all weights, gradients and states"


def _select(recorder: ScriptRecorder, watch: StepWatch) -> list[Record]:
    """Records of the step. Calls before the first module in training count if the step reads their results."""
    records = recorder.records[: watch.kept]
    first = watch.first or 0
    needed: set[int] = set()
    kept = []
    for record in reversed(records):
        if record.number >= first or record.number in needed:
            kept.append(record)
            needed.update(recorder.follow(each) for each in record.sources)
    return kept[::-1]


def _build_workload(recorder: ScriptRecorder, records: Sequence[Record], watch: StepWatch) -> Workload:
    for record in records:
        record.layer = watch.paths.describe(record.layer)
    operators, layers, views = build_operators(records, recorder.first_node)
    workload = Workload(
        name="script",
        operators=tuple(operators),
        layers=tuple(layers),
        views=tuple(views),
        batch=max(1, watch.find_batch_size()),
        settings=_find_settings(records, watch),
        parameters=watch.paths.count_parameters(),
        sources=build_sources(records, recorder.merged),
        gradients=build_gradients(records, recorder.gradients.values(), recorder.merged),
    )
    return fuse_chains(workload) if watch.compiled else workload


def _find_settings(records: Sequence[Record], watch: StepWatch) -> dict[str, str]:
    kinds = {record.kind for record in records if record.phase == "update"}
    parameters = [each for root in watch.paths.roots for each in root.parameters()]
    return {
        "loss": "own",
        "optimizer": type(watch.stepped[0]).__name__.lower() if watch.stepped else "",
        "implementation": _find_implementation(kinds),
        "accumulation": str(watch.count_batches()),
        "checkpointing": "yes" if watch.checkpointing else "no",
        "mode": "training",
        "precision": _find_precision(parameters, watch),
        "channels_last": "yes" if any(map(_has_channels_last, parameters)) else "no",
        "compile": "yes" if watch.compiled else "no",
    }


def _find_implementation(kinds: Iterable[str]) -> str:
    for word, name in (("_fused_", "fused"), ("_foreach_", "foreach")):
        if any(kind.startswith(word) for kind in kinds):
            return name
    return "for-loop"


def _find_precision(parameters: Sequence[torch.Tensor], watch: StepWatch) -> str:
    for dtype, name in _MIXED.items():
        if dtype in watch.mixed:
            return name
    elements: dict[torch.dtype, int] = {}
    for each in parameters:
        elements[each.dtype] = elements.get(each.dtype, 0) + each.numel()
    most = max(elements, key=lambda dtype: elements[dtype], default=torch.float32)
    if most in _PURE:
        return _PURE[most]
    return "tf32" if _allows_tf32() else "fp32"


def _allows_tf32() -> bool:
    """Whether products of matrices may be computed in TF32."""
    try:
        return torch.backends.cuda.matmul.allow_tf32 or torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # PyTorch refuses to answer by the old names once a script has used the new ones
        return str(torch.backends.cuda.matmul.fp32_precision) == "tf32"


def _has_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def _find_facts(watch: StepWatch, frame: FrameType | None) -> ScriptFacts:
    optimizer = watch.stepped[0] if watch.stepped else None
    group = optimizer.param_groups[0] if optimizer is not None else {}
    rate = group.get("initial_lr", group.get("lr"))  # a schedule may begin with none
    accumulation = watch.count_batches()
    try:
        counts = find_counts(frame, watch.loader, accumulation=accumulation)
    except Exception:  # code that nobody expected: the step is known all the same
        counts = TrainingCounts(batches=count_items(watch.loader))
    return ScriptFacts(
        optimizer=type(optimizer).__name__ if optimizer is not None else "",
        learning_rate=float(rate) if rate is not None else None,
        samples=count_items(getattr(watch.loader, "dataset", None)),
        batches=counts.batches,
        epochs=counts.epochs,
        steps=counts.steps,
        batch_size=watch.find_batch_size(),
        accumulation=accumulation,
        load_s=watch.find_load_s(),
        evaluation_batches=counts.evaluation_batches,
        saves_per_epoch=counts.saves_per_epoch,
        processes=_count_processes(),
        gpu=watch.gpu,
        wrappers=tuple(watch.wrappers),
        **_find_host_facts(watch),
    )


def _find_host_facts(watch: StepWatch) -> dict[str, Any]:
    workers = getattr(watch.loader, "num_workers", None)
    own = [size for each in watch.list_workers() if (size := read_own_bytes(each)) is not None]
    moved = watch.memory.moved_bytes if watch.memory is not None else None
    others = watch.own_bytes + (watch.memory.resident_bytes if watch.memory is not None else 0)
    return {
        "workers": workers,
        "prefetch": getattr(watch.loader, "prefetch_factor", None) if workers else None,
        "pin_memory": getattr(watch.loader, "pin_memory", None),
        "batch_bytes": watch.batch_bytes,
        "process_bytes": None if watch.process_bytes is None else max(0, watch.process_bytes - others),
        "worker_bytes": max(own, default=None),
        "moved_bytes": moved,
    }


def _count_processes() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
