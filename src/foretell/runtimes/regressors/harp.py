"""HARP's regressors: linear, a decision tree and a small neural network, each also on principal components."""

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.array_trees import ArrayTrees
from foretell.core.model_files import check_numbers, read_number
from foretell.runtimes.regressors._base import Floats, RunRegressor, State, check_part

_FEW_ROWS = 2000
_WIDEST = 1000  # neurons of a layer in a file: each is a number for every row
_MOST_LAYERS = 20


class LinearRunRegressor(RunRegressor):
    """A straight line through standardised columns, with the least ridge that keeps it solvable."""

    complexity = 1

    def __init__(self, ridge: float = 1e-6) -> None:
        self.ridge = ridge

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        from sklearn.linear_model import Ridge
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(X, sample_weight=weight)
        model = Ridge(alpha=self.ridge).fit(scaler.transform(X), y, sample_weight=weight)
        self.mean_, self.scale_ = scaler.mean_, scaler.scale_
        self.slopes_, self.level_ = model.coef_, float(model.intercept_)

    def _predict(self, X: Floats) -> Any:
        return (X - self.mean_) / self.scale_ @ self.slopes_ + self.level_

    def to_state(self) -> State:
        arrays = {"mean": self.mean_, "scale": self.scale_, "slopes": self.slopes_}
        return State(values={"level": self.level_}, arrays=arrays)

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        model = cls._start(columns)
        model.mean_, model.scale_ = _read_scaler(state, columns)
        model.slopes_ = check_numbers(state.arrays["slopes"], shape=(columns,), finite=False)
        model.level_ = read_number(state.values["level"])
        return model


def _read_scaler(state: State, columns: int) -> tuple[Floats, Floats]:
    mean, scale = (check_numbers(state.arrays[name], shape=(columns,), finite=False) for name in ("mean", "scale"))
    return mean, scale


class TreeRunRegressor(RunRegressor):
    """One decision tree, bounded so that a large history does not make a large model."""

    complexity = 3

    def __init__(self, max_leaf_nodes: int = 1024, seed: int = 0) -> None:
        self.max_leaf_nodes = max_leaf_nodes
        self.seed = seed

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        from sklearn.tree import DecisionTreeRegressor

        tree = DecisionTreeRegressor(max_leaf_nodes=self.max_leaf_nodes, random_state=self.seed)
        self.tree_ = ArrayTrees.from_decision_tree(tree.fit(X, y, sample_weight=weight))

    def _predict(self, X: Floats) -> Any:
        return self.tree_.predict(X.astype(np.float32))  # as scikit-learn chose the thresholds

    def to_state(self) -> State:
        return State(arrays=self.tree_.to_arrays())

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        model = cls._start(columns)
        model.tree_ = ArrayTrees.from_arrays(state.arrays, columns=columns)
        return model


class NeuralRunRegressor(RunRegressor):
    """Two hidden layers on standardised columns and target; L-BFGS on few rows, Adam on many."""

    complexity = 7

    def __init__(self, hidden: tuple[int, ...] = (32, 16), decay: float = 1e-2, seed: int = 0) -> None:
        self.hidden = hidden
        self.decay = decay
        self.seed = seed

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPRegressor
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(X)
        self.target_mean_, self.target_scale_ = float(y.mean()), float(y.std()) or 1.0
        few = len(y) <= _FEW_ROWS
        network = MLPRegressor(
            hidden_layer_sizes=self.hidden,
            alpha=self.decay,
            solver="lbfgs" if few else "adam",
            max_iter=100 if few else 60,
            random_state=self.seed,
        )
        target = (y - self.target_mean_) / self.target_scale_
        with warnings.catch_warnings():  # cross-validation judges the last iterate, converged or not
            warnings.simplefilter("ignore", ConvergenceWarning)
            network.fit(scaler.transform(X), target, sample_weight=weight)
        self.mean_, self.scale_ = scaler.mean_, scaler.scale_
        self.layers_ = list(zip(network.coefs_, network.intercepts_, strict=True))

    def _predict(self, X: Floats) -> Any:
        values = (X - self.mean_) / self.scale_
        for weights, offsets in self.layers_[:-1]:
            values = np.maximum(values @ weights + offsets, 0)
        weights, offsets = self.layers_[-1]
        return (values @ weights + offsets)[:, 0] * self.target_scale_ + self.target_mean_

    def to_state(self) -> State:
        arrays: dict[str, NDArray[Any]] = {"mean": self.mean_, "scale": self.scale_}
        for place, (weights, offsets) in enumerate(self.layers_):
            arrays |= {f"weights{place}": weights, f"offsets{place}": offsets}
        values = {"target_mean": self.target_mean_, "target_scale": self.target_scale_, "layers": len(self.layers_)}
        return State(values=values, arrays=arrays)

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        model = cls._start(columns)
        model.mean_, model.scale_ = _read_scaler(state, columns)
        model.target_mean_ = read_number(state.values["target_mean"])
        model.target_scale_ = read_number(state.values["target_scale"])
        model.layers_ = _read_layers(state, columns)
        return model


