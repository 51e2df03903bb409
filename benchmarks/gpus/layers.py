"""Layers of language models on devices that were left out: their products, and all of their kernels together."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.gpus.kernel_fitting import fit_models
from benchmarks.gpus.kernel_observations import draw
from benchmarks.gpus.pass_rows import build_layer_passes, read_passes
from benchmarks.gpus.product_fits import build_products, find_chip, fit_products
from benchmarks.gpus.product_rows import find_layer_products, read_products, thin_rows
from benchmarks.gpus.products import average
from benchmarks.gpus.progress import follow, show
from benchmarks.gpus.results import DATA, Result, judge
from foretell.core.devices import Device, find_device, get_device
from foretell.core.workload import Floats
from foretell.steps.kernels.kernel_calls import MemoryPass, Product
from foretell.steps.kernels.product_times import ProductTimeModel

_LAYERS = 800  # of a device
_PASS_ROWS = 600  # of each device, source and kind, for fitting
_TWICE = frozenset({"add_ms"})  # run twice in a layer
_GOALS = {"layers of LLMs": 8.0}
# Times are rounded to microseconds, and shorter ones to half of their size.
_LEAST_TOKENS = 16


def judge_layers(devices: Sequence[str] = ()) -> list[Result]:
    """The errors of whole layers and of their products on each device, the device left out."""
    table = _read_layers()
    names = sorted(table.device.unique()) if not devices else [get_device(name).name for name in devices]
    results = [
        result
        for name in follow(names, "layers")
        for result in map(show, _judge_device(table[table.device == name], get_device(name)))
    ]
    return [*results, *average(results, _GOALS)]


def _read_layers() -> pd.DataFrame:
    table = pd.read_csv(DATA / "vidur_profiling" / "layers.csv.gz")
    found = {
        name: device for name in table.gpu.unique() if (device := find_device({"a100": "A100-80"}.get(name, name)))
    }
    table = table[table.gpu.isin(found) & (table.num_tokens >= _LEAST_TOKENS)]
    return table.assign(device=table.gpu.map({name: device.name for name, device in found.items()}))


def _judge_device(table: pd.DataFrame, device: Device) -> Iterator[Result]:
    if table.empty:
        return
    rows = list(table.sample(min(_LAYERS, len(table)), random_state=0).itertuples())
    products = [find_layer_products(row) for row in rows]
    passes = [build_layer_passes(row) for row in rows]
    first, first_s = _predict_products(rows, products, device)
    second, second_s = _predict_passes(rows, passes, device)
    each, each_s = (np.concatenate(times).tolist() for times in (first, first_s))
    yield judge("layers of LLMs, each product", device.name, each, each_s)
    sums = [_sum(one) + _sum(other) for one, other in zip(first, second, strict=True)]
    measured = [_sum(one) + _sum(other) for one, other in zip(first_s, second_s, strict=True)]
    yield judge("layers of LLMs", device.name, sums, measured, note="with the level of this software on other devices")


def _sum(times: Floats) -> float:
    return float(times.sum())


def _predict_products(
    rows: Sequence[Any], products: Sequence[dict[str, Product]], device: Device
) -> tuple[list[Floats], list[Floats]]:
    model = fit_products(without=[device.name])
    calls = [call for each in products for call in each.values()]
    predicted = model.predict(calls, device) * _find_level(model, device)
    return _divide(predicted, products), [_measure(row, each) for row, each in zip(rows, products, strict=True)]


def _find_level(model: ProductTimeModel, device: Device) -> float:
    """How much longer this software takes than what the model is fitted on, as the other devices show."""
    rows = read_products()
    others = rows[(rows.source == "vidur") & (rows.device.map(find_chip) != find_chip(device.name))]
    ratios = [
        np.log(part.seconds.to_numpy() / model.predict(build_products(part), get_device(str(name))))
        for name, part in thin_rows(others, most=_LAYERS).groupby("device")
    ]
    return float(np.exp(np.mean([np.median(each) for each in ratios]))) if ratios else 1.0


def _predict_passes(
    rows: Sequence[Any], passes: Sequence[dict[str, MemoryPass]], device: Device
) -> tuple[list[Floats], list[Floats]]:
    known = [one for one in read_passes() if find_chip(one.device) != find_chip(device.name)]
    model = fit_models(draw(known, _PASS_ROWS), rounds=1).passes
    predicted = model.predict([call for each in passes for call in each.values()], device)
    times = [np.array([1.0 + (name in _TWICE) for name in each]) for each in passes]
    seconds = [_measure(row, each) for row, each in zip(rows, passes, strict=True)]
    pairs = zip(_divide(predicted, passes), seconds, times, strict=True)
    scaled = [(one * count, other * count) for one, other, count in pairs]
    return [one for one, _other in scaled], [other for _one, other in scaled]


def _measure(row: Any, calls: dict[str, Any]) -> Floats:
    return np.array([getattr(row, column) / 1e3 for column in calls])


def _divide(predicted: Floats, calls: Sequence[dict[str, Any]]) -> list[Floats]:
    return np.split(predicted, np.cumsum([len(each) for each in calls])[:-1])
