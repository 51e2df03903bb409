"""HARP's NNR: a small neural network."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from foretell.models.runs._base import RunRegressor

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
