"""HARP's option: its models on principal components instead of the columns themselves."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from foretell.models.runs._base import RunRegressor
from foretell.models.runs.linear import LinearRunRegressor
from foretell.models.runs.neural import NeuralRunRegressor
from foretell.models.runs.tree import TreeRunRegressor


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
