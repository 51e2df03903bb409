"""Fitted regressors to and from bytes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from foretell.core.errors import StoreError
from foretell.core.model_checks import read_place
from foretell.core.model_files import ModelContent, from_bytes, to_bytes
from foretell.runtimes.regressors import REGRESSORS, RunRegressor, State

KIND = "runtimes"
_MOST_COLUMNS = 100_000
_FAMILIES = {kind: family for family, kind in REGRESSORS.items()}


def dump_models(models: Mapping[str, RunRegressor], *, facts: Mapping[str, Any]) -> bytes:
    """Regressors by name, and facts about them (JSON values), as the bytes of a model file."""
    listed = _list_parts(models.values())
    numbers = {id(model): number for number, model in enumerate(listed)}
    records: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
    for number, model in enumerate(listed):
        state = model.to_state()
        arrays |= {f"{number}.{name}": values for name, values in state.arrays.items()}
        records.append(
            {
                "family": _FAMILIES[type(model)],
                "columns": int(model.n_features_in_),
                "values": dict(state.values),
                "parts": [numbers[id(part)] for part in state.parts],
            }
        )
    record = {"models": records, "names": {name: numbers[id(model)] for name, model in models.items()}}
    return to_bytes(ModelContent(kind=KIND, record=record, arrays=arrays, facts=facts))


def load_models(
    blob: bytes, *, source: str = "the model", remedy: str = "fit it again"
) -> tuple[dict[str, RunRegressor], dict[str, Any]]:
    """The regressors and facts that :func:`dump_models` wrote.

    Raises:
        StoreError: The bytes are damaged or hold something else; the message names ``source`` and says the ``remedy``.
    """
    content = from_bytes(blob, kinds=[KIND], source=source, remedy=remedy)
    try:
        models = _build_models(content.record["models"], content.arrays)
        names = {name: models[read_place(number, len(models))] for name, number in content.record["names"].items()}
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as exc:
        raise StoreError(f"{source}: not a usable model ({exc}); {remedy}") from exc
    return names, dict(content.facts)


def _list_parts(models: Iterable[RunRegressor]) -> list[RunRegressor]:
    """Every regressor once, after those that are part of it."""
    found: dict[int, RunRegressor] = {}
    for model in models:
        if id(model) not in found:
            found |= {id(part): part for part in _list_parts(model.to_state().parts)}
            found[id(model)] = model
    return list(found.values())


def _build_models(records: Iterable[Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]) -> list[RunRegressor]:
    grouped: dict[str, dict[str, NDArray[Any]]] = defaultdict(dict)
    for path, values in arrays.items():
        number, _, name = path.partition(".")
        grouped[number][name] = values
    models: list[RunRegressor] = []
    for record in records:
        # Parts come before what they are part of, so nothing can be part of itself.
        parts = tuple(models[read_place(number, len(models))] for number in record["parts"])
        state = State(values=record["values"], arrays=grouped[str(len(models))], parts=parts)
        columns = 1 + read_place(record["columns"] - 1, _MOST_COLUMNS)
        models.append(REGRESSORS[record["family"]].from_state(state, columns=columns))
    return models
