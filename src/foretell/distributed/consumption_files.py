"""Models of consumption as files: arrays and plain text, nothing that could run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

from numpy.typing import NDArray

from foretell.core.errors import StoreError
from foretell.core.private_files import write_whole
from foretell.steps.step_files import VERSION, import_safetensors, read_header

Arrays = dict[str, NDArray[Any]]


class Kept(Protocol):
    """A model that can be taken apart and put together again."""

    kind: ClassVar[str]  # as files name it

    def to_state(self) -> tuple[dict[str, Any], Arrays]: ...
    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self: ...


Model = TypeVar("Model", bound=Kept)


def save_model(path: Path, model: Kept, facts: Mapping[str, Any]) -> None:
    """Write a model, and facts about it, to one file.

    Raises:
        MissingExtraError: safetensors is not installed.
        StoreError: It cannot be written.
    """
    safetensors, SafetensorError = import_safetensors()
    record, arrays = model.to_state()
    said = {"version": VERSION, "model": model.kind, "record": json.dumps(record), "facts": json.dumps(dict(facts))}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, safetensors.save(arrays, metadata=said))
    except (OSError, SafetensorError) as exc:
        raise StoreError(f"{path}: cannot be written ({exc})") from exc


def load_model(path: Path, kind: type[Model]) -> tuple[Model, dict[str, Any]]:
    """A model of a kind, and the facts about it.

    Raises:
        MissingExtraError: safetensors is not installed.
        StoreError: The file is none of ours, or of another kind.
    """
    safetensors, SafetensorError = import_safetensors()
    try:
        said = read_header(path)
        _check_kind(said["model"], kind.kind)
        return kind.from_state(json.loads(said["record"]), safetensors.load_file(path)), json.loads(said["facts"])
    except PermissionError as exc:
        raise StoreError(f"{path}: you may not read it; ask whoever it belongs to, or learn one of your own") from exc
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
        raise StoreError(f"{path}: no model of consumption that can be read ({exc}); learn it again") from exc


def _check_kind(found: str, kind: str) -> None:
    if found != kind:
        raise ValueError(f"a model of {found!r}")
