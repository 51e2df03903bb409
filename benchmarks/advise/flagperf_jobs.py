"""Whole trainings and throughputs of FlagPerf on one to 16 A100, on A800 and H100.

https://github.com/FlagOpen/FlagPerf/tree/main/training: rates without loading data (``p_core``), with it (``p_train``)
and of the whole job (``p_whole``); jobs from their start until they reach their target. Its ``fp32`` is TF32, the
default of NVIDIA's containers on these GPUs. Its ``bf16`` converts the whole model, as its pages describe for ResNet-50
and BERT; that nothing stays in single precision is assumed.
"""

import re
from collections import Counter
from functools import cache
from typing import Any

import pandas as pd

from benchmarks.advise.published import Compared, ComparedJob, Published, compare, compare_job
from benchmarks.gpus.results import DATA
from foretell.core.devices import get_device

SOURCE = "FlagPerf"
_PRECISIONS = {"fp32": "tf32", "tf32": "tf32", "amp": "fp16", "fp16": "pure-fp16", "bf16": "pure-bf16"}
_NETWORKS = {
    "resnet50-pytorch": "resnet50",
    "efficientnet-pytorch": "efficientnet-v2-s",
    "swin_transformer-pytorch": "swin-t",
    "bert_hf-pytorch": "bert-large masked",
    "distilbert-pytorch": "distilbert",
    "cpm-pytorch": "cpm",
}
# Of language models: the network, its tokens, and batches that are accumulated unless the row says otherwise. Megatron
# of 2023, FlagScale ("no overlap of computing and communication yet") and this ZeRO ("overlap_comm": false) exchange
# gradients after the backward phase.
_DECODERS = {
    "aquila2_7b-flagscale": ("aquila2-7b 2048", 2048, 9),
    "aquila2_7b_finetune-flagscale": ("aquila2-7b 2048", 2048, 4),
    "llama2_7b-megatron-deepspeed": ("llama2-7b 4096", 4096, 32),
    "llama3_8B-megatron": ("llama3-8b 8192", 8192, 0),
    "qwen1.5_MoE-megatron": ("qwen1.5-moe 2048", 2048, 0),
}
_ALL_EXAMPLES = {"llama3_8B-megatron": 512}  # global batches
_OBSTACLES = {
    "bigtransfer-pytorch": "sizes of images not stated",
    "detr-pytorch": "images of varying sizes",
    "mask_rcnn-pytorch": "images of varying sizes",
    "retinanet-pytorch": "images of varying sizes",
    "dlrm-pytorch": "own kernels for embeddings",
    "glm-pytorch": "sequences for each example not stated",
    "llama2_7b_finetune-pytorch": "what saves memory not stated",
    "llava1.5_13b-deepspeed-torch": "tokens of each example not stated",
    "llava1.5_7b-deepspeed-torch": "tokens of each example not stated",
    "qwen1.5_MoE-megatron": "batches in a step not stated",
    "resnet50-tensorflow2": "TensorFlow",
    "tacotron2-pytorch": "sentences of varying lengths",
    "transformer-pytorch": "sentences of varying lengths",
}
# What is evaluated after an epoch, by the samples of the epoch, forward only: a third of the time of a step.
_EVALUATED = {
    "resnet50": 50_000 / 1_281_167 / 3,
    "efficientnet-v2-s": 50_000 / 1_281_167 / 3,
    "swin-t": 50_000 / 1_281_167 / 3,
    "distilbert": 872 / 67_349 / 3,
    "bert-large masked": 0.1 / 3,
}


@cache
def compare_steps() -> tuple[Compared, ...]:
    """The rows that can be rebuilt, by their rate without loading."""
    return tuple(compare([build_row(row) for row in _read_table() if not find_obstacle(row)]))


@cache
def compare_jobs() -> tuple[ComparedJob, ...]:
    """The trainings whose whole time is published; their samples are their whole rate times it."""
    known = {_name(row): row for row in _read_table()}
    return tuple(
        _compare_job(each, known[each.row.label]) for each in compare_steps() if known[each.row.label].e2e_time_s > 0
    )


def list_left_out() -> Counter[str]:
    """Why rows cannot be rebuilt, and how many."""
    return Counter(reason for row in _read_table() if (reason := find_obstacle(row)))


def _compare_job(step: Compared, row: Any) -> ComparedJob:
    return compare_job(
        step,
        name=row.model,
        samples=round(row.p_whole * row.e2e_time_s),
        evaluation_share=_EVALUATED.get(step.row.network, 0.0),
        measured_s=float(row.e2e_time_s),
    )


@cache
def _read_table() -> tuple[Any, ...]:
    table = pd.read_csv(DATA / "flagperf" / "training.csv").rename(columns={"config": "place"})
    table["line"] = table.index + 2
    return tuple(table[table.vendor == "nvidia"].itertuples())


def _name(row: Any) -> str:
    return f"{row.model} {row.nodes}x{row.gpus_per_node} {row.precision} {row.overrides} line {row.line}"


def find_obstacle(row: Any) -> str:
    """Why a row cannot be rebuilt; nothing if it can."""
    if row.model in _OBSTACLES:
        return _OBSTACLES[row.model]
    if row.model not in {**_NETWORKS, **_DECODERS}:
        return "unknown model"
    if row.device not in ("A100", "A800", "H100", "H800"):
        return "unnamed device"
    if row.model in _DECODERS and not _read_number(row.tokens_per_gpu_s):
        return "without a rate"
    return ""


def build_row(row: Any) -> Published:
    """A row of the table as what can be predicted."""
    return _build_decoder(row) if row.model in _DECODERS else _build_network(row)


def _build_network(row: Any) -> Published:
    match = re.search(r"bs=(\d+)", str(row.overrides))
    network = _NETWORKS[row.model]
    return Published(
        source=SOURCE,
        task=f"{network} A100",
        network=network,
        device=get_device("A100-40"),
        gpus=int(row.nodes * row.gpus_per_node),
        batch=int(match[1]) if match else int(row.default_batch),
        precision=_PRECISIONS[row.precision],
        rate=float(row.p_core),
        loaded_rate=float(row.p_train),
        label=_name(row),
    )


def _build_decoder(row: Any) -> Published:
    network, tokens, usual = _DECODERS[row.model]
    gpus = int(row.nodes * row.gpus_per_node)
    words = {name: int(size) for name, size in re.findall(r"(TP|PP|DP)(\d+)", row.other)}
    tp, pp = words.get("TP", 1), words.get("PP", 1)
    copies = gpus // (tp * pp)
    text = str(row.overrides)
    batch = int(match[1]) if (match := re.search(r"LBS=(\d+)", text)) else 1
    batches = int(match[1]) if (match := re.search(r"GAS=(\d+)", text)) else usual
    if row.model in _ALL_EXAMPLES:
        batches = _ALL_EXAMPLES[row.model] // (copies * batch)
    layout = ["no-overlap", f"tp={tp}", f"pp={pp}"]
    layout += ["zero1"] if copies > 1 else []
    layout += [f"micro={batches}"] if pp > 1 else []
    layout += ["sp"] if tp > 1 and row.model == "llama3_8B-megatron" else []
    device = "A100-80" if row.device == "A100" else row.device
    return Published(
        source=SOURCE,
        task=f"{network} {device}",
        network=network,
        device=get_device(device),
        gpus=gpus,
        batch=batch,
        precision="pure-bf16",
        rate=_read_number(row.tokens_per_gpu_s) * gpus / tokens,
        layout=",".join(layout),
        accumulation=batches,
        label=_name(row),
    )


def _read_number(text: Any) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
