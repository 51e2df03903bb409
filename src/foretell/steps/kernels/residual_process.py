"""A Gaussian process over what a law and its trees leave unexplained in a few measurements of one device.

Two places have in common what lies near, and, if the leaves are given that the trees have for them, what shares
leaves. The latter is the same as estimating the values of leaves again, near those of the trees: what decides on other
devices how fast a shape is (alignment, the last wave, the tile) decides it here, by another amount.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.model_files import check_numbers
from foretell.core.workload import Floats

Leaves: TypeAlias = NDArray[np.intp]  # a row for each place, a column for each tree

# Of logarithms: standard deviations of what each part has in common, and of what measurements err.
_DEVIATIONS = (0.01, 0.02, 0.03, 0.045, 0.06, 0.08, 0.11, 0.15, 0.2, 0.3)
_LEAST_NOISE = 0.03
_START = 0.06
_SWEEPS = 3
_CHOSEN_BY = 350  # places that the deviations are chosen by
_MOST_FACTOR = 0.7  # of logarithms


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualProcess:
    """The logarithm of a factor at places, one row each; 0 far from every measured place."""

    places: Floats
    weights: Floats

    @classmethod
    def fit(cls, places: Floats, errors: Floats, *, leaves: Leaves | None = None) -> tuple[Self, Floats]:
        """From places, scaled so that 1 is a step over which a factor changes, and logarithms of factors.

        Also how much the value of each leaf changes, by its number; nothing without ``leaves``.
        """
        clipped = np.clip(errors, -_MOST_FACTOR, _MOST_FACTOR)
        parts = [_correlate(places, places), *([] if leaves is None else [_share_leaves(leaves)])]
        *amplitudes, noise = _choose_deviations(parts, clipped)
        matrix = _combine(parts, amplitudes, noise)
        weights = np.linalg.solve(matrix, clipped)
        rounded = (np.asarray(each, dtype=np.float32) for each in (places, amplitudes[0] ** 2 * weights))  # as in files
        process = cls(**dict(zip(("places", "weights"), (each.astype(np.float64) for each in rounded), strict=True)))
        if leaves is None:
            return process, np.zeros(0)
        each = amplitudes[1] ** 2 * weights / leaves.shape[1]
        changes = np.bincount(leaves.ravel(), np.repeat(each, leaves.shape[1]))
        return process, changes.astype(np.float64)

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


def _choose_deviations(parts: Sequence[Floats], errors: Floats) -> list[float]:
    """Those of the parts and of the noise under which the errors are most likely, one after the other."""
    parts, errors = [part[:_CHOSEN_BY, :_CHOSEN_BY] for part in parts], errors[:_CHOSEN_BY]
    chosen = [_START] * (len(parts) + 1)
    for number in list(range(len(chosen))) * _SWEEPS:
        tried = [each for each in _DEVIATIONS if number < len(parts) or each >= _LEAST_NOISE]
        candidates = [[*chosen[:number], each, *chosen[number + 1 :]] for each in tried]
        chosen = max(candidates, key=lambda some: _score(_combine(parts, some[:-1], some[-1]), errors))
    return chosen


def _combine(parts: Sequence[Floats], amplitudes: Sequence[float], noise: float) -> Floats:
    found = noise**2 * np.eye(len(parts[0]))
    for part, amplitude in zip(parts, amplitudes, strict=True):
        found += amplitude**2 * part
    return found


def _score(matrix: Floats, errors: Floats) -> float:
    """The logarithm of the marginal likelihood, but for a constant."""
    factor = np.linalg.cholesky(matrix)
    return float(-0.5 * errors @ np.linalg.solve(matrix, errors) - np.log(np.diag(factor)).sum())


def _share_leaves(leaves: Leaves) -> Floats:
    """The share of trees that have the same leaf for two places."""
    found = np.zeros((len(leaves), len(leaves)))
    for column in leaves.T:
        found += column[:, None] == column[None, :]
    return np.asarray(found / leaves.shape[1])


def _correlate(first: Floats, second: Floats) -> Floats:
    """Matern's, once differentiable."""
    squares = (first**2).sum(1)[:, None] + (second**2).sum(1)[None, :] - 2 * first @ second.T
    distance = np.sqrt(3 * np.maximum(squares, 0))
    return np.asarray((1 + distance) * np.exp(-distance))
