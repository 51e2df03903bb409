"""Questions as the models read them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.runtimes.encoding import Encoder
from foretell.runtimes.run_table import Columns

Floats: TypeAlias = NDArray[np.float64]
Regimes: TypeAlias = NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRows:
    """Rows of the matrix, and how each lies to the runs.

    ``named`` are the columns that formulas read. ``extrapolation`` is how far a row lies outside the runs,
    ``unknown_texts`` and ``unmeasured`` count its texts and numbers that no run had. ``other_machine`` rows are for a
    machine of a kind that no run was made on. ``source`` are the rows as the source of a transfer reads them.
    """

    X: Floats
    named: Columns
    extrapolation: Floats
    unknown_texts: Floats
    other_machine: NDArray[np.bool_]
    regime: Regimes
    unmeasured: Floats
    source: "EncodedRows | None" = None

    def take(self, rows: NDArray[np.intp]) -> "EncodedRows":
        return EncodedRows(
            X=self.X[rows],
            named={name: column[rows] for name, column in self.named.items()},
            extrapolation=self.extrapolation[rows],
            unknown_texts=self.unknown_texts[rows],
            other_machine=self.other_machine[rows],
            regime=self.regime[rows],
            unmeasured=self.unmeasured[rows],
            source=self.source.take(rows) if self.source else None,
        )

    def cross(self, other: "EncodedRows", *, from_other: NDArray[np.bool_]) -> "EncodedRows":
        """Every row with every row of the other, from which come the matrix columns that ``from_other`` marks."""
        across, along = len(self.X), len(other.X)
        X = np.repeat(self.X, along, axis=0)
        X[:, from_other] = np.tile(other.X[:, from_other], (across, 1))
        named = {name: np.repeat(column, along) for name, column in self.named.items()}
        return EncodedRows(
            X=X,
            named=named | {name: np.tile(column, across) for name, column in other.named.items()},
            extrapolation=np.repeat(self.extrapolation, along) + np.tile(other.extrapolation, across),
            unknown_texts=np.repeat(self.unknown_texts, along) + np.tile(other.unknown_texts, across),
            other_machine=np.repeat(self.other_machine, along) | np.tile(other.other_machine, across),
            regime=np.maximum(np.repeat(self.regime, along), np.tile(other.regime, across)),
            unmeasured=np.repeat(self.unmeasured, along) + np.tile(other.unmeasured, across),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownText:
    """Rows with a text that no run had: their ``places``, the ``rows``, and them ``with_known`` texts instead.

    ``shares`` says which share of the runs had each known text.
    """

    places: NDArray[np.intp]
    rows: EncodedRows
    with_known: tuple[EncodedRows, ...]
    shares: Floats


def list_unknown_texts(rows: EncodedRows, encoder: Encoder) -> Iterator[UnknownText]:
    """One for each column of texts."""
    for columns, shares in encoder.list_levels() if rows.unknown_texts.any() else ():
        places = np.flatnonzero((rows.X[:, columns] == 0).all(axis=1))
        if len(places):
            few = rows.take(places)
            known = tuple(replace(few, X=_mark(few.X, column)) for column in columns)
            yield UnknownText(places=places, rows=few, with_known=known, shares=shares)


def _mark(X: Floats, column: np.intp) -> Floats:
    marked = X.copy()
    marked[:, column] = 1.0
    return marked
