"""Predictors to and from the bytes that a store keeps."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import StoreError
from foretell.core.formula import Formula
from foretell.core.intervals import Spread
from foretell.core.model_card import ModelCard
from foretell.core.model_files import ModelContent, from_bytes, read_number, read_place, read_positive, to_bytes
from foretell.core.serialization import from_record, to_record
from foretell.runtimes.bounds import Marginal
from foretell.runtimes.encoding import Encoder, Field
from foretell.runtimes.predictor import CUSTOM, ELAPSED, MEMORY, Predictor
from foretell.runtimes.proportionality import Units
from foretell.runtimes.recipes import FittedRecipe, Saturation
from foretell.runtimes.regressors import REGRESSORS, RunRegressor, State

KIND = "runtimes"
SOURCE = "source "  # before the names of models that belong to the source of a transfer
_MOST_COLUMNS = 100_000
_FAMILIES = {kind: family for family, kind in REGRESSORS.items()}
_UNUSABLE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)


def dump_predictor(predictor: Predictor) -> bytes:
    """A predictor as bytes, without its card."""
    return dump_models(_list_models(predictor), facts=_build_facts(predictor))


def read_predictor(blob: bytes, card: ModelCard) -> Predictor:
    """The predictor that :func:`dump_predictor` wrote.

    Raises:
        StoreError: The bytes are damaged, of another format, or not a predictor. The message says how to rebuild it.
    """
    source = f"the stored model of {card.app!r}"
    remedy = f"it is rebuilt on request: run 'foretell build {card.app}'"
    models, facts = load_models(blob, source=source, remedy=remedy)
    try:
        return _build_predictor(models, facts, card)
    except _UNUSABLE as exc:
        raise StoreError(f"{source}: not a usable model ({exc!r}); {remedy}") from exc


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
        StoreError: The bytes are damaged or hold something else; the message names ``source`` and ends with ``remedy``.
    """
    content = from_bytes(blob, kinds=[KIND], source=source, remedy=remedy)
    try:
        models = _build_models(content.record["models"], content.arrays)
        names = {name: models[read_place(number, len(models))] for name, number in content.record["names"].items()}
    except _UNUSABLE as exc:
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


def _list_models(predictor: Predictor) -> dict[str, RunRegressor]:
    own = {name: fitted.model for name, fitted in predictor.models.items()}
    others = _list_models(predictor.source) if predictor.source else {}
    return own | {SOURCE + name: model for name, model in others.items()}


def _build_facts(predictor: Predictor) -> dict[str, Any]:
    source = predictor.source
    return {
        "encoder": to_record(predictor.encoder),
        "spreads": {name: to_record(spread) for name, spread in predictor.spreads.items()},
        "factors": {name: fitted.factor for name, fitted in predictor.models.items()},
        "saturation": {
            name: to_record(fitted.saturation) for name, fitted in predictor.models.items() if fitted.saturation
        },
        "marginals": {name: to_record(marginal) for name, marginal in predictor.marginals.items()},
        "formula": predictor.formula,
        "units": to_record(predictor.units),
        "transferred": list(predictor.transferred),
        "source": {**_build_facts(source), "card": to_record(_abridge(source.card))} if source else None,
    }


def _abridge(card: ModelCard) -> ModelCard:
    """A source's card without what only its own readers need."""
    short = {name: replace(judged, leaderboard=(), pairs=()) for name, judged in card.judgements.items()}
    return replace(card, judgements=short)


def _build_predictor(models: Mapping[str, RunRegressor], facts: Mapping[str, Any], card: ModelCard) -> Predictor:
    formula, source = facts["formula"], facts["source"]
    others = {name.removeprefix(SOURCE): model for name, model in models.items() if name.startswith(SOURCE)}
    encoder, saturation = _read_encoder(facts["encoder"]), facts["saturation"]
    predictor = Predictor(
        encoder=encoder,
        models={
            name: FittedRecipe(
                model=_check_columns(models[name], encoder),
                factor=read_positive(factor),
                saturation=_read_saturation(saturation[name], encoder) if name in saturation else None,
            )
            for name, factor in facts["factors"].items()
        },
        spreads={name: _check_spread(from_record(Spread, record)) for name, record in facts["spreads"].items()},
        formula=None if formula is None else Formula.parse(formula).text,
        card=card,
        units=_read_units(facts["units"]),
        marginals={name: _read_marginal(record) for name, record in facts["marginals"].items()},
        source=_build_predictor(others, source, from_record(ModelCard, source["card"])) if source is not None else None,
        transferred=tuple(facts["transferred"]),
    )
    _check_names(predictor)
    return predictor


def _check_names(predictor: Predictor) -> None:
    """Check that whatever a prediction looks up by name is there."""
    needed = [ELAPSED, *([MEMORY] if MEMORY in predictor.models else [])]
    lacking = [name for name in needed if name not in predictor.models or name not in predictor.spreads]
    if predictor.formula is not None:
        known = {*predictor.models, *predictor.units.names, *(field.name for field in predictor.encoder.fields)}
        lacking += [CUSTOM] if CUSTOM not in predictor.spreads else []
        lacking += sorted(Formula(predictor.formula).names - known)
    source = predictor.source.models if predictor.source else {}
    lacking += [name for name in predictor.transferred if name not in (ELAPSED, MEMORY) or name not in source]
    fields = {field.name for field in predictor.encoder.fields}
    lacking += [name for name in ("cores", "gpus", "nodes") if name not in fields]
    if lacking:
        raise ValueError(f"nothing is known of {', '.join(map(repr, lacking))}")


def _check_columns(model: RunRegressor, encoder: Encoder) -> RunRegressor:
    if model.n_features_in_ != len(encoder.names):
        raise ValueError(f"a model of {model.n_features_in_} columns, where there are {len(encoder.names)}")
    return model


def _read_encoder(record: Mapping[str, Any]) -> Encoder:
    encoder = from_record(Encoder, record)
    for field in encoder.fields:
        _check_field(field)
    return encoder


def _check_field(field: Field) -> None:
    if field.levels is None:
        for number in (field.low, field.high, field.fill, *field.grid):
            read_number(number)
    elif not field.levels or not isinstance(field.fill, str) or len(field.shares) not in (0, len(field.levels)):
        raise ValueError(f"column {field.name!r} without its levels")
    for share in field.shares:
        read_number(share)


def _read_saturation(record: Mapping[str, Any], encoder: Encoder) -> Saturation:
    saturation = from_record(Saturation, record)
    if len(saturation.high) != len(encoder.names):
        raise ValueError(f"a saturation of {len(saturation.high)} columns, where there are {len(encoder.names)}")
    for number in (saturation.believed, *saturation.high):
        read_number(number)
    return saturation


def _check_spread(spread: Spread) -> Spread:
    residuals = np.array([read_number(residual) for residual in spread.residuals])
    if not len(residuals) or np.any(np.diff(residuals) < 0):
        raise ValueError("a spread whose residuals do not rise")
    read_positive(spread.scale)
    return spread


def _read_marginal(record: Mapping[str, Any]) -> Marginal:
    marginal = from_record(Marginal, record)
    read_positive(marginal.median)
    _check_spread(marginal.spread)
    return marginal


def _read_units(record: Mapping[str, Any]) -> Units:
    units = from_record(Units, record)
    for number in (units.bench, units.low, units.high, units.usual):
        read_positive(number)
    if units.formula is not None and set(units.names) != Formula.parse(units.formula).names:
        raise ValueError(f"units of {units.formula!r} that read {', '.join(units.names)}")
    return units
