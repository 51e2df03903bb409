"""Training throughputs of NVIDIA's DeepLearningExamples in PyTorch, on V100 and A100, one to 256 GPUs.

https://github.com/NVIDIA/DeepLearningExamples: batches and precisions are those of its tables, otherwise of its
``configs.yml`` and scripts; data are loaded by DALI or were prepared before. ``mixed`` is automatic mixed precision.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pandas as pd

from benchmarks.advise.published import Compared, Published, compare, get_changed_device
from benchmarks.gpus.results import DATA
from foretell.core.devices import Device, get_device

SOURCE = "DeepLearningExamples"
_PRECISIONS = {"mixed": "fp16", "TF32": "tf32", "FP32": "fp32"}
_IMAGES_LAST = {"channels_last": True}  # with mixed precision; in others, channels come first
# Batches of a GPU where tables have none: mixed precision and single on V100, then on A100. From configs.yml; only
# those of EfficientNet are assumed, as throughputs change little with such batches.
_BATCHES = {
    "resnet50": (256, 112, 256, 256),
    "resnext101-32x4d": (128, 64, 128, 128),
    "se-resnext101-32x4d": (112, 64, 128, 128),
    "efficientnet-b0": (256, 128, 256, 256),
    "efficientnet-b4": (64, 32, 128, 64),
}
_BERT_EXAMPLES = 65536  # of a step on all GPUs
# LDDL puts sequences of similar lengths into a batch: those of up to 512 tokens are shorter, and padded no further.
_BINNED = 512
_ACCUMULATED = 1000  # larger batches of a GPU are sums of several
_XL_TABLES = {46: "base", 48: "base", 50: "base", 47: "large", 49: "large", 51: "large", 52: "large"}
_XL_EXAMPLES = {"base": 256, "large": 128}
_XL_TOKENS = {"base": 192, "large": 384}


@cache
def compare_steps() -> tuple[Compared, ...]:
    """The rows that can be rebuilt."""
    return tuple(compare([build for row in _read_table() if isinstance(build := build_row(row), Published)]))


def list_left_out() -> Counter[str]:
    """Why rows cannot be rebuilt, and how many."""
    return Counter(build for row in _read_table() if isinstance(build := build_row(row), str))


@cache
def _read_table() -> tuple[Any, ...]:
    table = pd.read_csv(DATA / "nvidia_deeplearningexamples" / "training_throughput.csv", keep_default_na=False)
    table["line"] = table.index + 2
    return tuple(table.itertuples())


def build_row(row: Any) -> Published | str:
    """A row, or why it cannot be rebuilt."""
    framework, _, rest = row.path.partition("/")
    if framework != "PyTorch":
        return "another framework"
    for part, build in _BUILDERS.items():
        if rest.startswith(part):
            return build(row)
    return f"code of its own: {rest.rpartition('/')[2]}"


def _build_classifier(row: Any) -> Published | str:
    network = row.path.rpartition("/")[2].removesuffix("v1.5")
    return _place_classifier(row, network)


def _build_efficientnet(row: Any) -> Published | str:
    """Tables of four networks, in the order b0, b4, and both with wider squeezing."""
    counts = (3, 5, 3, 5) if "A100" in row.platform else (2, 2, 2, 2)
    place = next(place for place in range(4) if row.row < sum(counts[: place + 1]))
    if place > 1:
        return "code of its own: wide squeezing"
    if "V100 32GB" in row.platform and place == 1:
        return "a table that contradicts itself"  # eight GPUs 17.6 times as fast as one
    return _place_classifier(row, ("efficientnet-b0", "efficientnet-b4")[place])


def _place_classifier(row: Any, network: str) -> Published:
    mixed, single, mixed_a100, single_a100 = _BATCHES[network]
    pair = (mixed, mixed_a100) if row.precision == "mixed" else (single, single_a100)
    batch = pair["A100" in row.platform]
    return _place(row, network, batch=batch, rate=row.value, options=_IMAGES_LAST if row.precision == "mixed" else None)


def _build_bert(row: Any) -> Published | str:
    pair = [int(each) for each in re.findall(r"\d+", row.batch)]
    if row.platform.startswith("Fine-tuning"):
        return _place(row, "bert-large squad", batch=pair[row.precision == "mixed"], rate=row.value)
    tokens = int(row.seq)
    if tokens == _BINNED:
        return "sequences of varying lengths"
    nodes = 2 ** (row.row % 6) if "Multi-node" in row.platform else 1
    gpus = int(float(row.gpus)) * nodes
    batch = _find_bert_batch(pair, mixed=row.precision == "mixed")
    accumulated = pair[0] if pair[0] > _ACCUMULATED else _BERT_EXAMPLES // max(8, gpus)
    accumulation = max(1, accumulated // batch)
    return _place(row, f"bert-large {tokens}", batch=batch, rate=row.value, gpus=gpus, accumulation=accumulation)


def _find_bert_batch(pair: list[int], *, mixed: bool) -> int:
    """Of one pass: the table has it (126 for 128). On V100 it has what is accumulated, and the pass is assumed."""
    if pair[0] > _ACCUMULATED:
        return (32, 64)[mixed]
    return {126: 128}.get(pair[mixed], pair[mixed])


def _build_xl(row: Any) -> Published | str:
    size = _XL_TABLES[row.table]
    batch = int(row.batch)
    if row.gpus == "":  # nodes of 16 GPUs, whose batches do not shrink
        gpus, accumulation = 16 * 2**row.row, 1
    else:
        gpus = int(float(row.gpus))
        accumulation = max(1, _XL_EXAMPLES[size] // (gpus * batch))
    rate = row.value / _XL_TOKENS[size]
    return _place(row, f"transformer-xl {size}", batch=batch, rate=rate, gpus=gpus, accumulation=accumulation)


def _build_nnunet(row: Any) -> Published | str:
    batch = int(row.batch)
    return _place(row, "nnunet-2d" if batch >= 32 else "nnunet-3d", batch=batch, rate=row.value)


def _build_ncf(row: Any) -> Published | str:
    return _place(row, "ncf", batch=int(row.batch), rate=row.value)


_BUILDERS: dict[str, Callable[[Any], Published | str]] = {
    "Classification/ConvNets/efficientnet": _build_efficientnet,
    "Classification/ConvNets": _build_classifier,
    "LanguageModeling/BERT": _build_bert,
    "LanguageModeling/Transformer-XL": _build_xl,
    "Segmentation/nnUNet": _build_nnunet,
    "Recommendation/NCF": _build_ncf,
}


def _place(
    row: Any,
    network: str,
    *,
    batch: int,
    rate: float,
    gpus: int = 0,
    accumulation: int = 1,
    options: dict[str, Any] | None = None,
) -> Published:
    device, gpus_per_node = _find_device(row.platform)
    precision = _PRECISIONS[row.precision]
    return Published(
        source=SOURCE,
        task=f"{network} {device.name}",
        network=network,
        device=device,
        gpus=gpus or int(float(row.gpus)),
        gpus_per_node=gpus_per_node,
        batch=batch,
        precision=precision,
        rate=float(rate),
        accumulation=accumulation,
        options=options,
        label=f"{row.path} line {row.line}",
    )


def _find_device(platform: str) -> tuple[Device, int]:
    """The GPU of a heading such as "NVIDIA DGX-2H (16x V100 32GB)", and how many a node has."""
    if "A100" in platform:
        return get_device("A100-80" if "80G" in platform else "A100-40"), 8
    if "DGX-2H" in platform:
        return get_changed_device("V100-32", power_w=450.0, clock_hz=1.597e9), 16
    if "DGX-2" in platform:
        return get_changed_device("V100-32", power_w=350.0, clock_hz=1.597e9), 16
    return get_device("V100-16" if "16G" in platform else "V100-32"), 8
