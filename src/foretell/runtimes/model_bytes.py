"""Whether the archive of a stored model can be opened: how much it holds, and of which types, before any is made."""

import io
import json
import warnings
import zipfile
from collections.abc import Mapping
from typing import Any

import skops.io

from foretell.core.errors import StoreError
from foretell.runtimes.model_types import check_model, name_types
from foretell.runtimes.regressors import RunRegressor

# What we write: about 10 MB and 1,000 entries for a model of thousands of runs, 30 levels deep.
MOST_BYTES = 256 * 2**20
MOST_SCHEMA_BYTES = 64 * 2**20
MOST_ENTRIES = 100_000
MOST_VALUES = 2_000_000  # each takes more memory than text
DEEPEST = 100

_SCHEMA = "schema.json"
_DIRECTORY_ENTRY = b"PK\x01\x02"
_SEED_POOL = "4"


def check_archive(blob: bytes, *, types: Mapping[str, frozenset[str]]) -> None:
    """Whether skops may read it; ``types`` are the names of those that each of its loaders may make.

    Raises:
        ValueError, TypeError, LookupError: if it holds too much, or what Foretell does not write.
        zipfile.BadZipFile: if it is none.
    """
    # The directory is counted first: reading it takes memory for each entry.
    _check_limit("bytes", len(blob), MOST_BYTES)
    _check_limit("entries", blob.count(_DIRECTORY_ENTRY), MOST_ENTRIES)
    with zipfile.ZipFile(io.BytesIO(blob)) as archive:
        sizes = _read_sizes(archive, len(blob))
        _check_limit("bytes of its schema", sizes[_SCHEMA], MOST_SCHEMA_BYTES)
        text = archive.read(_SCHEMA)
    _check_limit("values in its schema", sum(text.count(mark) for mark in (b"{", b"[", b",")), MOST_VALUES)
    parts = _Parts(types, sizes)
    parts.check(json.loads(text))
    _check_limit("bytes in arrays", parts.referred, MOST_BYTES)


def _check_limit(what: str, count: int, most: int) -> None:
    if count > most:
        raise ValueError(f"{count:,} {what}, more than {most:,}")


def _read_sizes(archive: zipfile.ZipFile, whole: int) -> dict[str, int]:
    """The size of each entry. None is compressed, so together they are no larger than the archive."""
    entries = archive.infolist()
    sizes = {entry.filename: entry.file_size for entry in entries}
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size for entry in entries):
        raise ValueError("compressed entries")
    if len(sizes) < len(entries) or sum(sizes.values()) > whole:
        raise ValueError("entries that overlap")
    return sizes


class _Parts:
    """One walk through a schema.

    skops makes one object for all parts of one id, whatever the later ones hold. So parts of one id have to be equal:
    else few bytes are objects within objects without end, or another object than the one that was checked.
    """

    def __init__(self, types: Mapping[str, frozenset[str]], sizes: Mapping[str, int]) -> None:
        self.referred = 0
        self._types = types
        self._sizes = sizes
        self._numbers: dict[Any, int] = {}
        self._numbers_by_id: dict[int, int] = {}

    def check(self, value: Any, depth: int = 0) -> Any:
        """What stands for a value: the same for equal ones, whatever their ids and the files of their arrays."""
        if depth > DEEPEST:
            raise ValueError(f"parts within parts, more than {DEEPEST} deep")
        if isinstance(value, list):
            return self._number((list, *(self.check(item, depth + 1) for item in value)))
        if not isinstance(value, dict):
            return value
        if "__loader__" in value:
            self._check_type(value)
        aside = ("__id__", "file") if value.get("__loader__") == "NdArrayNode" else ("__id__",)
        number = self._number(
            (dict, *((name, self.check(item, depth + 1)) for name, item in value.items() if name not in aside))
        )
        if "__id__" in value:
            self._check_id(value["__id__"], number[0])
        return number

    def _number(self, content: tuple[Any, ...]) -> tuple[int]:
        return (self._numbers.setdefault(content, len(self._numbers)),)

    def _check_id(self, mark: Any, number: int) -> None:
        if type(mark) is not int or self._numbers_by_id.setdefault(mark, number) != number:
            raise ValueError("different parts of one id")

    def _check_type(self, part: Mapping[str, Any]) -> None:
        loader, name = part["__loader__"], f"{part['__module__']}.{part['__class__']}"
        if name not in self._types.get(loader, ()):
            raise ValueError(f"a {name} by {loader}, which Foretell does not write")
        if loader == "NdArrayNode":
            if part["type"] != "numpy":
                raise ValueError("an array of objects")
            self.referred += self._sizes[part["file"]]
        if loader == "RandomGeneratorNode":
            _check_seed(part["content"]["seed_seq"])


def _check_seed(seed: Mapping[str, Any]) -> None:
    """A pool of the usual size: a larger one takes as long to fill as its square."""
    pool = seed["content"]["pool_size"]
    if (seed["__loader__"], pool["__loader__"], pool["content"]) != ("DictNode", "JsonNode", _SEED_POOL):
        raise ValueError("a random generator that Foretell does not write")


_TYPES = name_types()
_TRUSTED = sorted(name for names in _TYPES.values() for name in names)


def dump_models(models: Mapping[str, RunRegressor], *, facts: Mapping[str, Any]) -> bytes:
    """The models, and plain facts beside them, as bytes."""
    return bytes(skops.io.dumps({"facts": json.dumps(facts), "models": dict(models)}))


def load_models(blob: bytes) -> tuple[dict[str, RunRegressor], dict[str, Any]]:
    """What :func:`dump_models` wrote.

    Raises:
        StoreError: if the bytes are damaged, too many, or hold a type that is none of ours.
    """
    try:
        check_archive(blob, types=_TYPES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns of other versions; the store rebuilds instead
            content = skops.io.loads(blob, trusted=_TRUSTED)
        models = _checked(content["models"])
        for model in models.values():
            check_model(model)
        return models, json.loads(content["facts"])
    except Exception as exc:  # a damaged archive fails in as many ways as there are bytes
        raise StoreError(f"the stored model cannot be read ({exc}); run 'foretell build' to make it anew") from exc


def _checked(models: Mapping[str, object]) -> dict[str, RunRegressor]:
    checked = {name: model for name, model in models.items() if isinstance(model, RunRegressor)}
    if len(checked) < len(models):
        raise TypeError(f"no models of ours: {', '.join(sorted(set(models) - set(checked)))}")
    return checked
