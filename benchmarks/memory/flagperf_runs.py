"""Whole trainings of FlagPerf on A100 with 40 GB, on one GPU or with DistributedDataParallel, as the driver shows them.

Only models that FlagPerf takes from torchvision as they are, with images of 224 pixels and SGD: others need its own
code or weights whose size is not stated (https://github.com/FlagOpen/FlagPerf/tree/main/training/benchmarks).
"""

import re
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.capture import declare_torchvision
from benchmarks.gpus.results import DATA
from benchmarks.memory.captures import cached
from benchmarks.memory.results import Result, measure_errors
from foretell.core.devices import get_device
from foretell.core.layouts import parse_layout
from foretell.core.memory import MemoryTrace
from foretell.memory.forecast import forecast
from foretell.memory.layout_shards import apply_layout
from foretell.memory.usage import measure_usage
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import InputSpec, StepOptions

_MODELS = {"resnet50-pytorch": "resnet50", "efficientnet-pytorch": "efficientnet_v2_s"}
_PRECISIONS = {"fp32": "fp32", "amp": "fp16", "bf16": "bf16"}
_LEVEL = 0.9


def judge_flagperf() -> list[Result]:
    """All rows with a memory, and those of each model."""
    rows = pd.read_csv(DATA / "flagperf" / "training.csv")
    rows = rows[rows["model"].isin(_MODELS) & (rows["device"] == "A100") & rows["mem_used_gib"].notna()]
    measured = rows["mem_used_gib"].to_numpy() * 2**30
    found = [_predict(row) for _, row in rows.iterrows()]
    predicted, upper = np.array([each.value for each in found]), np.array([each.high for each in found])
    groups = {"all": np.ones(len(rows), dtype=bool)} | {
        name: (rows["model"] == model).to_numpy() for model, name in _MODELS.items()
    }
    return [
        Result(
            what="FlagPerf trainings, A100-40, 1 to 16 GPUs",
            group=group,
            cases=int(chosen.sum()),
            figures=measure_errors(predicted[chosen], measured[chosen], upper[chosen]),
            wanted={"median": 8.0} if group == "all" else {},
            note=", ".join(f"{error:+.1%}" for error in (predicted / measured - 1)[chosen]),
        )
        for group, chosen in groups.items()
    ]


def _predict(row: Any) -> Any:
    match = re.search(r"bs=(\d+)", str(row["overrides"]))
    batch = int(match[1]) if match else int(row["default_batch"])
    precision, name = _PRECISIONS[row["precision"]], _MODELS[row["model"]]
    trace = cached(f"flagperf {name} {batch} {precision}", lambda: _capture(name, batch, precision))
    gpus = int(row["nodes"]) * int(row["gpus_per_node"])
    usage = measure_usage(apply_layout(trace, parse_layout("", gpus=gpus)))
    return forecast(usage, get_device("A100-40"), level=_LEVEL).needed


def _capture(name: str, batch: int, precision: str) -> MemoryTrace:
    declare_torchvision()
    import torchvision

    options = StepOptions(precision=precision, loss="cross_entropy")
    return capture_memory(getattr(torchvision.models, name)(), [InputSpec(shape=(batch, 3, 224, 224))], options=options)
