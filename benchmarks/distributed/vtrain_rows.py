"""Steps of GPTs on 2 to 512 A100, measured with Megatron-DeepSpeed by the authors of vTrain (MICRO 2024).

Each node has eight GPUs and 800 Gb/s; all activations are computed again (https://github.com/VIA-Research/vTrain, the
files in ``config/validation``). Gradients are reduced in half precision after the backward phase.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pandas as pd

from benchmarks.distributed.few_rows import judge_few_rows
from benchmarks.distributed.megatron_gpt import GptShape, MegatronGpt
from benchmarks.distributed.model_captures import read_megatron
from benchmarks.distributed.shared_rows import PredictedRow, SharedRow, judge_predicted, predict_rows
from benchmarks.gpus.results import DATA, Result
from foretell.core.devices import get_device
from foretell.core.layouts import parse_layout
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.workloads.step_options import StepOptions

_FILES = {"single": "ground_truth_single.csv", "multi": "ground_truth_multi.csv"}
_PUBLISHED = {"single": 8.37, "multi": 14.73}  # mean errors of vTrain
_GOALS = {"single": 8.0, "multi": 12.0}
_GOALS_FEW = {"single": 4.0, "multi": 7.0}
# 50,257 words, padded to a multiple of 128: that of the GPUs with a part of them is at most 1.8 % more.
_WORDS = 50304
_NETWORK_BYTES = 12.5e9  # of one GPU: 800 Gb/s for eight
_OPTIONS = StepOptions(precision="pure-fp16", optimizer="adam", implementation="fused", checkpointing=True, loss="own")
_NAMES = {
    "# GPUs": "gpus",
    "global batch": "all_examples",
    "micro batch": "batch",
    "hidden size": "width",
    "attention heads": "heads",
    "# layers": "layers",
    "sequence length": "tokens",
    "tensor parallelism": "tp",
    "data parallelism": "dp",
    "pipeline parallelism": "pp",
    "iteration time (ms)": "ms",
}


def judge_vtrain(devices: Sequence[str] = ()) -> list[Result]:
    """Without any measured step, and with 20 of the same table."""
    return [*judge_single(devices), *judge_multi(devices)]


def judge_single(_devices: Sequence[str] = ()) -> list[Result]:
    """On one node. Large batches on one GPU of a layer take less than its products with recomputation would alone (242
    TFLOP/s, and attention has no time): a second group of rows assumes that nothing was computed again.
    """
    kept = predict_single_kept()
    other = "single node, nothing computed again"
    return [
        *_judge("single", predict_single()),
        *judge_predicted(f"vTrain, {other}", "all", kept),
        *judge_few_rows(f"vTrain, {other}", kept),
    ]


def judge_multi(_devices: Sequence[str] = ()) -> list[Result]:
    """On several nodes."""
    return _judge("multi", predict_multi())


@cache
def predict_single() -> tuple[PredictedRow, ...]:
    """The predicted rows on one node."""
    return tuple(predict_rows(list_rows("single")))


@cache
def predict_single_kept() -> tuple[PredictedRow, ...]:
    """The same, if all activations were kept."""
    return tuple(predict_rows(list_rows("single", recompute=False)))


@cache
def predict_multi() -> tuple[PredictedRow, ...]:
    """The predicted rows on several nodes."""
    return tuple(predict_rows(list_rows("multi")))


def _judge(name: str, rows: Sequence[PredictedRow]) -> list[Result]:
    what = f"vTrain, {name} node"
    found = judge_predicted(what, "all", rows, most=_GOALS[name], note=f"vTrain {_PUBLISHED[name]}")
    return found + judge_few_rows(what, rows, most=_GOALS_FEW[name])


def list_rows(name: str, *, recompute: bool = True) -> list[SharedRow]:
    """The measured steps of one table."""
    table: Any = pd.read_csv(DATA / "vtrain" / _FILES[name]).rename(columns=_NAMES)
    return [_build_row(name, row, recompute=recompute) for row in table[list(_NAMES.values())].itertuples()]


def _build_row(name: str, row: Any, *, recompute: bool) -> SharedRow:
    shape = GptShape(layers=row.layers, width=row.width, heads=row.heads, tokens=row.tokens, words=_WORDS)
    batches = max(1, row.all_examples // (row.dp * row.batch))
    words = [f"tp={row.tp}", f"pp={row.pp}", f"dp={row.dp}", "no-overlap"]
    words += ["ddp"] if row.dp > 1 else []
    words += [f"micro={batches}"] if row.pp > 1 else []
    return SharedRow(
        source=f"vTrain {name}",
        group="A100-80",
        model=f"{row.layers}x{row.width}",
        workload=f"{shape} {row.batch}",
        layout=parse_layout(",".join(words), gpus=int(row.gpus)),
        topology=Topology(device=get_device("A100-80"), gpus_per_node=8, network_bytes=_NETWORK_BYTES),
        accumulation=batches,
        seconds=row.ms / 1e3,
        read=partial(_read, shape, int(row.batch), recompute=recompute),
        facts={"batch": str(row.batch), "tokens": str(row.tokens)},
    )


def _read(shape: GptShape, batch: int, *, recompute: bool) -> Workload:
    return read_megatron(
        f"Megatron GPT {shape}",
        partial(MegatronGpt, shape),
        batch=batch,
        tokens=shape.tokens,
        words=shape.words,
        options=replace(_OPTIONS, checkpointing=recompute),
    )
