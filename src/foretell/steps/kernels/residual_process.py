"""A Gaussian process over what a law leaves unexplained in a few measurements of one device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.model_files import check_numbers
from foretell.core.workload import Floats

_NOISE = 0.03  # of logarithms of measured times
_AMPLITUDE = 0.12
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
        kernel = _AMPLITUDE**2 * _correlate(places, places)
        weights = np.linalg.solve(kernel + _NOISE**2 * np.eye(len(places)), clipped)
        return cls(places=places, weights=np.asarray(weights, dtype=np.float64))

    def predict(self, places: Floats) -> Floats:
        found = _AMPLITUDE**2 * _correlate(places, self.places) @ self.weights
        return np.asarray(np.clip(found, -_MOST_FACTOR, _MOST_FACTOR))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"places": self.places, "weights": self.weights}

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


def _correlate(first: Floats, second: Floats) -> Floats:
    """Matern's, once differentiable."""
    squares = (first**2).sum(1)[:, None] + (second**2).sum(1)[None, :] - 2 * first @ second.T
    distance = np.sqrt(3 * np.maximum(squares, 0))
    return np.asarray((1 + distance) * np.exp(-distance))
