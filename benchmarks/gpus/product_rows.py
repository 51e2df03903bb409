"""Measured matrix products of several sources, one row each, with the catalogue's names of devices."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.gpus.results import DATA
from foretell.core.devices import find_device
from foretell.steps.kernels.kernel_calls import Product

COLUMNS = ["device", "precision", "many", "rows_", "columns_", "inner", "seconds", "source"]
_SIZES = COLUMNS[:6]

# One framework for each type: bf16 as PyTorch runs it in vLLM; fp8 from SGLang, which casts the inputs in one kernel.
# SGLang's rows of B300 are copies of GB300's, which their column ``device`` says.
_FRAMEWORKS = {"bfloat16": ("bf16", "VLLM"), "fp8": ("fp8", "SGLang")}
_XLA = {"bf16xbf16->bf16": "bf16", "f32xf32->f32": "fp32"}
_XLA_DEVICES = {"gfx950": "MI355X", "sm_100_B200": "B200", "sm_90": "H100"}
_NAMES = {"a100": "A100-80", "h100": "H100", "a40": "A40"}
# NeuSight's times hold 25 to 50 us of its host for each call.
_NEUSIGHT_LEAST_S = 4e-4
# Hidden size, heads, key heads, width of a head, width of the MLP, vocabulary: the models' own configurations.
MODELS = {
    "meta-llama/Llama-3.1-8B": (4096, 32, 8, 128, 14336, 128256),
    "meta-llama/Llama-3.1-70B": (8192, 64, 8, 128, 28672, 128256),
    "Qwen/Qwen3-32B": (5120, 64, 8, 128, 25600, 151936),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": (2048, 32, 4, 128, 768, 151936),
    "microsoft/Phi-mini-MoE-instruct": (4096, 32, 8, 128, 960, 32064),
    "mistralai/Mixtral-8x7B-v0.1": (4096, 32, 8, 128, 14336, 32000),
}


@cache
def read_products() -> pd.DataFrame:
    """Every measured product of a device in the catalogue, equal ones once."""
    parts = [
        part
        for read in (_read_aiconfigurator, _read_xla, _read_neusight, _read_vidur, _read_serving)
        for part in read()
    ]
    rows = _name_devices(pd.concat(parts, ignore_index=True))
    seconds = rows.groupby([*_SIZES, "source"], observed=True)["seconds"].median()
    return seconds.reset_index()[COLUMNS]


def read_labels(path: Path) -> pd.DataFrame:
    """Products of a CSV table with the columns device, precision, rows, columns, inner, seconds, perhaps many.

    Raises:
        ValueError: A column is missing, or no device is in the catalogue.
    """
    table = pd.read_csv(path).rename(columns={"rows": "rows_", "columns": "columns_"})
    missing = sorted(set(COLUMNS) - set(table.columns) - {"many", "source"})
    if missing:
        raise ValueError(f"{path}: no column {', '.join(name.rstrip('_') for name in missing)}")
    table = _name_devices(table.assign(many=table.get("many", 1), source=path.stem))
    if table.empty:
        raise ValueError(f"{path}: no device of the catalogue; foretell device list shows all")
    return table[COLUMNS]


def _name_devices(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of devices in the catalogue, by their names there."""
    names = {name: found.name for name in rows.device.unique() if (found := find_device(str(name)))}
    return rows.assign(device=rows.device.map(names)).dropna(subset=["device"])


def thin_rows(rows: pd.DataFrame, *, most: int) -> pd.DataFrame:
    """At most so many rows of each source, device and precision."""
    parts = [
        part.sample(min(most, len(part)), random_state=0)
        for _key, part in rows.groupby([name for name in ("source", "device", "precision") if name in rows])
    ]
    return pd.concat(parts, ignore_index=True)


def _read_aiconfigurator() -> Iterator[pd.DataFrame]:
    for dtype, (precision, framework) in _FRAMEWORKS.items():
        rows = pd.read_parquet(
            DATA / "aiconfigurator" / "gemm_perf.parquet",
            filters=[("framework", "=", framework), ("gemm_dtype", "=", dtype)],
        )
        yield _table(
            rows.device.astype(str), precision, 1, rows.m, rows.n, rows.k, rows.latency / 1e3, "aiconfigurator"
        )


