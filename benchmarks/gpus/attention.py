"""Fused attention of devices that were left out, without and with a few calibration kernels."""

from collections.abc import Iterator, Sequence

import pandas as pd

from benchmarks.gpus.attention_rows import read_attention
from benchmarks.gpus.calibration_choice import choose_kernels
from benchmarks.gpus.product_fits import build_attention, fit_attention
from benchmarks.gpus.product_rows import thin_rows
from benchmarks.gpus.products import average
from benchmarks.gpus.progress import follow, show
from benchmarks.gpus.results import Result, judge
from foretell.core.devices import Device, get_device

_JUDGED = 2500
_NAMES = {True: "attention, decoding", False: "attention, prefill"}
_GOALS = {"attention, prefill": 15.0, "attention, prefill, calibrated": 6.0}


def judge_attention(devices: Sequence[str] = ()) -> list[Result]:
    """The errors of each device, the device left out; then after calibration."""
    rows = thin_rows(read_attention(), most=_JUDGED)
    names = sorted(rows.device.unique()) if not devices else [get_device(name).name for name in devices]
    results = [
        result
        for name in follow(names, "attention")
        for result in map(show, _judge_device(rows[rows.device == name], get_device(name)))
    ]
    return [*results, *average(results, _GOALS)]


def _judge_device(rows: pd.DataFrame, device: Device) -> Iterator[Result]:
    if rows.empty:
        return
    model = fit_attention(without=[device.name])
    chosen, rest = choose_kernels(rows, device, build_attention)
    calibrated = model.calibrate(build_attention(chosen), device, chosen.seconds.to_numpy())
    for decoding, part in rest.groupby(rest.queries == 1):
        for what, each in (("", model), (", calibrated", calibrated)):
            predicted = each.predict(build_attention(part), device)
            yield judge(
                f"{_NAMES[bool(decoding)]}{what}",
                device.name,
                predicted.tolist(),
                part.seconds.tolist(),
                note=", ".join(sorted({str(source).split()[0] for source in part.source})),
            )
