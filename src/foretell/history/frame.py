"""Past jobs as a table of runs: their resources, and what their texts tell where that differs between them."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from foretell.entities.run import RESOURCE_COLUMNS, USAGE_COLUMNS

_TAKEN = frozenset({*RESOURCE_COLUMNS, *USAGE_COLUMNS, "state"} - {"partition"})
_FEW_TEXTS = 20
_LIKE_IDS = 0.5  # texts of which more than this share of the jobs have one of their own say nothing of the next job


def build_frame(rows: Sequence[Mapping[str, Any]], described: Collection[str] | None) -> pd.DataFrame:
    """A job a row, with the resources of one of its nodes; of an app that is described, only its own parameters."""
    nodes = [max(row["nodes"], 1) for row in rows]
    columns: dict[str, list[Any]] = {
        "elapsed_s": [row["elapsed_s"] for row in rows],
        "peak_memory_bytes": [row["peak_memory_bytes"] for row in rows],
        "state": [row["state"] for row in rows],
        "cores": [-(-row["cores"] // count) for row, count in zip(rows, nodes, strict=True)],
        "gpus": [-(-row["gpus"] // count) for row, count in zip(rows, nodes, strict=True)],
        "nodes": nodes,
    }
    for name, values in _list_parameters(rows).items():
        if described is None or name in described:
            columns[name] = values
    return pd.DataFrame(columns)


def _list_parameters(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row["parameters"])
    found = {name: [row["parameters"].get(name) for row in rows] for name in names}
    columns = {f"option_{name}" if name in _TAKEN else name: values for name, values in found.items()}
    return {
        name: values
        for name, values in {"partition": [row["partition"] for row in rows], **columns}.items()
        if _tells(values)
    }


def _tells(values: Sequence[Any]) -> bool:
    """Whether values differ, and are not names that nearly every job has of its own."""
    distinct = len(Counter(map(repr, values)))
    is_text = any(isinstance(value, str) for value in values)
    return distinct > 1 and not (is_text and distinct > max(_FEW_TEXTS, _LIKE_IDS * len(values)))
