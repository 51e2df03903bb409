"""Models of consumption as files: arrays and plain text, nothing that could run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.errors import StoreError
from foretell.models.consumption.physics import PhysicsModel
from foretell.models.operators.persist import VERSION, import_safetensors, read_header

_KIND = "consumption"


def save_physics(path: Path, model: PhysicsModel, facts: Mapping[str, Any]) -> None:
    """Write a model, and facts about it, to one file.

    Raises:
        MissingExtraError: safetensors is not installed.
        StoreError: It cannot be written.
    """
    safetensors, SafetensorError = import_safetensors()
    arrays, record = model.to_record()
    said = {"version": VERSION, "model": _KIND, "record": json.dumps(record), "facts": json.dumps(dict(facts))}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        safetensors.save_file(arrays, path, metadata=said)
    except (OSError, SafetensorError) as exc:
        raise StoreError(f"{path}: cannot be written ({exc})") from exc


def load_physics(path: Path) -> tuple[PhysicsModel, dict[str, Any]]:
    """A model and the facts about it.

    Raises:
        MissingExtraError: safetensors is not installed.
        StoreError: The file is none of ours.
    """
    safetensors, SafetensorError = import_safetensors()
    try:
        said = read_header(path)
        _check_kind(said["model"])
        arrays = safetensors.load_file(path)
        return PhysicsModel.from_record(arrays, json.loads(said["record"])), json.loads(said["facts"])
    except (OSError, LookupError, ValueError, TypeError, SafetensorError) as exc:
        raise StoreError(f"{path}: no model of consumption that can be read ({exc}); learn it again") from exc


def _check_kind(kind: str) -> None:
    if kind != _KIND:
        raise ValueError(f"a model of {kind!r}")
