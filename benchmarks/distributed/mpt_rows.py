"""Steps of MPT on 8 to 512 A100 and H100, published with LLM Foundry: PyTorch's FSDP, in bfloat16.

https://github.com/mosaicml/llm-foundry/tree/main/scripts/train/benchmarking. Precision ``PURE`` computes and reduces
gradients in bfloat16, ``DEFAULT`` has autocast and reduces in single precision; SHARD_GRAD_OP keeps gathered weights
until the backward phase has ended. Attention was a kernel for Triton of early 2023, with PyTorch 2.0.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import pandas as pd

from benchmarks.distributed.model_captures import read_language_model
from benchmarks.distributed.mpt import SHAPES, Mpt
from benchmarks.distributed.shared_rows import PredictedRow, SharedRow, judge_predicted, predict_rows
from benchmarks.gpus.results import DATA, Result
from foretell.core.devices import get_device
from foretell.core.layouts import parse_layout
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.workloads.step_options import StepOptions

_DEVICES = {"a100_40gb": "A100-40", "a100_80gb": "A100-80", "h100_80gb": "H100"}
_NETWORK_BYTES = {"a100_40gb": 25e9, "a100_80gb": 25e9, "h100_80gb": 0.0}  # 1600 Gb/s of eight A100; the device's own
_GOAL = 10.0
_USUAL = 2048  # tokens
_NAMES = {
    "Model": "model",
    "SeqLen (T)": "tokens",
    "# GPUs": "gpus",
    "GPU": "device",
    "MicroBatchSize": "batch",
    "GradAccum": "batches",
    "GlobalBatchSize": "all_examples",
    "Throughput (T/s)": "rate",
    "Precision": "precision",
    "MP Mode": "mixed",
    "Sharding Strategy": "sharding",
    "Activation Checkpointing": "checkpointing",
}


def judge_mpt(devices: Sequence[str] = ()) -> list[Result]:
    """By device, and on many GPUs."""
    rows = [each for each in predict_mpt() if not devices or each.row.group in devices]
    note = "7 rows in eight bits left out"
    found = judge_predicted("MPT", "all", rows, most=_GOAL, by="median", note=note)
    for name in sorted({each.row.group for each in rows}):
        own = [each for each in rows if each.row.group == name]
        found += judge_predicted("MPT", name, own, most=_GOAL, by="median")
    for name, longer in (("up to 2,048 tokens", False), ("longer", True)):
        for device in ("A100", "H100"):
            own = [each for each in rows if _is_longer(each) is longer and each.row.group.startswith(device)]
            found += judge_predicted("MPT", f"{device}, {name}", own)
    many = [each for each in rows if each.row.layout.gpus > each.row.topology.gpus_per_node]
    return found + judge_predicted("MPT", "several nodes", many)


def _is_longer(each: PredictedRow) -> bool:
    return int(each.row.facts["tokens"]) > _USUAL


@cache
def predict_mpt() -> tuple[PredictedRow, ...]:
    """The predicted rows."""
    return tuple(predict_rows(list_rows()))


def list_rows() -> list[SharedRow]:
    """The measured steps in bfloat16. Those in eight bits do not say which products are."""
    table: Any = pd.read_csv(DATA / "llm_foundry_mpt" / "mpt_throughput.csv").rename(columns=_NAMES)
    return [_build_row(row) for row in table[list(_NAMES.values())].itertuples() if "fp8" not in row.precision]


def _build_row(row: Any) -> SharedRow:
    words = ["fsdp"]
    words += ["half-reduce"] if row.mixed == "PURE" else []
    words += ["keep"] if row.sharding == "SHARD_GRAD_OP" else []
    checkpointing = bool(row.checkpointing)
    precision = "pure-bf16" if row.mixed == "PURE" else "bf16"
    return SharedRow(
        source="MPT",
        group=_DEVICES[row.device],
        model=row.model,
        workload=f"{row.model} {row.batch} {row.tokens} {precision} {checkpointing}",
        layout=parse_layout(",".join(words), gpus=int(row.gpus)),
        topology=Topology(
            device=get_device(_DEVICES[row.device]), gpus_per_node=8, network_bytes=_NETWORK_BYTES[row.device]
        ),
        accumulation=int(row.batches),
        seconds=row.batches * row.batch * row.gpus * row.tokens / row.rate,
        read=partial(_read, row.model, int(row.batch), int(row.tokens), precision, checkpointing=checkpointing),
        facts={"batch": str(row.batch), "tokens": str(row.tokens)},
    )


def _read(model: str, batch: int, tokens: int, precision: str, *, checkpointing: bool) -> Workload:
    return read_language_model(
        f"MPT {SHAPES[model]}",
        lambda: Mpt(SHAPES[model], tokens),
        batch=batch,
        tokens=tokens,
        words=50368,
        options=StepOptions(precision=precision, optimizer="adamw", checkpointing=checkpointing, loss="own"),
    )
