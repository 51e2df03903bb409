"""Throughputs of MLPerf Training v3.1 to v5.0 whose networks and layouts can be rebuilt.

https://github.com/mlcommons/training_results_v4.0 and others. NVIDIA's code fuses element-wise work by hand and replays
CUDA graphs, so steps are predicted as compiled ones. Of equal systems, the median of their submitters is the row.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pandas as pd

from benchmarks.advise.published import Compared, Published, compare
from benchmarks.gpus.results import DATA
from foretell.core.devices import find_device

SOURCE = "MLPerf Training"
_FUSED = {"compile": True, "channels_last": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    network: str
    precision: str
    options: Mapping[str, Any] = field(default_factory=dict)


_RECIPES = {
    "resnet": _Recipe(network="resnet50", precision="fp16", options=_FUSED),
    "ssd": _Recipe(network="retinanet", precision="fp16", options=_FUSED),
    "retinanet": _Recipe(network="retinanet", precision="fp16", options=_FUSED),
    "unet3d": _Recipe(network="unet3d-kits", precision="fp16", options={"compile": True}),
    "stable_diffusion": _Recipe(network="stable-diffusion-2", precision="pure-fp16", options=_FUSED),
    "gpt3": _Recipe(network="gpt3-175b fp8", precision="pure-bf16"),
}
_OBSTACLES = {
    "bert": "sequences without padding, of lengths not stated",
    "dlrm_dcnv2": "own kernels for embeddings",
    "gnn": "sampled graphs",
    "rgat": "sampled graphs",
    "rnnt": "recordings of varying lengths",
    "maskrcnn": "images of varying sizes",
    "llama2_70b_lora": "adapters with products in eight bits",
    "llama31_405b": "layouts not stated",
}
_DEVICES = {
    "NVIDIA H100-SXM5-80GB": "H100",
    "NVIDIA H100-SXM-80GB": "H100",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100-PCIe-80GB": "H100-PCIe",
    "H100 NVL Tensor Core GPU (PCIe)": "H100-NVL",
    "NVIDIA H200-SXM5-141GB": "H200",
    "NVIDIA H200-NVL-141GB": "H200-NVL",
    "NVIDIA Blackwell GPU (B200-SXM-180GB)": "B200",
    "NVIDIA Blackwell GPU (GB200)": "GB200",
    "NVIDIA A100-PCIe-80GB": "A100-PCIe-80",
    "NVIDIA A30": "A30",
    "NVIDIA A10G": "A10G",
    "NVIDIA L4": "L4",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "NVIDIA RTX A5000": "A5000",
}
_GPUS_PER_NODE = {"GB200": 4}
_LARGE_NODE = 10  # GPUs of servers with PCIe, which are used together
_GPT_TOKENS = 2048  # of an example; its throughputs are in tokens
# Of GPT-3 on H100, as files such as config_DGXH100_64x8x128x4x8_mbs2.sh are named: eight stages of four GPUs. That they
# are interleaved six times, and that batches have one sequence on more GPUs, is assumed for all submitters.
_TENSOR, _STAGES, _INTERLEAVE, _FEW = 4, 8, 6, 512


@cache
def compare_steps() -> tuple[Compared, ...]:
    """The rows that can be rebuilt."""
    return tuple(compare([build_row(row) for row in _read_table() if not find_obstacle(row)]))


def list_left_out() -> Counter[str]:
    """Why rows cannot be rebuilt, and how many."""
    return Counter(reason for row in _read_table() if (reason := find_obstacle(row)))


@cache
def _read_table() -> tuple[Any, ...]:
    table = pd.read_csv(DATA / "mlperf_training" / "median_time_to_train.csv")
    systems = table.groupby(["benchmark", "acc", "n", "gbs"], as_index=False, dropna=False)
    return tuple(systems.agg(tp=("tp", "median")).itertuples())


def find_obstacle(row: Any) -> str:
    """Why a row cannot be rebuilt; nothing if it can."""
    if row.benchmark not in _RECIPES:
        return _OBSTACLES.get(row.benchmark, "unknown benchmark")
    if not row.tp > 0:
        return "without a throughput"
    if row.acc not in _DEVICES or find_device(_DEVICES[row.acc]) is None:
        return "unknown device"
    if row.benchmark == "gpt3":
        return _find_gpt_obstacle(row)
    if row.gbs % row.n:
        return "examples divided unequally, or images among GPUs"
    return ""


def _find_gpt_obstacle(row: Any) -> str:
    copies, rest = divmod(int(row.n), _TENSOR * _STAGES)
    if _DEVICES[row.acc] != "H100" or rest or row.gbs % (copies * _find_micro_batch(row)):
        return "layouts not stated"
    batches = row.gbs // (copies * _find_micro_batch(row))
    return "layouts not stated" if batches % _STAGES else ""


def _find_micro_batch(row: Any) -> int:
    return 2 if row.n <= _FEW else 1


def _find_rate(row: Any) -> float:
    """Examples a second of all GPUs. Older code of RetinaNet logs those of one, as rates times times show."""
    if row.benchmark == "ssd" or (row.benchmark == "retinanet" and "H200" in row.acc):
        return float(row.tp * row.n)
    return float(row.tp / _GPT_TOKENS if row.benchmark == "gpt3" else row.tp)


def build_row(row: Any) -> Published:
    """A row of the table as what can be predicted."""
    recipe = _RECIPES[row.benchmark]
    name = _DEVICES[row.acc]
    device = find_device(name)
    assert device is not None
    gpus = int(row.n)
    batch, layout, accumulation = int(row.gbs // row.n), "ddp", 1
    if row.benchmark == "gpt3":
        batch = _find_micro_batch(row)
        accumulation = int(row.gbs) // (gpus // (_TENSOR * _STAGES) * batch)
        layout = f"tp={_TENSOR},pp={_STAGES},zero1,sp,micro={accumulation},interleave={_INTERLEAVE}"
    return Published(
        source=SOURCE,
        task=f"{recipe.network} {name}",
        network=recipe.network,
        device=device,
        gpus=gpus,
        gpus_per_node=_LARGE_NODE if gpus == _LARGE_NODE else _GPUS_PER_NODE.get(name, 8),
        batch=batch,
        precision=recipe.precision,
        rate=_find_rate(row),
        layout=layout,
        accumulation=accumulation,
        options=recipe.options,
        label=f"{row.benchmark} {row.acc} {gpus} GPUs",
    )
