"""Whether fitted models can be used: compiled code of scikit-learn reads whatever memory a changed one names.

How many columns a model is asked with is said from outside, never by its parts.

Raises (everywhere):
    ValueError, TypeError, AttributeError, LookupError: if not; it says what is wrong.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

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
from sklearn.tree._tree import TREE_LEAF, Tree

from foretell.core.model_checks import check_nodes, check_numbers, check_whole_numbers, read_number
from foretell.runtimes.regressors import REGRESSORS
from foretell.runtimes.regressors.blend import BlendRunRegressor
from foretell.runtimes.regressors.boosting import BoostingRunRegressor
from foretell.runtimes.regressors.constant import ConstantRunRegressor
from foretell.runtimes.regressors.gaussian_process import ProcessRunRegressor
from foretell.runtimes.regressors.harp import (
    LinearRunRegressor,
    NeuralRunRegressor,
    ReducedLinearRunRegressor,
    ReducedNeuralRunRegressor,
    ReducedRunRegressor,
    ReducedTreeRunRegressor,
    TreeRunRegressor,
)
from foretell.runtimes.regressors.kernel import Axis, Kernel
from foretell.runtimes.regressors.piecewise_law import PiecewiseLawRegressor
from foretell.runtimes.regressors.power_law import PowerRunRegressor
from foretell.runtimes.regressors.scaling_law import ScalingLawRegressor
from foretell.runtimes.regressors.trend import TrendRunRegressor

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


_WIDEST = 1000  # neurons of a layer, of which each is a number for every row
_MOST_ROWS = 10_000  # of a process: each is a number for every row, too
_MOST_PROJECTIONS = 100
_PREDICTOR_FIELDS = {"nodes", "binned_left_cat_bitsets", "raw_left_cat_bitsets"}

Check: TypeAlias = Callable[[Any, int], None]


def check_model(model: Any) -> None:
    """A model and all it is made of; its own check of a question's columns is what holds for its parts."""
    check_kinds(model)
    columns = model.n_features_in_
    if type(columns) is not int or columns < 1:
        raise ValueError(f"{columns!r} columns")
    _check(model, columns, *REGRESSORS.values())


def _check(part: Any, columns: int, *expected: type) -> None:
    """A regressor or a transformer, of one of these types, that is asked with so many columns."""
    if type(part) not in expected:
        raise TypeError(f"a {type(part).__name__} instead of a {expected[0].__name__}")
    if part.n_features_in_ != columns:
        raise ValueError(f"a {type(part).__name__} of {part.n_features_in_!r} columns instead of {columns}")
    _CHECKS[type(part)](part, columns)


# scikit-learn's


def _check_scaler(scaler: Any, columns: int) -> None:
    for values in (scaler.mean_, scaler.scale_):
        check_numbers(values, shape=(columns,), finite=False)


def _check_ridge(ridge: Any, columns: int) -> None:
    check_numbers(ridge.coef_, shape=(columns,), finite=False)
    check_numbers(np.asarray(ridge.intercept_), shape=(), finite=False)


def _check_reduction(pipeline: Any, columns: int) -> int:
    """How many columns are left."""
    if type(pipeline) is not Pipeline or pipeline.memory is not None or len(pipeline.steps) not in (1, 2):
        raise ValueError("a reduction that Foretell does not fit")
    (_, scaler), *rest = pipeline.steps
    _check(scaler, columns, StandardScaler)
    for _, reduction in rest:
        _check(reduction, columns, PCA)
        return len(reduction.components_)
    return columns


def _check_components(reduction: Any, columns: int) -> None:
    check_numbers(reduction.components_, shape=(None, columns))
    check_numbers(reduction.mean_, shape=(columns,), finite=False)
    if len(reduction.components_) > columns or reduction.whiten is not False:
        raise ValueError("principal components that Foretell does not fit")


