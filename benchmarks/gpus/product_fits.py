"""Models of products and of attention, fitted on measured kernels of some devices."""

from collections.abc import Iterable

import pandas as pd

from benchmarks.gpus.attention_rows import read_attention
from benchmarks.gpus.product_rows import read_products, thin_rows
from foretell.core.devices import Device, get_device
from foretell.steps.kernels.attention_times import AttentionTimeModel
from foretell.steps.kernels.device_rates import classify_precision
from foretell.steps.kernels.kernel_calls import Attention, Product
from foretell.steps.kernels.product_times import ProductTimeModel

_ROWS = 3500  # of each source, device and precision
_ATTENTION_ROWS = 800  # with more, the trees learn what holds on the measured devices only
# Each device is learned from one source, the first of these that has it: they differ by 5 to 10 % on the same device.
_SOURCES = ("aiconfigurator", "llmservingsim", "neusight", "vidur", "xla")
# The host starts kernels of this device one by one, 30 us apart: shorter ones were not measured.
_HOST_BOUND = {"ArcB60": 1e-4}


def build_products(rows: pd.DataFrame) -> list[Product]:
    columns = (rows.rows_, rows.columns_, rows.inner, rows.many, rows.precision)
    return [
        Product(rows=int(each), columns=int(wide), inner=int(deep), many=int(many), precision=str(precision))
        for each, wide, deep, many, precision in zip(*columns, strict=True)
    ]


def build_attention(rows: pd.DataFrame) -> list[Attention]:
    columns = (rows.batch, rows.heads, rows.key_heads, rows.queries, rows["keys_"], rows.width)
    return [
        Attention(
            batch=int(batch),
            heads=int(heads),
            key_heads=int(key_heads),
            queries=int(queries),
            keys=int(keys),
            width=int(width),
            causal=True,
        )
        for batch, heads, key_heads, queries, keys, width in zip(*columns, strict=True)
    ]


def fit_products(
    rows: pd.DataFrame | None = None, *, without: Iterable[str] = (), most: int = _ROWS
) -> ProductTimeModel:
    """A model of the products of all devices but some."""
    kept = _keep(read_products() if rows is None else rows, without, most=most)
    return ProductTimeModel().fit(build_products(kept), _find_devices(kept), kept.seconds.to_numpy())


def fit_attention(rows: pd.DataFrame | None = None, *, without: Iterable[str] = ()) -> AttentionTimeModel:
    """A model of the attention of all devices but some."""
    kept = _keep(read_attention() if rows is None else rows, without, most=_ATTENTION_ROWS)
    return AttentionTimeModel().fit(build_attention(kept), _find_devices(kept), kept.seconds.to_numpy())


def _keep(rows: pd.DataFrame, without: Iterable[str], *, most: int) -> pd.DataFrame:
    left_out = {find_chip(name) for name in without}
    least = rows.device.map(_HOST_BOUND).fillna(0.0)
    kept = rows[~rows.device.map(find_chip).isin(left_out) & (rows.seconds > least)]
    return thin_rows(choose_sources(kept), most=most)


def find_chip(name: str) -> str:
    """Boards with the same chip are left out together."""
    return name.partition("-")[0]


def choose_sources(rows: pd.DataFrame) -> pd.DataFrame:
    rank = rows.source.str.split().str[0].map(_SOURCES.index)
    precision = rows.precision.map(classify_precision) if "precision" in rows else pd.Series("half", index=rows.index)
    return rows[rank == rank.groupby([rows.device, precision]).transform("min")]


def _find_devices(rows: pd.DataFrame) -> list[Device]:
    found = {name: get_device(name) for name in rows.device.unique()}
    return [found[name] for name in rows.device]
