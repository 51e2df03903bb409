"""Whether what a model file holds can be used: somebody else may have written it, and compiled code checks nothing.

Raises (everywhere):
    ValueError, TypeError: if not; it says what is wrong.
"""

import math
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def check_nodes(left: Array, right: Array, feature: Array, *, leaf: Array, features: int | None = None) -> None:
    """Nodes of trees: children come after their node, so that every path ends, and columns are ones there are."""
    own = np.arange(len(leaf))
    inner = ~np.asarray(leaf, dtype=bool)
    for children in (left, right):
        if np.any(inner & ((children <= own) | (children >= len(own)))):
            raise ValueError("a tree whose nodes lead outside it or back")
    if np.any(inner & ((feature < 0) | (feature >= (np.iinfo(np.int64).max if features is None else features)))):
        raise ValueError("a tree that asks for a column there is none of")


def check_numbers(values: Array, *, shape: tuple[int | None, ...], finite: bool = True) -> Array:
    """Numbers of that shape, ``None`` for any length above zero; not even infinite ones if ``finite``."""
    if values.dtype.kind not in "iuf" or values.ndim != len(shape):
        raise ValueError(f"an array of {values.dtype} with {values.ndim} dimensions")
    if any(size == 0 or (asked is not None and size != asked) for size, asked in zip(values.shape, shape, strict=True)):
        raise ValueError(f"an array of shape {values.shape}")
    if not (np.isfinite(values).all() if finite else not np.isnan(values).any()):
        raise ValueError("an array with values that are no numbers")
    return values


def check_whole_numbers(values: Array, *, shape: tuple[int | None, ...]) -> Array:
    """As :func:`check_numbers`, of whole numbers."""
    if values.dtype.kind not in "iu":
        raise ValueError(f"an array of {values.dtype}")
    return check_numbers(values, shape=shape)


def read_number(value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise ValueError(f"{reprlib.repr(value)} instead of a number")
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def read_positive(value: Any) -> float:
    """A finite number above zero."""
    if read_number(value) <= 0:
        raise ValueError(f"{value!r} instead of a number above zero")
    return float(value)


def read_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Finite numbers by name."""
    return {name: read_number(value) for name, value in values.items()}


def read_rising(values: Iterable[Any], *, count: int) -> NDArray[np.float64]:
    """So many finite numbers, none smaller than the one before."""
    numbers = np.array([read_number(value) for value in values])
    if len(numbers) != count or np.any(np.diff(numbers) < 0):
        raise ValueError("quantiles that do not rise")
    return numbers


def read_place(value: Any, count: int) -> int:
    """A place in a list of that length."""
    if type(value) is not int or not 0 <= value < count:
        raise ValueError(f"{reprlib.repr(value)} instead of a place among {count}")
    return value
