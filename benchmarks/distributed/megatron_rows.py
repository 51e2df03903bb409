"""Steps of language models on H100, B200, B300 and GB200, published with Megatron-Bridge and NeMo.

https://github.com/NVIDIA-NeMo/Megatron-Bridge/blob/main/docs/performance-summary.md. Weights are in bfloat16, the
states of the optimizer are divided among the copies (``use_distributed_optimizer``), the sequence among the GPUs of
tensor parallelism; exchanges overlap with computing.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.distributed.decoders import Decoder, DecoderShape
from benchmarks.distributed.eight_bits import BLOCKS, TENSORS, fuse, scale_and_fuse
from benchmarks.distributed.megatron_models import SHAPES
from benchmarks.distributed.model_captures import read_language_model, with_own_attention
from benchmarks.distributed.shared_rows import PredictedRow, SharedRow, judge_predicted, predict_rows
from benchmarks.gpus.results import DATA, Result
from foretell.core.devices import get_device
from foretell.core.layouts import parse_layout
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.workloads.step_options import StepOptions

_SYSTEMS = {"DGX-H100": ("H100", 8), "DGX-B200": ("B200", 8), "DGX-B300": ("B300", 8), "DGX-GB200": ("GB200", 4)}
_FACTORS = {"BF16": "", "FP8": TENSORS, "FP8-CS": TENSORS, "MXFP8": BLOCKS, "FP8-MX": BLOCKS}
_OPTIONS = StepOptions(precision="pure-bf16", optimizer="adam", implementation="fused", loss="own")
_NEWEST = "26.08"
_GOAL, _GOAL_ONE = 12.0, 7.0


def judge_megatron(devices: Sequence[str] = ()) -> list[Result]:
    """Without any measured step, of the newest software alone, and with one step of the same system."""
    rows = [each for each in predict_megatron() if not devices or each.row.topology.device.name in devices]
    found = judge_predicted("Megatron-Bridge", "all", rows, most=_GOAL, by="median", note=_describe_left_out())
    for system in _SYSTEMS:
        own = [each for each in rows if each.row.group == system]
        found += judge_predicted("Megatron-Bridge", system, own)
    for name, with_experts in (("dense", False), ("experts", True)):
        own = [each for each in rows if _has_experts(each) is with_experts]
        found += judge_predicted("Megatron-Bridge", name, own)
    newest = find_newest(rows)
    found += judge_predicted("Megatron-Bridge", "newest of each recipe", newest, most=_GOAL, by="median")
    found += _judge_one_row("newest of each recipe", newest)
    for name, with_experts in (("dense", False), ("experts", True)):
        found += _judge_one_row(f"newest, {name}", [each for each in newest if _has_experts(each) is with_experts])
    return found + _judge_one_row("all", rows)


def _has_experts(each: PredictedRow) -> bool:
    return SHAPES[each.row.model].mixture is not None


def find_newest(rows: Sequence[PredictedRow]) -> list[PredictedRow]:
    """Of each recipe, the row of the newest release that has it."""
    kept: dict[tuple[str, ...], PredictedRow] = {}
    for each in sorted(rows, key=lambda row: row.row.facts["release"]):
        row = each.row
        kept[row.group, row.model.partition(" ")[0], row.facts["precision"], str(row.layout.gpus)] = each
    return list(kept.values())


def _judge_one_row(group: str, rows: Sequence[PredictedRow]) -> list[Result]:
    """Each row, moved by the error of each other row of its system, of another model."""
    kept: list[PredictedRow] = []
    factors: dict[int, float] = {}
    for each in rows:
        for other in rows:
            if other.row.group == each.row.group and other.row.model != each.row.model:
                factors[len(kept)] = float(np.exp(other.log_error))
                kept.append(each)
    return judge_predicted(
        "Megatron-Bridge, one row", group, kept, most=_GOAL_ONE, by="median", factors=factors, note="every pair"
    )


@cache
def predict_megatron() -> tuple[PredictedRow, ...]:
    """The predicted rows."""
    return tuple(predict_rows(list_rows()))


def list_rows() -> list[SharedRow]:
    """The measured steps that can be predicted."""
    return [_build_row(row) for row in _read_table() if not _find_obstacle(row)]


def _describe_left_out() -> str:
    counts = Counter(reason for row in _read_table() if (reason := _find_obstacle(row)))
    text = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    print(f"Megatron-Bridge: left out {text}", file=sys.stderr)
    return f"left out {text}"


@cache
def _read_table() -> tuple[Any, ...]:
    table: Any = pd.read_csv(DATA / "megatron_bridge" / "training_throughput.csv", dtype=str, keep_default_na=False)
    return tuple(table.itertuples())


def _find_obstacle(row: Any) -> str:
    """Why a row cannot be predicted; nothing if it can."""
    if "Pre" not in f"{row.task} {row.section}":
        return "fine-tuning"
    if any("(" in value for value in (row.fsdp, row.tp, row.pp, row.cp, row.vp, row.tokens_per_s_per_gpu)):
        return "two settings in a cell"
    if row.precision == "NVFP4":
        return "NVFP4"
    if row.precision not in _FACTORS:
        return "without precision"
    if row.model not in SHAPES:
        return "with Mamba or unpublished parts"
    return ""


def _build_row(row: Any) -> SharedRow:
    device, gpus_per_node = _SYSTEMS[row.system]
    gpus, batch, tokens = int(row.gpus), int(row.mbs), int(row.seq_len)
    tp, pp, cp = (_read_count(each) for each in (row.tp, row.pp, row.cp))
    copies = gpus // (tp * pp * cp)
    batches = int(row.gbs) // (batch * copies)
    words = [f"tp={tp}", f"pp={pp}", f"cp={cp}", f"ep={_read_count(row.ep)}"]
    words += ["zero1"] if copies * cp > 1 else []
    words += ["sp"] if tp > 1 else []
    words += [f"micro={batches}", f"interleave={_read_count(row.vp)}"] if pp > 1 else []
    factors = _FACTORS[row.precision]
    shape = SHAPES[row.model]
    # The recipes of dense models set tp_comm_overlap (userbuffers_*_h16384_tp8_* and others, named after their sizes):
    # https://github.com/NVIDIA/NeMo/blob/main/nemo/collections/llm/recipes/tp_overlap_configs/userbuffers.py
    words += ["tp-overlap"] if tp > 1 and shape.mixture is None else []
    return SharedRow(
        source="Megatron-Bridge",
        group=row.system,
        model=row.model,
        workload=f"{row.model.partition(' ')[0]} {shape.predicted_layers} {batch} {tokens} {factors}",
        layout=parse_layout(",".join(words), gpus=gpus),
        topology=Topology(device=get_device(device), gpus_per_node=gpus_per_node),
        accumulation=batches,
        seconds=int(row.gbs) * tokens / (float(row.tokens_per_s_per_gpu) * gpus),
        read=partial(_read, shape, batch, tokens, factors),
        facts={"release": row.release, "precision": row.precision, "batch": row.mbs},
    )


def _read_count(text: str) -> int:
    return int(float(text)) if text else 1


def _read(shape: DecoderShape, batch: int, tokens: int, factors: str) -> Workload:
    step = read_language_model(
        f"Megatron-Core {shape} {factors}",
        partial(Decoder, shape),
        batch=batch,
        tokens=tokens,
        words=shape.words,
        options=_OPTIONS,
        change=partial(scale_and_fuse, factors=factors) if factors else fuse,
    )
    return with_own_attention(step)