def _read_layers(state: State, columns: int) -> list[tuple[Floats, Floats]]:
    count = state.values["layers"]
    if type(count) is not int or not 1 <= count <= _MOST_LAYERS:
        raise ValueError(f"a network of {count!r} layers")
    layers, width = [], columns
    for place in range(count):
        weights = check_numbers(state.arrays[f"weights{place}"], shape=(width, None))
        width = weights.shape[1]
        layers.append((weights, check_numbers(state.arrays[f"offsets{place}"], shape=(width,))))
        if width > _WIDEST:
            raise ValueError(f"a network with a layer of {width:,} neurons")
    if width != 1:
        raise ValueError(f"a network of {width:,} outputs")
    return layers


class ReducedRunRegressor(RunRegressor):
    """A regressor on principal components: as many as hold ``share`` of the standardised columns' variance."""

    inner: ClassVar[type[RunRegressor]]

    def __init__(self, share: float = 0.99) -> None:
        self.share = share

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        from sklearn.decomposition import PCA
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler()
        values = scaler.fit_transform(X)
        self.mean_, self.scale_ = scaler.mean_, scaler.scale_
        self.components_, self.centre_ = np.eye(X.shape[1]), np.zeros(X.shape[1])
        if np.ptp(X, axis=0).any():
            reduction = PCA(self.share)
            values = reduction.fit_transform(values)
            self.components_, self.centre_ = reduction.components_, reduction.mean_
        self.model_ = self.inner().fit(values, y, weight)

    def _predict(self, X: Floats) -> Any:
        # In scikit-learn's order: rounding decides at the thresholds of a tree.
        reduced = (X - self.mean_) / self.scale_ @ self.components_.T - self.centre_ @ self.components_.T
        return self.model_.predict(reduced)

    def to_state(self) -> State:
        arrays = {
            "mean": self.mean_,
            "scale": self.scale_,
            "components": self.components_,
            "centre": self.centre_,
        }
        return State(arrays=arrays, parts=(self.model_,))

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        model = cls._start(columns)
        model.mean_, model.scale_ = _read_scaler(state, columns)
        model.components_ = check_numbers(state.arrays["components"], shape=(None, columns))
        model.centre_ = check_numbers(state.arrays["centre"], shape=(columns,))
        if len(model.components_) > columns:
            raise ValueError(f"{len(model.components_):,} principal components of {columns:,} columns")
        (model.model_,) = state.parts
        check_part(model.model_, cls.inner, columns=len(model.components_))
        return model


class ReducedLinearRunRegressor(ReducedRunRegressor):
    complexity = LinearRunRegressor.complexity + 0.5
    inner = LinearRunRegressor


class ReducedTreeRunRegressor(ReducedRunRegressor):
    complexity = TreeRunRegressor.complexity + 0.5
    inner = TreeRunRegressor


class ReducedNeuralRunRegressor(ReducedRunRegressor):
    complexity = NeuralRunRegressor.complexity + 0.5
    inner = NeuralRunRegressor
