"""Matrix products of devices that were left out, without and with a few calibration kernels."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.gpus.calibration_choice import choose_kernels
from benchmarks.gpus.product_fits import build_products, find_chip, fit_products
from benchmarks.gpus.product_rows import read_labels, read_products, thin_rows
from benchmarks.gpus.progress import follow, show
from benchmarks.gpus.results import Result, judge
from foretell.core.devices import Device, get_device
from foretell.steps.kernels.product_times import ProductTimeModel

_JUDGED = 2500  # of a source, device and precision
_LARGE = 128  # rows; smaller products are limited by memory
_GOALS = {"products bf16": 10.0, "products bf16, calibrated": 3.5}


def judge_products(devices: Sequence[str] = (), *, labels: Path | None = None) -> list[Result]:
    """The errors of each device and precision, the device left out; then after calibration."""
    rows = read_products() if labels is None else read_labels(labels)
    names = sorted(rows.device.unique()) if not devices else [get_device(name).name for name in devices]
    results = [
        result
        for name in follow(names, "products")
        for result in map(show, _judge_device(rows[rows.device == name], get_device(name)))
    ]
    return [*results, *average(results, _GOALS)]


def _judge_device(rows: pd.DataFrame, device: Device) -> Iterator[Result]:
    if rows.empty:
        return
    model = _fit_without(find_chip(device.name))
    for (source, precision), part in rows.groupby(["source", "precision"]):
        chosen, rest = choose_kernels(part, device, build_products)
        rest = thin_rows(rest, most=_JUDGED)
        yield from _judge_sizes(f"products {precision}", source, rest, device, model)
        calibrated = model.calibrate(build_products(chosen), device, chosen.seconds.to_numpy())
        yield from _judge_sizes(f"products {precision}, calibrated", source, rest, device, calibrated)


@cache
def _fit_without(chip: str) -> ProductTimeModel:
    return fit_products(without=[chip])


def _judge_sizes(
    what: str, source: object, rows: pd.DataFrame, device: Device, model: ProductTimeModel
) -> Iterator[Result]:
    for sizes, part in (("", rows[rows.rows_ >= _LARGE]), (" below 128 rows", rows[rows.rows_ < _LARGE])):
        if len(part):
            predicted = model.predict(build_products(part), device)
            yield judge(f"{what}{sizes}", device.name, predicted.tolist(), part.seconds.tolist(), note=str(source))


def average(results: Sequence[Result], goals: Mapping[str, float]) -> Iterator[Result]:
    """The mean over devices of each comparison."""
    for what in dict.fromkeys(result.what for result in results):
        same = [result for result in results if result.what == what]
        yield Result(
            what=what,
            group="mean of devices",
            cases=sum(result.cases for result in same),
            mean=float(np.mean([result.mean for result in same])),
            median=float(np.mean([result.median for result in same])),
            worst=max(result.worst for result in same),
            most=goals.get(what),
        )
