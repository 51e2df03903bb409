"""What fitted models are made of: the types Foretell writes, one table of them. skops trusts all of scikit-learn."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn._loss._loss import CyHalfSquaredError
from sklearn._loss.link import IdentityLink, Interval
from sklearn._loss.loss import HalfSquaredError
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.neural_network._stochastic_optimizers import AdamOptimizer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.tree._tree import Tree

from foretell.models.runs import REGRESSORS
from foretell.models.runs._kernel import Axis, Kernel

# By the loader of skops that makes them.
TYPES: dict[str, tuple[type, ...]] = {
    "JsonNode": (str,),
    "TypeNode": (str,),  # of the keys of dictionaries
    "DictNode": (dict,),
    "ListNode": (list,),
    "TupleNode": (tuple,),
    "NdArrayNode": (np.ndarray, np.bool_, np.int32, np.int64, np.uint32, np.uint64, np.float32, np.float64),
    "RandomStateNode": (np.random.RandomState,),
    "RandomGeneratorNode": (np.random.Generator,),
    "TreeNode": (Tree,),
    "LossNode": (CyHalfSquaredError,),
    "ObjectNode": (
        *REGRESSORS.values(),
        Axis,
        Kernel,
        StandardScaler,
        PCA,
        Pipeline,
        Ridge,
        MLPRegressor,
        AdamOptimizer,
        DecisionTreeRegressor,
        HistGradientBoostingRegressor,
        _BinMapper,
        TreePredictor,
        HalfSquaredError,
        IdentityLink,
        Interval,
    ),
}
_OBJECTS = frozenset(kind for loader in ("ObjectNode", "TreeNode", "LossNode") for kind in TYPES[loader])
_PLAIN = frozenset({type(None), bool, int, float, str})
_DEEPEST = 50
_LARGEST = 2**64
_MERSENNE_STATE = 624  # numbers that a Mersenne twister takes one after the other
_SWITCHES = {"_in_fit", "_sklearn_output_config"}  # no fitted model has them, and they change what scikit-learn calls


def name_types() -> dict[str, frozenset[str]]:
    """The table, by the names that archives say."""
    return {
        loader: frozenset(f"{kind.__module__}.{kind.__name__}" for kind in kinds) for loader, kinds in TYPES.items()
    }


def check_kinds(part: Any, *, depth: int = 0) -> None:
    """Whether a model is made of parts of the table alone, and of plain values and arrays of numbers.

    Raises:
        ValueError, TypeError: if not.
    """
    if depth > _DEEPEST:
        raise ValueError(f"parts within parts, more than {_DEEPEST} deep")
    kind = type(part)
    if kind in _PLAIN:
        if isinstance(part, int) and abs(part) >= _LARGEST:
            raise ValueError("a number that is too large")
    elif kind in TYPES["NdArrayNode"]:
        _check_array(np.asarray(part))
    elif kind is np.random.RandomState:
        _check_random_state(part)
    elif kind is not np.random.Generator:
        for inner in _list_inner(part):
            check_kinds(inner, depth=depth + 1)


def _list_inner(part: Any) -> Iterable[Any]:
    kind = type(part)
    if kind is dict:
        return list(part.values())
    if kind in (list, tuple):
        return list(part)
    if kind not in _OBJECTS:
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__}, which Foretell does not fit")
    if kind in (Axis, Kernel):
        return [getattr(part, field.name) for field in dataclasses.fields(part)]
    attributes = getattr(part, "__dict__", {})
    if isinstance(part, BaseEstimator):
        _check_names(kind, attributes.keys())
    return list(attributes.values())


def _check_names(kind: type, names: Iterable[str]) -> None:
    """No attribute stands in the way of one of the class, such as a method."""
    wrong = set(names) & (_SWITCHES | set(dir(kind)))
    if wrong:
        raise ValueError(f"a {kind.__name__} with {', '.join(sorted(wrong))}")


def _check_array(array: np.ndarray[Any, Any]) -> None:
    if array.dtype.kind not in "biuf" and array.dtype != PREDICTOR_RECORD_DTYPE:
        raise ValueError(f"an array of {array.dtype}")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ValueError("an array with values that are no numbers")


def _check_random_state(state: np.random.RandomState) -> None:
    place = state.get_state(legacy=False)["state"]["pos"]
    if not 0 <= place <= _MERSENNE_STATE:
        raise ValueError("a random state that leads outside itself")
