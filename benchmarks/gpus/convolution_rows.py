"""Convolutions that NeuSight measured one by one: 3 x 3, single precision, forward, five GPUs."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from benchmarks.gpus.kernel_observations import Observation
from benchmarks.gpus.results import DATA
from foretell.core.devices import get_device
from foretell.steps.kernels.kernel_calls import Convolution

LAUNCH_MS = 0.03  # which their times include
_SHORTEST_MS = 5 * LAUNCH_MS


def read_convolutions() -> list[Observation]:
    """Those that take much longer than their launch."""
    table = pd.read_csv(DATA / "neusight" / "ops" / "train_conv.csv.gz")
    names = {name: get_device(name).name for name in table.Device.unique()}
    return [_observe(row, names) for row in table[table.Latency > _SHORTEST_MS].itertuples()]


def _observe(row: Any, names: Mapping[str, str]) -> Observation:
    return Observation(
        calls=(_build(row),),
        device=names[row.Device],
        seconds=(row.Latency - LAUNCH_MS) * 1e-3,
        source="neusight",
        label="dense convolution forward",
    )


def _build(row: Any) -> Convolution:
    size, kernel, stride, padding = row.Input_Size, row.Kernel_Szie, row.Stride, row.Padding
    out = (size + 2 * padding - kernel) // stride + 1
    return Convolution(
        images=row.B,
        channels=row.Input_Channel,
        filters=row.Output_Channel,
        groups=1,
        size_in=(size, size),
        size_out=(out, out),
        kernel=(kernel, kernel),
        stride=stride,
        precision="fp32",
    )