def _read_xla() -> Iterator[pd.DataFrame]:
    rows = pd.read_csv(DATA / "xla_perf_tables" / "matmul.csv.gz")
    rows = rows[rows["dtypes"].isin(_XLA)]
    precision = rows["dtypes"].map(_XLA).where((rows["dtypes"] != "f32xf32->f32") | (rows.device == "gfx950"), "tf32")
    seconds = 2.0 * rows.b * rows.m * rows.n * rows.k / rows.flops_per_s
    yield _table(rows.device.map(_XLA_DEVICES), precision, rows.b, rows.m, rows.n, rows.k, seconds, "xla")


def _read_neusight() -> Iterator[pd.DataFrame]:
    for part in ("train", "test"):
        for operator in ("linear", "bmm"):
            path = DATA / "neusight" / "ops" / f"{part}_{operator}.csv.gz"
            rows = pd.read_csv(path, usecols=["Latency", "Device", "B", "M", "N", "K"])
            rows = rows[rows.Latency / 1e3 > _NEUSIGHT_LEAST_S]
            many = rows.B if operator == "bmm" else 1
            yield _table(rows.Device, "fp32", many, rows.M, rows.N, rows.K, rows.Latency / 1e3, f"neusight {part}")


def _read_vidur() -> Iterator[pd.DataFrame]:
    rows = pd.read_csv(DATA / "vidur_profiling" / "layers.csv.gz")
    for column, (columns, inner) in _find_sizes(rows).items():
        yield _table(rows.gpu.map(_NAMES), "fp16", 1, rows.num_tokens, columns, inner, rows[column] / 1e3, "vidur")


def _find_sizes(rows: Any) -> dict[str, tuple[Any, Any]]:
    """Columns and inner dimension of the products of a layer, for a table or one row of it."""
    ways = rows.num_tensor_parallel_workers
    head = rows.n_embd // rows.n_head
    heads = rows.n_head // ways + 2 * np.maximum(rows.n_kv_head // ways, 1)
    wide = rows.n_expanded_embd // ways
    return {
        "attn_pre_proj_ms": (heads * head, rows.n_embd),
        "attn_post_proj_ms": (rows.n_embd, rows.n_embd // ways),
        "mlp_up_proj_ms": (wide * np.where(rows.use_gated_mlp, 2, 1), rows.n_embd),
        "mlp_down_proj_ms": (rows.n_embd, wide),
    }


def find_layer_products(row: Any) -> dict[str, Product]:
    """The products of a layer of vidur's, by the column of their time."""
    return {
        column: Product(rows=int(row.num_tokens), columns=int(columns), inner=int(inner), precision="fp16")
        for column, (columns, inner) in _find_sizes(row).items()
    }


def _read_serving() -> Iterator[pd.DataFrame]:
    for name in ("dense_layers", "dense_layers_v0"):
        rows = pd.read_csv(DATA / "llmservingsim_profiles" / f"{name}.csv.gz")
        for (model, ways, layer), part in rows.groupby(["model", "tp", "layer"]):
            sizes = _find_layer(*MODELS[str(model)], int(str(ways))).get(str(layer))
            if sizes is not None:
                yield _table(part.gpu, "bf16", 1, part.tokens, *sizes, part.latency_us / 1e6, "llmservingsim")


def _find_layer(
    hidden: int, heads: int, key_heads: int, head: int, wide: int, _words: int, ways: int
) -> dict[str, tuple[int, int]]:
    """Columns and inner dimension of the layers' products. Times of the vocabulary and the experts hold more."""
    gate = (wide // ways, hidden)
    key = (key_heads * head // ways, hidden)
    return {
        "qkv_proj": ((heads + 2 * key_heads) * head // ways, hidden),
        "q_proj": (heads * head // ways, hidden),
        "k_proj": key,
        "v_proj": key,
        "o_proj": (hidden, heads * head // ways),
        "gate_up_proj": (2 * wide // ways, hidden),
        "gate_proj": gate,
        "up_proj": gate,
        "down_proj": (hidden, wide // ways),
    }


def _table(
    device: object,
    precision: object,
    many: object,
    rows: object,
    columns: object,
    inner: object,
    seconds: object,
    source: str,
) -> pd.DataFrame:
    values = (device, precision, many, rows, columns, inner, seconds, source)
    return pd.DataFrame(dict(zip(COLUMNS, values, strict=True)))
