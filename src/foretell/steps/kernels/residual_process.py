"""A Gaussian process over what a law leaves unexplained in a few measurements of one device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.model_files import check_numbers
from foretell.core.workload import Floats

# Of logarithms: what measurements err, and what they have in common with their neighbours.
_NOISES = (0.03, 0.05, 0.08, 0.12)
_AMPLITUDES = (0.01, 0.03, 0.06, 0.12, 0.2)
_MOST_FACTOR = 0.7  # of logarithms


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualProcess:
    """The logarithm of a factor at places, one row each; 0 far from every measured place."""

    places: Floats
    weights: Floats

    @classmethod
    def fit(cls, places: Floats, errors: Floats) -> Self:
        """From places, scaled so that 1 is a step over which a factor changes, and logarithms of factors."""
        clipped = np.clip(errors, -_MOST_FACTOR, _MOST_FACTOR)
        shape = _correlate(places, places)
        pairs = ((amplitude, noise) for amplitude in _AMPLITUDES for noise in _NOISES)
        amplitude, noise = max(pairs, key=lambda pair: _score(shape, clipped, *pair))
        weights = amplitude**2 * np.linalg.solve(amplitude**2 * shape + noise**2 * np.eye(len(places)), clipped)
        rounded = (np.asarray(each, dtype=np.float32).astype(np.float64) for each in (places, weights))  # as in files
        return cls(**dict(zip(("places", "weights"), rounded, strict=True)))

    def predict(self, places: Floats) -> Floats:
        found = _correlate(places, self.places) @ self.weights
        return np.asarray(np.clip(found, -_MOST_FACTOR, _MOST_FACTOR))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"places": self.places.astype(np.float32), "weights": self.weights.astype(np.float32)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], *, columns: int) -> Self:
        """The process that :meth:`to_arrays` took apart.

        Raises:
            ValueError: They are not those of such a process.
            KeyError: An array is missing.
        """
        places = check_numbers(arrays["places"], shape=(None, columns))
        return cls(
            places=np.asarray(places, dtype=np.float64),
            weights=np.asarray(check_numbers(arrays["weights"], shape=(len(places),)), dtype=np.float64),
        )


def _score(shape: Floats, errors: Floats, amplitude: float, noise: float) -> float:
    """The logarithm of the marginal likelihood, but for a constant."""
    factor = np.linalg.cholesky(amplitude**2 * shape + noise**2 * np.eye(len(errors)))
    whitened = np.linalg.solve(factor, errors)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum())


def _correlate(first: Floats, second: Floats) -> Floats:
    """Matern's, once differentiable."""
    squares = (first**2).sum(1)[:, None] + (second**2).sum(1)[None, :] - 2 * first @ second.T
    distance = np.sqrt(3 * np.maximum(squares, 0))
    return np.asarray((1 + distance) * np.exp(-distance))
