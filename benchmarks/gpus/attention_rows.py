"""Measured attention of several sources, one row each, with the catalogue's names of devices."""

from collections.abc import Iterator
from functools import cache

import pandas as pd

from benchmarks.gpus.product_rows import MODELS
from benchmarks.gpus.results import DATA
from foretell.core.devices import find_device

SIZES = ["device", "batch", "heads", "key_heads", "queries", "keys_", "width"]
COLUMNS = [*SIZES, "seconds", "source"]

# One framework, which was measured on every device; its rows of a single token per request run another kernel.
_FRAMEWORK = "VLLM"


@cache
def read_attention() -> pd.DataFrame:
    """Every measured causal attention of a device in the catalogue, bf16, equal ones once."""
    rows = pd.concat([*_read_aiconfigurator(), *_read_serving()], ignore_index=True)
    names = {name: found.name for name in rows.device.unique() if (found := find_device(str(name)))}
    rows["device"] = rows.device.map(names)
    rows = rows.dropna(subset=["device"])
    seconds = rows.groupby([*SIZES, "source"], observed=True)["seconds"].median()
    return seconds.reset_index()[COLUMNS]


def _read_aiconfigurator() -> Iterator[pd.DataFrame]:
    path = DATA / "aiconfigurator" / "context_attention_perf.parquet"
    rows = pd.read_parquet(path, filters=[("framework", "=", _FRAMEWORK), ("isl", ">", 1)])
    sizes = (rows.batch_size, rows.num_heads, rows.num_key_value_heads, rows.isl, rows.isl, rows.head_dim)
    yield _table(rows.device.astype(str), *sizes, rows.latency / 1e3, "aiconfigurator")


def _read_serving() -> Iterator[pd.DataFrame]:
    """Only rows of one request read, or of decoding alone: the others hold several kernels."""
    rows = pd.read_csv(DATA / "llmservingsim_profiles" / "attention.csv.gz")
    for (model, ways), part in rows.groupby(["model", "tp"]):
        _hidden, heads, key_heads, width, *_rest = MODELS[str(model)]
        heads, key_heads = (max(1, count // int(str(ways))) for count in (heads, key_heads))
        read = part[(part.n_decode == 0) & (part.prefill_chunk > 1)]
        keys = read.kv_prefill + read.prefill_chunk
        yield _table(
            read.gpu, 1, heads, key_heads, read.prefill_chunk, keys, width, read.time_us / 1e6, "llmservingsim"
        )
        written = part[(part.prefill_chunk == 0) & (part.n_decode > 0)]
        yield _table(
            *(written.gpu, written.n_decode, heads, key_heads, 1, written.kv_decode, width),
            *(written.time_us / 1e6, "llmservingsim decode"),
        )


def _table(*values: object) -> pd.DataFrame:
    return pd.DataFrame(dict(zip(COLUMNS, values, strict=True)))
