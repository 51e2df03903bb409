"""Models of training steps as files: arrays and plain text, nothing that could run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.core.errors import MissingExtraError, StoreError
from foretell.core.private_files import write_whole
from foretell.steps.replay import ReplayModel
from foretell.steps.serial_replay import SerialModel

VERSION = "1"


MODELS: dict[str, type[ReplayModel] | type[SerialModel]] = {"replay": ReplayModel, "serial": SerialModel}


def save_model(path: Path, model: ReplayModel | SerialModel, facts: Mapping[str, Any]) -> None:
    """Write a model, and facts about it, to one file.

    Raises:
        MissingExtraError: if safetensors is not installed.
        StoreError: if it cannot be written.
    """
    safetensors, SafetensorError = import_safetensors()
    record, arrays = model.to_state()
    name = next(name for name, kind in MODELS.items() if isinstance(model, kind))
    said = {"version": VERSION, "model": name, "record": json.dumps(record), "facts": json.dumps(dict(facts))}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, safetensors.save(arrays, metadata=said))
    except (OSError, SafetensorError) as exc:
        raise StoreError(f"{path}: cannot be written ({exc})") from exc


def load_model(path: Path) -> tuple[ReplayModel | SerialModel, dict[str, Any]]:
    """A model and the facts about it.

    Raises:
        MissingExtraError: if safetensors is not installed.
        StoreError: if the file is none of ours.
    """
    safetensors, SafetensorError = import_safetensors()
    try:
        said = read_header(path)
        arrays = safetensors.load_file(path)
        kind = MODELS[said["model"]]
        return kind.from_state(json.loads(said["record"]), arrays), json.loads(said["facts"])
    except (
        OSError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        SafetensorError,
    ) as exc:
        raise StoreError(
            f"{path}: no model of training steps that can be read ({exc}); learn the device again"
        ) from exc


def read_header(path: Path) -> dict[str, str]:
    """What a file says of itself, read without the arrays."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > path.stat().st_size - 8:
            raise ValueError("no header")
        header = json.loads(file.read(size))
    said = header.get("__metadata__", {}) if isinstance(header, dict) else {}
    if said.get("version") != VERSION:
        raise ValueError(f"version {said.get('version')!r} instead of {VERSION!r}")
    return {str(name): str(value) for name, value in said.items()}


def import_safetensors() -> tuple[Any, type[Exception]]:
    """What writes and reads, and the error it raises."""
    try:
        import safetensors.numpy
    except ImportError as exc:
        raise MissingExtraError("models of training steps need: pip install 'foretell[torch]'") from exc
    return safetensors.numpy, safetensors.SafetensorError
