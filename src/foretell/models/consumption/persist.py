"""Models of consumption as files: arrays and plain text, nothing that could run."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from foretell.errors import StoreError
from foretell.models.consumption.physics import PhysicsModel
from foretell.models.operators.persist import VERSION, import_safetensors, read_header

Arrays = dict[str, NDArray[Any]]
Model = TypeVar("Model")

_KIND = "consumption"


def save_physics(path: Path, model: PhysicsModel, facts: Mapping[str, Any]) -> None:
    """Write a model, and facts about it, to one file.

    Raises:
        MissingExtraError, StoreError: As :func:`write_model`.
    """
    arrays, record = model.to_record()
    write_model(path, _KIND, record=record, arrays=arrays, facts=facts)


def load_physics(path: Path) -> tuple[PhysicsModel, dict[str, Any]]:
    """A model and the facts about it.

    Raises:
        MissingExtraError, StoreError: As :func:`read_model`.
    """
    return read_model(path, _KIND, lambda record, arrays: PhysicsModel.from_record(arrays, record))


def write_model(path: Path, kind: str, *, record: Mapping[str, Any], arrays: Arrays, facts: Mapping[str, Any]) -> None:
    """Write what a model of a kind is made of, and facts about it, to one file.

    Raises:
        MissingExtraError: safetensors is not installed.
        StoreError: It cannot be written.
    """
    safetensors, SafetensorError = import_safetensors()
    said = {"version": VERSION, "model": kind, "record": json.dumps(record), "facts": json.dumps(dict(facts))}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        safetensors.save_file(arrays, path, metadata=said)
    except (OSError, SafetensorError) as exc:
        raise StoreError(f"{path}: cannot be written ({exc})") from exc


def read_model(path: Path, kind: str, build: Callable[[Any, Arrays], Model]) -> tuple[Model, dict[str, Any]]:
    """A model of a kind, built from its record and arrays, and the facts about it.

    Raises:
        MissingExtraError: safetensors is not installed.
        StoreError: The file is none of ours, or of another kind.
    """
    safetensors, SafetensorError = import_safetensors()
    try:
        said = read_header(path)
        _check_kind(said["model"], kind)
        return build(json.loads(said["record"]), safetensors.load_file(path)), json.loads(said["facts"])
    except (OSError, LookupError, ValueError, TypeError, SafetensorError) as exc:
        raise StoreError(f"{path}: no model of consumption that can be read ({exc}); learn it again") from exc


def _check_kind(found: str, kind: str) -> None:
    if found != kind:
        raise ValueError(f"a model of {found!r}")