def _check_network(network: Any, columns: int) -> None:
    if (network.activation, network.out_activation_) != ("relu", "identity"):
        raise ValueError("a network that Foretell does not fit")
    if network.n_layers_ != len(network.coefs_) + 1 or not network.coefs_:
        raise ValueError("a network that lacks a layer")
    width = columns
    for weights, offsets in zip(network.coefs_, network.intercepts_, strict=True):
        check_numbers(weights, shape=(width, None))
        width = weights.shape[1]
        check_numbers(offsets, shape=(width,))
        if width > _WIDEST:
            raise ValueError(f"a network with a layer of {width:,}")
    if width != 1:
        raise ValueError(f"a network of {width:,} outputs")


def _check_decision_tree(regressor: Any, columns: int) -> None:
    tree = regressor.tree_
    if type(tree) is not Tree or regressor.n_outputs_ != 1:
        raise TypeError("a decision tree that Foretell does not fit")
    check_numbers(tree.value, shape=(None, 1, 1))
    if tree.n_features != columns:
        raise ValueError(f"a tree of {tree.n_features} columns instead of {columns}")
    leaf = tree.children_left == TREE_LEAF
    check_nodes(tree.children_left, tree.children_right, tree.feature, leaf=leaf, features=columns)


def _check_boosted(regressor: Any, columns: int) -> None:
    mapper, loss = regressor._bin_mapper, regressor._loss
    if type(mapper) is not _BinMapper or type(loss) is not HalfSquaredError or type(loss.link) is not IdentityLink:
        raise TypeError("boosted trees that Foretell does not fit")
    if regressor._preprocessor is not None or check_whole_numbers(mapper.is_categorical_, shape=(columns,)).any():
        raise ValueError("boosted trees with categories, which Foretell does not fit")
    check_numbers(regressor._baseline_prediction, shape=(1, 1))
    if regressor.n_trees_per_iteration_ != 1:
        raise ValueError(f"boosted trees of {regressor.n_trees_per_iteration_} outputs")
    for (predictor,) in regressor._predictors:
        _check_predictor(predictor, columns)


def _check_predictor(predictor: Any, columns: int) -> None:
    if type(predictor) is not TreePredictor or vars(predictor).keys() != _PREDICTOR_FIELDS:
        raise TypeError("boosted trees that Foretell does not fit")
    nodes = predictor.nodes
    if nodes.dtype != PREDICTOR_RECORD_DTYPE or nodes.ndim != 1 or not len(nodes) or nodes["is_categorical"].any():
        raise ValueError("boosted trees that Foretell does not fit")
    if any(len(bits) for bits in (predictor.binned_left_cat_bitsets, predictor.raw_left_cat_bitsets)):
        raise ValueError("boosted trees with categories, which Foretell does not fit")
    check_nodes(
        nodes["left"].astype(np.int64),
        nodes["right"].astype(np.int64),
        nodes["feature_idx"].astype(np.int64),
        leaf=nodes["is_leaf"],
        features=columns,
    )
    check_numbers(nodes["value"], shape=(len(nodes),))
    check_numbers(nodes["num_threshold"], shape=(len(nodes),), finite=False)


# Ours


def _check_constant(model: Any, columns: int) -> None:
    read_number(model.value_)


def _check_linear(model: Any, columns: int) -> None:
    _check(model.scaler_, columns, StandardScaler)
    _check(model.model_, columns, Ridge)


def _check_tree(model: Any, columns: int) -> None:
    _check(model.model_, columns, DecisionTreeRegressor)


def _check_neural(model: Any, columns: int) -> None:
    _check(model.scaler_, columns, StandardScaler)
    _check(model.model_, columns, MLPRegressor)
    read_number(model.centre_)
    read_number(model.spread_)


def _check_reduced(model: ReducedRunRegressor, columns: int) -> None:
    left = _check_reduction(model.reduction_, columns)
    _check(model.model_, left, model.inner)


def _check_power(model: Any, columns: int) -> None:
    for values in (model.low_, model.high_, model.centre_, model.scale_, model.slopes_):
        check_numbers(values, shape=(columns,), finite=False)
    read_number(model.level_)


def _check_boosting(model: Any, columns: int) -> None:
    _check(model.model_, columns, HistGradientBoostingRegressor)


def _check_law(model: Any, columns: int) -> None:
    for values in (model.scale_, model.floor_):
        check_numbers(values, shape=(columns,), finite=False)
    check_numbers(model.coefficients_, shape=(len(model.terms_),), finite=False)
    for column, exponent in (factor for term in model.terms_ for factor in term):
        _check_column(column, columns)
        read_number(exponent)


