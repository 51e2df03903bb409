"""One file format for every fitted model: named arrays and a JSON header, in one safetensors file."""

import json
import math
import reprlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import StoreError
from foretell.core.private_files import write_whole

Arrays = Mapping[str, NDArray[Any]]

FORMAT = "1"
# A model of thousands of runs takes about 10 MB and 1,000 arrays.
MOST_BYTES = 256 * 2**20
MOST_HEADER_BYTES = 64 * 2**20
MOST_VALUES = 2_000_000  # in the header's JSON: each takes more memory than its text

_LENGTH_BYTES = 8
_ZIP_SIGNATURE = b"PK\x03\x04"
_LIBRARIES = {"numpy": "numpy", "scipy": "scipy", "scikit-learn": "sklearn", "torch": "torch"}
_UNREADABLE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelContent:
    """What a model file holds.

    ``record`` and ``arrays`` are the model, ``facts`` are about it (JSON values). ``versions`` are those of Foretell
    and of the libraries that were loaded when the file was written. They are for error messages and for people:
    arrays are read in the same way by every version, and ``FORMAT`` changes where that is not so.
    """

    kind: str
    record: Mapping[str, Any]
    arrays: Arrays
    facts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


class FittedModel(Protocol):
    """A model that can be taken apart into JSON values and arrays, and put together again."""

    kind: ClassVar[str]  # as files name it

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]: ...
    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Arrays) -> Self: ...


Model = TypeVar("Model", bound=FittedModel)


def save_model(path: Path, model: FittedModel, facts: Mapping[str, Any]) -> None:
    """Write a model, and facts about it, to a file.

    Raises:
        StoreError: The file cannot be written.
    """
    record, arrays = model.to_state()
    blob = to_bytes(ModelContent(kind=model.kind, record=record, arrays=arrays, facts=facts))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, blob)
    except OSError as exc:
        raise StoreError(f"{path}: cannot be written ({exc})") from exc


def load_model(path: Path, kinds: Sequence[type[Model]], *, remedy: str) -> tuple[Model, dict[str, Any]]:
    """A model of one of these kinds, and the facts about it.

    Raises:
        StoreError: The file cannot be read or holds something else. The message ends with ``remedy``.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise StoreError(f"{path}: larger than {MOST_BYTES:,} bytes; {remedy}")
        blob = path.read_bytes()
    except PermissionError as exc:
        raise StoreError(f"{path}: no permission to read it; ask its owner, or {remedy}") from exc
    except OSError as exc:
        raise StoreError(f"{path}: cannot be read ({exc}); {remedy}") from exc
    known = {kind.kind: kind for kind in kinds}
    content = from_bytes(blob, kinds=tuple(known), source=str(path), remedy=remedy)
    try:
        return known[content.kind].from_state(content.record, content.arrays), dict(content.facts)
    except _UNREADABLE as exc:
        raise StoreError(f"{path}: not a usable model ({exc}); {remedy}") from exc


def to_bytes(content: ModelContent) -> bytes:
    """A model file as bytes."""
    import safetensors.numpy

    header = {
        "version": FORMAT,
        "model": content.kind,
        "versions": json.dumps(_find_versions()),
        "record": json.dumps(content.record),
        "facts": json.dumps(dict(content.facts)),
    }
    arrays = {name: np.ascontiguousarray(values) for name, values in content.arrays.items()}
    return bytes(safetensors.numpy.save(arrays, metadata=header))


def from_bytes(blob: bytes, *, kinds: Sequence[str], source: str, remedy: str) -> ModelContent:
    """The content of a model file of one of these kinds.

    Raises:
        StoreError: It cannot be read, or holds something else. The message names ``source`` and ends with ``remedy``.
    """
    import safetensors
    import safetensors.numpy

    if blob.startswith(_ZIP_SIGNATURE):
        raise StoreError(f"{source}: written by an earlier version of Foretell, in another format; {remedy}")
    try:
        header = _read_header(blob)
        if header.get("version") == FORMAT:
            return _read_content(header, safetensors.numpy.load(blob), kinds)
    except (*_UNREADABLE, safetensors.SafetensorError) as exc:
        raise StoreError(f"{source}: not a readable model ({exc}); {remedy}") from exc
    raise StoreError(f"{source}: {_describe_format(header)}, and this version reads format {FORMAT}; {remedy}")


def _read_header(blob: bytes) -> Mapping[str, Any]:
    """The text values of a safetensors file, checked for size before anything is parsed."""
    size = int.from_bytes(blob[:_LENGTH_BYTES], "little")
    _check_limit("bytes", len(blob), MOST_BYTES)
    if len(blob) < _LENGTH_BYTES or size > len(blob) - _LENGTH_BYTES:
        raise ValueError("it has no header")
    _check_limit("bytes in its header", size, MOST_HEADER_BYTES)
    text = blob[_LENGTH_BYTES : _LENGTH_BYTES + size]
    _check_limit("values in its header", sum(text.count(mark) for mark in (b"{", b"[", b",")), MOST_VALUES)
    header = json.loads(text)
    metadata = header.get("__metadata__", {}) if isinstance(header, dict) else {}
    if not isinstance(metadata, dict):
        raise TypeError("its header is not a table")
    return metadata


def _read_content(header: Mapping[str, Any], arrays: Arrays, kinds: Sequence[str]) -> ModelContent:
    if header["model"] not in kinds:
        raise ValueError(f"a model of kind {header['model']!r}, expected {' or '.join(map(repr, kinds))}")
    for values in arrays.values():
        if values.dtype.kind not in "biuf":
            raise ValueError(f"an array of {values.dtype}")
    return ModelContent(
        kind=header["model"],
        record=_read_table(header["record"]),
        arrays=arrays,
        facts=_read_table(header["facts"]),
        versions=_read_table(header.get("versions", "{}")),
    )


def _read_table(text: str) -> dict[str, Any]:
    table = json.loads(text)
    if not isinstance(table, dict):
        raise TypeError("its header holds something that is not a table")
    return table


def _describe_format(header: Mapping[str, Any]) -> str:
    if "version" not in header:
        return "not a model file of Foretell"
    try:
        writer = _read_table(header["versions"])["foretell"]
    except _UNREADABLE:
        return f"a model in format {str(header['version'])[:20]!r}"
    return f"a model in format {str(header['version'])[:20]!r}, written by Foretell {str(writer)[:20]}"


def _check_limit(what: str, count: int, most: int) -> None:
    if count > most:
        raise ValueError(f"{count:,} {what}, more than {most:,}")


def _find_versions() -> dict[str, str]:
    """Foretell's own, and those of libraries that are loaded already."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("foretell")
    except PackageNotFoundError:  # run from a checkout that was not installed
        own = "unknown"
    loaded = {name: sys.modules.get(module) for name, module in _LIBRARIES.items()}
    return {"foretell": own} | {name: str(module.__version__) for name, module in loaded.items() if module is not None}


