"""Fitted models to bytes and back. No pickle: reading a model somebody sent you runs no code of theirs."""

import json
import warnings
from collections.abc import Mapping
from typing import Any

import skops.io

from foretell.errors import StoreError
from foretell.models.archive import check_archive
from foretell.models.fitted import check_model
from foretell.models.kinds import name_types
from foretell.models.runs import RunRegressor

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
