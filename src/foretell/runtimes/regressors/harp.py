"""HARP's NNR: a small neural network."""

import warnings
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from foretell.runtimes.regressors._base import RunRegressor

_FEW_ROWS = 2000


class NeuralRunRegressor(RunRegressor):
    """Two hidden layers on standardised columns and target; L-BFGS on few rows, Adam on many."""

    complexity = 7

    def __init__(self, hidden: tuple[int, ...] = (32, 16), decay: float = 1e-2, seed: int = 0) -> None:
        self.hidden = hidden
        self.decay = decay
        self.seed = seed

    def _fit(self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        self.scaler_ = StandardScaler().fit(X)
        self.centre_, self.spread_ = float(y.mean()), float(y.std()) or 1.0
        few = len(y) <= _FEW_ROWS
        network = MLPRegressor(
            hidden_layer_sizes=self.hidden,
            alpha=self.decay,
            solver="lbfgs" if few else "adam",
            max_iter=100 if few else 60,
            random_state=self.seed,
        )
        with warnings.catch_warnings():  # the last iterate is what cross-validation judges
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model_ = network.fit(
                self.scaler_.transform(X), (y - self.centre_) / self.spread_, sample_weight=weight
            )

    def _predict(self, X: NDArray[np.float64]) -> Any:
        return self.model_.predict(self.scaler_.transform(X)) * self.spread_ + self.centre_


class LinearRunRegressor(RunRegressor):
    """A straight line through standardised columns, with the least ridge that keeps it solvable."""

    complexity = 1

    def __init__(self, ridge: float = 1e-6) -> None:
        self.ridge = ridge

    def _fit(self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        self.scaler_ = StandardScaler().fit(X, sample_weight=weight)
        self.model_ = Ridge(alpha=self.ridge).fit(self.scaler_.transform(X), y, sample_weight=weight)

    def _predict(self, X: NDArray[np.float64]) -> Any:
        return self.model_.predict(self.scaler_.transform(X))


class TreeRunRegressor(RunRegressor):
    """One decision tree, bounded so that a large history does not make a large model."""

    complexity = 3

    def __init__(self, max_leaf_nodes: int = 1024, seed: int = 0) -> None:
        self.max_leaf_nodes = max_leaf_nodes
        self.seed = seed

    def _fit(self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        tree = DecisionTreeRegressor(max_leaf_nodes=self.max_leaf_nodes, random_state=self.seed)
        self.model_ = tree.fit(X, y, sample_weight=weight)

    def _predict(self, X: NDArray[np.float64]) -> Any:
        return self.model_.predict(X)


class ReducedRunRegressor(RunRegressor):
    """Columns that say nearly the same become one: as many components as hold ``share`` of the variance."""

    inner: ClassVar[type[RunRegressor]]

    def __init__(self, share: float = 0.99) -> None:
        self.share = share

    def _fit(self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        varied = bool(np.ptp(X, axis=0).any())
        self.reduction_: Pipeline = make_pipeline(StandardScaler(), *([PCA(self.share)] if varied else []))
        self.model_ = self.inner().fit(self.reduction_.fit_transform(X), y, weight)

    def _predict(self, X: NDArray[np.float64]) -> Any:
        return self.model_.predict(self.reduction_.transform(X))


class ReducedLinearRunRegressor(ReducedRunRegressor):
    complexity = LinearRunRegressor.complexity + 0.5
    inner = LinearRunRegressor


class ReducedTreeRunRegressor(ReducedRunRegressor):
    complexity = TreeRunRegressor.complexity + 0.5
    inner = TreeRunRegressor


class ReducedNeuralRunRegressor(ReducedRunRegressor):
    complexity = NeuralRunRegressor.complexity + 0.5
    inner = NeuralRunRegressor
