"""The published inspector as a file: arrays and plain text, nothing that could run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.errors import StoreError
from foretell.models.consumption.driple import DripleModel
from foretell.models.operators.persist import VERSION, import_safetensors, read_header

_KIND = "driple"


def save_driple(path: Path, model: DripleModel, facts: Mapping[str, Any]) -> None:
    """Write a model, and facts about it, to one file.

    Raises:
        MissingExtraError: safetensors is not installed.
        StoreError: It cannot be written.
    """
    safetensors, SafetensorError = import_safetensors()
    record, arrays = model.to_state()
    said = {"version": VERSION, "model": _KIND, "record": json.dumps(record), "facts": json.dumps(dict(facts))}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        safetensors.save_file(arrays, path, metadata=said)
    except (OSError, SafetensorError) as exc:
        raise StoreError(f"{path}: cannot be written ({exc})") from exc


def load_driple(path: Path) -> tuple[DripleModel, dict[str, Any]]:
    """A model and the facts about it.

    Raises:
        MissingExtraError: safetensors is not installed.
        StoreError: The file is none of ours.
    """
    safetensors, SafetensorError = import_safetensors()
    try:
        said = read_header(path)
        if said["model"] != _KIND:
            raise ValueError(f"a model of {said['model']!r}")  # noqa: TRY301
        arrays = safetensors.load_file(path)
        return DripleModel.from_state(json.loads(said["record"]), arrays), json.loads(said["facts"])
    except (OSError, LookupError, ValueError, TypeError, SafetensorError) as exc:
        raise StoreError(f"{path}: no inspector that can be read ({exc}); learn it again") from exc
