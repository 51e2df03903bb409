"""Steps of torchvision's models on an A100, as the data set pytorch_gpu_benchmark has them.

Twelve images in single precision or in pure half precision. A measured step is one forward phase, or a forward and a
backward phase without an update, and the copy of the images from pageable memory before it. PyTorch of that time set
gradients to zero, one by one, and added to them.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pandas as pd

from benchmarks.gpus.models import drop_updates, read_torchvision
from benchmarks.gpus.results import DATA
from benchmarks.gpus.step_labels import StepLabel
from foretell.core.workload import Operator, Shape, StepPhase, Workload
from foretell.workloads.step_options import StepOptions

DEVICE = "A100-40"
_SIZE = 224
_PRECISIONS = {"float": ("fp32", 4), "half": ("pure-fp16", 2)}
# Single and half precision of models that are limited by their launches differ by the copies alone.
_COPY_BYTES_PER_S = 2.8e9


@cache
def list_labels() -> tuple[StepLabel, ...]:
    """The measured steps on one GPU."""
    return tuple(_list())


def _list() -> Iterator[StepLabel]:
    rows: Any = pd.read_csv(DATA / "pytorch_gpu_benchmark" / "dgx_a100.csv")
    rows = rows[(rows.gpus == 1) & rows["dtype"].isin(list(_PRECISIONS))]
    for row in rows.itertuples():
        precision, item = _PRECISIONS[str(row.dtype)]
        batch, model = int(row.batch_per_gpu), str(row.model)
        mode = "training" if row.mode == "train" else "inference"
        options = StepOptions(precision=precision, mode=mode)
        yield StepLabel(
            source="torchvision",
            model=model,
            family=find_family(model),
            device=DEVICE,
            mode=mode,
            precision=precision,
            batch=batch,
            seconds=float(row.median_ms) / 1e3,
            read=partial(_read, model, batch, options),
            extra_s=batch * 3 * _SIZE**2 * item / _COPY_BYTES_PER_S,
        )


def _read(model: str, batch: int, options: StepOptions) -> Workload | None:
    workload = read_torchvision(model, batch=batch, size=_SIZE, options=options)
    if workload is None or options.mode != "training":
        return workload
    return _add_gradients(drop_updates(workload), item=2 if "fp16" in options.precision else 4)


def _add_gradients(workload: Workload, *, item: int) -> Workload:
    """With gradients that are set to zero before, and added to after each backward operator."""
    zeros: list[Operator] = []
    operators: list[Operator] = []
    for operator in workload.operators:
        operators.append(operator)
        if operator.phase is StepPhase.BACKWARD and operator.parameters:
            for shape in _list_parameters(operator):
                zeros.append(_build_pass("zero_", StepPhase.FORWARD, shape, item))
                operators.append(_build_pass("add_", StepPhase.BACKWARD, shape, item))
    return replace(workload, operators=(*zeros, *operators), layers=(), views=())


def _list_parameters(operator: Operator) -> list[Shape]:
    """Weights are given after the tensor that they apply to; those of norms are one for each channel."""
    if operator.kind == "batch_norm":
        return [(operator.inputs[0][1],)] * 2
    return list(operator.inputs[1:3])


def _build_pass(kind: str, phase: StepPhase, shape: Shape, item: int) -> Operator:
    moved = float(item * math.prod(shape) * (1 if kind == "zero_" else 3))
    return Operator(kind=kind, phase=phase, inputs=(shape,), output=shape, bytes_moved=moved)


def find_family(model: str) -> str:
    """ResNets of any depth are one family; wide ones and those with groups are others."""
    return model.rstrip("0123456789").split("_")[0].rstrip("0123456789") + ("wide" if "wide" in model else "")
