"""Fitted models to bytes and back. No pickle: reading a model somebody sent you runs no code of theirs."""

import json
import warnings
from collections.abc import Mapping
from typing import Any

import skops.io
from skops.io.exceptions import UntrustedTypesFoundException

from foretell.errors import StoreError
from foretell.models.fitted import check_parts
from foretell.models.runs import REGRESSORS, RunRegressor

_TRUSTED = [
    *(f"{regressor.__module__}.{regressor.__qualname__}" for regressor in REGRESSORS.values()),
    "foretell.models.runs._kernel.Axis",
    "foretell.models.runs._kernel.Kernel",
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
]


def dump_models(models: Mapping[str, RunRegressor], *, facts: Mapping[str, Any]) -> bytes:
    """The models, and plain facts beside them, as bytes."""
    return bytes(skops.io.dumps({"facts": json.dumps(facts), "models": dict(models)}))


def load_models(blob: bytes) -> tuple[dict[str, RunRegressor], dict[str, Any]]:
    """What :func:`dump_models` wrote.

    Raises:
        StoreError: if the bytes are damaged, or hold a type that is none of ours.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns of other versions; the store rebuilds instead
            content = skops.io.loads(blob, trusted=_TRUSTED)
        models = _checked(content["models"])
        check_parts(models)
        return models, json.loads(content["facts"])
    except UntrustedTypesFoundException as exc:
        raise StoreError(f"the stored model holds types Foretell does not write ({exc}); run 'foretell build'") from exc
    except Exception as exc:  # a damaged archive fails in as many ways as there are bytes
        raise StoreError(f"the stored model cannot be read ({exc}); run 'foretell build' to make it anew") from exc


def _checked(models: Mapping[str, object]) -> dict[str, RunRegressor]:
    checked = {name: model for name, model in models.items() if isinstance(model, RunRegressor)}
    if len(checked) < len(models):
        raise TypeError(f"no models of ours: {', '.join(sorted(set(models) - set(checked)))}")
    return checked
