"""Passes over memory that others measured one by one: NeuSight's operators, and layers of LLMs."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from benchmarks.gpus.kernel_observations import Observation, build_pass
from benchmarks.gpus.results import DATA
from foretell.core.devices import find_device
from foretell.steps.kernels.kernel_calls import MemoryPass


def read_passes() -> list[Observation]:
    """All of them."""
    return [*_read_neusight(), *_read_fused_layers(), *_read_plain_layers(), *_read_vidur()]


def _list_rows(table: pd.DataFrame) -> Iterator[Any]:
    yield from table.itertuples()


# NeuSight: single precision, forward; times include the launch by the host

_TABLES = ("train_add", "train_gelu", "train_ln", "train_softmax", "test_elem", "test_ln", "test_softmax")
_KINDS = {
    "add": "__add__", "addu": "__add__", "mul": "__mul__", "mulu": "__mul__", "div": "__truediv__",
    "divu": "__truediv__", "pow": "__pow__", "powu": "__pow__", "ln": "layer_norm",
}  # fmt: skip
_OF_TWO = frozenset({"add", "mul", "div", "pow"})  # tensors; the others have a number as their second
_SMALL = 30_000  # elements: such a pass takes as long as its launch
_TIMES_LAUNCH = 4.0  # shorter passes say little but the launch
_LAUNCH_MS = 0.028
_KERNEL_S = 3e-6  # of the launch's time, the kernel's own


def _read_neusight() -> Iterator[Observation]:
    folder = DATA / "neusight" / "ops"
    table = pd.concat([pd.read_csv(folder / f"{name}.csv.gz") for name in _TABLES])
    launch = table[table.B * table.H < _SMALL].groupby(["Device", "OPName"]).Latency.quantile(0.2).to_dict()
    names = {name: device.name for name in table.Device.unique() if (device := find_device(name))}
    for row in _list_rows(table[table.Device.isin(names)]):
        overhead = launch.get((row.Device, row.OPName), _LAUNCH_MS)
        if row.Latency >= _TIMES_LAUNCH * overhead:
            yield Observation(
                calls=(_build_operator(row),),
                device=names[row.Device],
                seconds=(row.Latency - overhead) * 1e-3 + _KERNEL_S,
                source="neusight",
                label=str(row.OPName),
            )


def _build_operator(row: Any) -> MemoryPass:
    size = row.B * row.H
    moved = 4 * size * (3 if row.OPName in _OF_TWO else 2)
    if row.OPName == "ln":
        moved += 8 * (row.H + row.B)
    return build_pass(_KINDS.get(row.OPName, row.OPName), size, row.H, moved)


# LLMServingSim: bfloat16; first with the fused kernels of a server, then as PyTorch runs a model's code

_WIDTHS = {  # of the model, of its MLP, heads, key heads
    "meta-llama/Llama-3.1-8B": (4096, 14336, 32, 8),
    "meta-llama/Llama-3.1-70B": (8192, 28672, 64, 8),
    "Qwen/Qwen3-32B": (5120, 25600, 64, 8),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": (2048, 0, 32, 4),
}
_HEAD = 128


def _read_fused_layers() -> Iterator[Observation]:
    table = pd.read_csv(DATA / "llmservingsim_profiles" / "dense_layers.csv.gz")
    names = {"RTX4090": "RTX4090", "RTXPRO6000": "RTXPRO6000"}
    for row in _list_rows(table[table.gpu.isin(names)]):
        call = _build_fused(row)
        if call is not None:
            yield _observe(row, (call,), names[row.gpu], "llmservingsim")


def _build_fused(row: Any) -> MemoryPass | None:
    width, inner, heads, key_heads = _WIDTHS[row.model]
    size, rotated = row.tokens * width, row.tokens * (heads + key_heads) * _HEAD // row.tp
    if row.layer in ("layernorm", "final_layernorm"):
        return build_pass("rms_norm", size, width, 4 * size + 2 * width)
    if row.layer == "act_fn" and inner:
        return build_pass(
            "fused_silu_mul", row.tokens * inner // row.tp, inner // row.tp, 6 * row.tokens * inner / row.tp
        )
    if row.layer == "embedding":
        return build_pass("embedding", size, width, 4 * size + 8 * row.tokens)
    if row.layer == "rotary_emb":
        return build_pass("fused_rope", rotated, _HEAD, 4 * rotated)
    return build_pass("rms_norm", rotated, _HEAD, 4 * rotated, kernels=2) if row.layer == "qk_norm" else None


def _read_plain_layers() -> Iterator[Observation]:
    table = pd.read_csv(DATA / "llmservingsim_profiles" / "dense_layers_v0.csv.gz")
    names = {"A6000": "A6000", "RTX3090": "RTX3090", "H100": "H100"}
    for row in _list_rows(table[table.gpu.isin(names) & table.model.isin(_WIDTHS)]):
        calls = _build_plain(row)
        if calls:
            yield _observe(row, calls, names[row.gpu], "llmservingsim plain")


def _build_plain(row: Any) -> tuple[MemoryPass, ...]:
    width, inner, *_ = _WIDTHS[row.model]
    size, rows = row.tokens * width, row.tokens
    if "layernorm" in row.layer:  # in float32, operator by operator; which of them is slow is not known
        return (build_pass("plain_rms_norm", size, width, 36 * size, kernels=8),)
    if row.layer == "act_fn":
        size = row.tokens * inner // row.tp
        return (
            build_pass("silu", size, inner // row.tp, 4 * size),
            build_pass("__mul__", size, inner // row.tp, 6 * size),
        )
    if row.layer == "embedding" and row.gpu != "H100":  # four times as long there as on others: not one gather
        return (build_pass("embedding", size, width, 4 * size + 8 * rows),)
    return ()


def _observe(row: Any, calls: tuple[MemoryPass, ...], device: str, source: str) -> Observation:
    return Observation(calls=calls, device=device, seconds=row.latency_us * 1e-6, source=source, label=str(row.layer))


# vidur: float16, kernels of a server of 2024 (slower than later ones, so that they are kinds of their own)

_SHORTEST_MS = 0.01  # times are rounded to microseconds


def _read_vidur() -> Iterator[Observation]:
    table = pd.read_csv(DATA / "vidur_profiling" / "layers.csv.gz")
    names = {"a100": "A100-80", "h100": "H100"}
    for row in _list_rows(table[table.gpu.isin(names)]):
        for column, call in build_layer_passes(row).items():
            milliseconds = getattr(row, column)
            if milliseconds >= _SHORTEST_MS:
                yield Observation(
                    calls=(call,), device=names[row.gpu], seconds=milliseconds * 1e-3, source="vidur", label=column
                )


def build_layer_passes(row: Any) -> dict[str, MemoryPass]:
    size, ranks = row.num_tokens * row.n_embd, row.num_tensor_parallel_workers
    inner, head = row.n_expanded_embd // ranks, row.n_embd // row.n_head
    rotated = row.num_tokens * (row.n_head + row.n_kv_head) // ranks * head
    norm = "layer_norm" if "phi" in row.model else "vllm_rms_norm"
    kind, passes = ("vllm_silu_mul", 3) if row.use_gated_mlp else ("gelu", 2)
    return {
        "input_layernorm_ms": build_pass(norm, size, row.n_embd, 4 * size),
        "mlp_act_ms": build_pass(kind, row.num_tokens * inner, inner, 2 * passes * row.num_tokens * inner),
        "attn_rope_ms": build_pass("vllm_rope", rotated, head, 4 * rotated),
        "add_ms": build_pass("__add__", size, row.n_embd, 6 * size),
    }