def _check_column(column: Any, columns: int) -> None:
    if type(column) is not int or not 0 <= column < columns:
        raise ValueError(f"column {column!r} of {columns}")


def _check_piecewise(model: Any, columns: int) -> None:
    for law in model.laws_:
        _check(law, columns, ScalingLawRegressor)
    sides = [side for switch in model.switches_ for side in switch[2:]]
    for place, (column, value, below, above) in enumerate(model.switches_):
        _check_column(column, columns)
        read_number(value)
        for side in (below, above):
            # Laws are counted from 0 up, switches from -1 down; those of one switch come after it.
            if type(side) is not int or not -len(model.switches_) <= side < len(model.laws_) or -1 - place <= side < 0:
                raise ValueError("switches that lead outside or back")
    if not model.laws_ or len(set(sides)) < len(sides):
        raise ValueError("switches that meet again")


def _check_trend(model: Any, columns: int) -> None:
    _check(model.law_, columns, ScalingLawRegressor)
    _check(model.rest_, columns, BoostingRunRegressor)


def _check_process(model: Any, columns: int) -> None:
    low, high = model.range_
    for values in (low, high, model.log_.astype(int)):
        check_numbers(values, shape=(columns,), finite=False)
    for column in model.columns_.tolist():
        _check_column(column, columns)
    read_number(model.mean_)
    read_number(model.scale_)
    if not model.kernels_:
        raise ValueError("a process without a kernel")
    for kernel, process in zip(model.kernels_, model.processes_, strict=True):
        _check_kernel(kernel, process, len(model.columns_))


def _check_kernel(kernel: Any, process: dict[str, Any], columns: int) -> None:
    if type(kernel) is not Kernel or [type(axis) for axis in kernel.axes] != [Axis] * columns:
        raise TypeError("a kernel that Foretell does not fit")
    if type(kernel.projections) is not int or not 0 <= kernel.projections <= _MOST_PROJECTIONS:
        raise ValueError(f"a kernel of {kernel.projections!r} projections")
    for axis in kernel.axes:
        if any(type(flag) is not bool for flag in (axis.log, axis.smooth, axis.levels)):
            raise TypeError("an axis that Foretell does not fit")
        for number in (axis.floor, axis.offset, axis.centre, axis.scale):
            read_number(number)
    rows, known = len(process["rows"]), len(process["factor"])
    if not known <= rows <= _MOST_ROWS:
        raise ValueError(f"a process of {rows:,} rows")
    check_numbers(process["theta"], shape=(len(kernel.names) + 1,))
    if columns:
        check_numbers(process["rows"], shape=(rows, columns), finite=False)
    check_numbers(process["alpha"], shape=(rows,), finite=False)
    check_numbers(process["factor"], shape=(known, known), finite=False)


def _check_blend(model: Any, columns: int) -> None:
    for member in model.members_:
        _check(member, columns, *REGRESSORS.values())
    for weight, _ in zip(model.weights, model.members_, strict=True):
        read_number(weight)


_CHECKS: dict[type, Check] = {
    StandardScaler: _check_scaler,
    Ridge: _check_ridge,
    PCA: _check_components,
    MLPRegressor: _check_network,
    DecisionTreeRegressor: _check_decision_tree,
    HistGradientBoostingRegressor: _check_boosted,
    ConstantRunRegressor: _check_constant,
    LinearRunRegressor: _check_linear,
    TreeRunRegressor: _check_tree,
    NeuralRunRegressor: _check_neural,
    ReducedLinearRunRegressor: _check_reduced,
    ReducedTreeRunRegressor: _check_reduced,
    ReducedNeuralRunRegressor: _check_reduced,
    PowerRunRegressor: _check_power,
    BoostingRunRegressor: _check_boosting,
    ScalingLawRegressor: _check_law,
    PiecewiseLawRegressor: _check_piecewise,
    TrendRunRegressor: _check_trend,
    ProcessRunRegressor: _check_process,
    BlendRunRegressor: _check_blend,
}