Array = NDArray[Any]


def check_nodes(left: Array, right: Array, feature: Array, *, leaf: Array, features: int | None = None) -> None:
    """Nodes of trees: children come after their node, so that every path ends, and columns are ones there are."""
    own = np.arange(len(leaf))
    inner = ~np.asarray(leaf, dtype=bool)
    for children in (left, right):
        if np.any(inner & ((children <= own) | (children >= len(own)))):
            raise ValueError("a tree whose nodes lead outside it or back")
    if np.any(inner & ((feature < 0) | (feature >= (np.iinfo(np.int64).max if features is None else features)))):
        raise ValueError("a tree that asks for a column there is none of")


def check_numbers(values: Array, *, shape: tuple[int | None, ...], finite: bool = True) -> Array:
    """Numbers of that shape, ``None`` for any length above zero; not even infinite ones if ``finite``."""
    if values.dtype.kind not in "iuf" or values.ndim != len(shape):
        raise ValueError(f"an array of {values.dtype} with {values.ndim} dimensions")
    if any(size == 0 or (asked is not None and size != asked) for size, asked in zip(values.shape, shape, strict=True)):
        raise ValueError(f"an array of shape {values.shape}")
    if not (np.isfinite(values).all() if finite else not np.isnan(values).any()):
        raise ValueError("an array with values that are no numbers")
    return values


def check_whole_numbers(values: Array, *, shape: tuple[int | None, ...]) -> Array:
    """As :func:`check_numbers`, of whole numbers."""
    if values.dtype.kind not in "iu":
        raise ValueError(f"an array of {values.dtype}")
    return check_numbers(values, shape=shape)


def read_number(value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise ValueError(f"{reprlib.repr(value)} instead of a number")
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def read_positive(value: Any) -> float:
    """A finite number above zero."""
    if read_number(value) <= 0:
        raise ValueError(f"{value!r} instead of a number above zero")
    return float(value)


def read_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Finite numbers by name."""
    return {name: read_number(value) for name, value in values.items()}


def read_rising(values: Iterable[Any], *, count: int) -> NDArray[np.float64]:
    """So many finite numbers, none smaller than the one before."""
    numbers = np.array([read_number(value) for value in values])
    if len(numbers) != count or np.any(np.diff(numbers) < 0):
        raise ValueError("quantiles that do not rise")
    return numbers


def read_place(value: Any, count: int) -> int:
    """A place in a list of that length."""
    if type(value) is not int or not 0 <= value < count:
        raise ValueError(f"{reprlib.repr(value)} instead of a place among {count}")
    return value
