"""Columns to a matrix of numbers that every model reads, and how far a row lies outside what was measured."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretell.core.warning import PredictionWarning, build_warning
from foretell.runtimes.run_table import MACHINE_PREFIX, Column, Columns, render_level

ON_GRID, BETWEEN, BEYOND = "", " between", " beyond"  # after a quantity's name: its model for such rows
REGIMES = (ON_GRID, BETWEEN, BEYOND)
_MOST_LEVELS = 32
_MOST_GRID = 64  # numbers with more distinct values than this were not swept over a grid
_SAME = 1 - 1e-9
_FARTHEST = 4.0  # ranges outside: no number is farther; zero and below, for what was positive, are just there
_LARGEST = 1e30  # what is beyond, infinity too, counts as this: squares and products of columns stay finite


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One input column: a number with its range, or a text with its levels. ``used`` ones become matrix columns.

    ``shares`` says how many of the runs had each level, where every level is known.
    """

    name: str
    levels: tuple[str, ...] | None
    low: float = np.nan
    high: float = np.nan
    fill: float | str = np.nan
    used: bool = True
    grid: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()

    @property
    def constant(self) -> bool:
        return len(self.levels) == 1 if self.levels is not None else self.low == self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """What was learned about the columns; :func:`fit_encoder` makes one.

    Numbers stay numbers, texts become 0/1 columns; constants and copies of other columns are dropped. Columns that a
    question lacks take the commonest value of the runs. A text that no run had has no mark.
    """

    fields: tuple[Field, ...]
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for field in self.fields if field.used for name in _encoded_names(field))

    def encode(self, columns: Columns, rows: int) -> NDArray[np.float64]:
        """The matrix, one row a configuration."""
        matrix = np.empty((rows, len(self.names)))
        at = 0
        for field in self.fields:
            if not field.used:
                continue
            column = columns.get(field.name)
            if field.levels is None:
                matrix[:, at] = field.fill if column is None else _filled(column, field)
                at += 1
                continue
            texts = field.fill if column is None else _texts(column)
            for level in field.levels:
                matrix[:, at] = texts == level
                at += 1
        return matrix

    def list_levels(self) -> list[tuple[NDArray[np.intp], NDArray[np.float64]]]:
        """For each text that users choose, its matrix columns, and which share of the runs had each of its levels."""
        names = np.array([field.name for field in self.fields if field.used for _ in _encoded_names(field)])
        chosen = [field for field in self._asked_for() if field.used and field.shares]
        return [(np.flatnonzero(names == field.name), np.array(field.shares)) for field in chosen]

    def comes_from(self, columns: Columns) -> NDArray[np.bool_]:
        """Which matrix columns are made of these columns."""
        flags = [field.name in columns for field in self.fields if field.used for _ in _encoded_names(field)]
        return np.array(flags, dtype=bool)

    def find_extrapolation(self, columns: Columns, rows: int) -> NDArray[np.float64]:
        """How far each row lies outside the runs: 0 inside, 1 one more range away (in logs where it is positive)."""
        worst = np.zeros(rows)
        for field in self._asked_for():
            if field.levels is None and field.name in columns:
                worst += _beyond(_numbers(columns[field.name]), field)
        return worst

    def count_unknown_texts(self, columns: Columns, rows: int) -> NDArray[np.float64]:
        """How many of each row's texts no run had."""
        count = np.zeros(rows)
        for field in self._asked_for():
            if field.levels is not None and field.name in columns:
                count += ~np.isin(_texts(columns[field.name]), np.array(field.levels, dtype=object))
        return count

    def regime(self, columns: Columns, rows: int) -> NDArray[np.int8]:
        """0 for rows with every number as measured, 1 with one between measured ones, 2 with one outside the range."""
        found = np.zeros(rows, dtype=np.int8)
        for field in self._asked_for():
            if field.levels is None and field.name in columns:
                numbers = _numbers(columns[field.name])
                found = np.maximum(
                    found, np.where(_beyond(numbers, field) > 0, 2, np.where(_is_measured(numbers, field), 0, 1))
                )
        return found.astype(np.int8)

    def count_unmeasured(self, columns: Columns, rows: int) -> NDArray[np.float64]:
        """How many numbers of each row no run had."""
        count = np.zeros(rows)
        for field in self._asked_for():
            if field.levels is None and field.name in columns:
                count += ~_is_measured(_numbers(columns[field.name]), field)
        return count

    def list_warnings(self, row: Mapping[str, Column]) -> tuple[PredictionWarning, ...]:
        """For one row: what was never measured."""
        found = []
        for field in self._asked_for():
            column = row.get(field.name)
            if column is None:
                continue
            warning = _find_warning(field, column[0])
            if warning:
                found.append(warning)
        return tuple(found)

    def _asked_for(self) -> list[Field]:
        """What users choose; a machine is as it is, and another one is another matter."""
        return [field for field in self.fields if not field.name.startswith(MACHINE_PREFIX)]


def fit_encoder(columns: Columns, *, known: Collection[str] = ()) -> Encoder:
    """The encoder of these columns.

    What ``known`` ones do is known beforehand: where they never varied, another value needs no warning.
    """
    fields: list[Field] = []
    warnings: list[PredictionWarning] = []
    kept: dict[str, Column] = {}
    for name, column in columns.items():
        field = _numeric_field(name, column) if column.dtype != object else _text_field(name, column)
        if field.constant and name in known:
            continue
        reason = _reason_to_drop(field, column, kept)
        if reason is None:
            kept[name] = column if field.levels is not None else _filled(column, field)
        elif not field.constant:
            text = f"column {name!r} is not used: {reason}"
            warnings.append(build_warning("column-not-used", text, name=name, reason=reason))
        fields.append(replace(field, used=reason is None))
    return Encoder(fields=tuple(fields if kept else _use_one(fields)), warnings=tuple(warnings))


def _use_one(fields: Sequence[Field]) -> list[Field]:
    """Where all columns are constant, models still need one: the first that is a number."""
    spare = next((field for field in fields if field.levels is None), None)
    return [replace(field, used=field is spare) for field in fields]


def _numeric_field(name: str, column: Column) -> Field:
    numbers = _numbers(column)
    known = numbers[~np.isnan(numbers)]
    if not len(known):
        return Field(name=name, levels=None, low=0.0, high=0.0, fill=0.0)
    values, counts = np.unique(known, return_counts=True)
    grid = tuple(values.tolist()) if len(values) <= _MOST_GRID else ()
    fill = float(values[np.argmax(counts)])
    return Field(name=name, levels=None, low=values[0], high=values[-1], fill=fill, grid=grid)


def _text_field(name: str, column: Column) -> Field:
    values, counts = np.unique(_texts(column), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    levels = tuple(str(values[index]) for index in order[:_MOST_LEVELS])
    shares = (counts[order] / counts.sum()).tolist() if len(values) <= _MOST_LEVELS else ()
    return Field(name=name, levels=levels, fill=levels[0], shares=tuple(shares))


def _reason_to_drop(field: Field, column: Column, kept: Mapping[str, Column]) -> str | None:
    if field.constant:
        return "it is always the same"
    if field.levels is not None:
        distinct = len(set(_texts(column)))
        return "nearly every run has another text" if distinct > max(_MOST_LEVELS, len(column) / 2) else None
    filled = _filled(column, field)
    for name, other in kept.items():
        if other.dtype != object and _is_copy(filled, other):
            return f"it says the same as {name!r}"
    return None


def _is_copy(one: Column, other: Column) -> bool:
    spread = np.std(one) * np.std(other)
    return bool(spread > 0 and abs(np.mean((one - one.mean()) * (other - other.mean()))) / spread > _SAME)


def _filled(column: Column, field: Field) -> NDArray[np.float64]:
    numbers = _numbers(column)
    missing = np.isnan(numbers)
    numbers = np.where(missing, field.fill, numbers) if missing.any() else numbers
    return np.where(_has_no_meaning(numbers, field), field.low, numbers)


def _has_no_meaning(numbers: NDArray[np.float64], field: Field) -> NDArray[np.bool_]:
    """Zero and below, for what was positive in every run: no law of powers goes there, so it counts as the least."""
    return np.asarray((numbers <= 0) & (field.low > 0) | (numbers < 0) & (field.low == 0))


def _numbers(column: Column) -> NDArray[np.float64]:
    numbers = column if column.dtype != object else np.array([_number(value) for value in column])
    return np.asarray(np.clip(numbers.astype(float, copy=False), -_LARGEST, _LARGEST))


def _texts(column: Column) -> NDArray[np.object_]:
    return column if column.dtype == object else np.array([render_level(value) for value in column], dtype=object)


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return np.nan


def _is_measured(numbers: NDArray[np.float64], field: Field) -> NDArray[np.bool_]:
    if not field.grid:
        return np.ones(len(numbers), dtype=bool)
    grid = np.array(field.grid)
    nearest = grid[np.minimum(np.searchsorted(grid, numbers), len(grid) - 1)]
    return np.asarray(np.isnan(numbers) | (numbers == nearest))


def _beyond(column: Column, field: Field) -> NDArray[np.float64]:
    low, high = field.low, field.high
    meaningless = _has_no_meaning(column, field)
    if low > 0:
        column, low, high = np.log(np.where(meaningless, low, column)), float(np.log(low)), float(np.log(high))
    span = max(high - low, abs(high) * 1e-9, np.log(2.0))
    distance = np.maximum(np.maximum(low - column, column - high) / span, 0)
    distance = np.where(np.isnan(distance) | (distance < 1e-9), 0.0, distance)
    if field.low <= 0:
        distance = np.log2(1 + distance)  # such a range has no logarithm, but what is far beyond it is as far in logs
    return np.where(meaningless & (field.low > 0), _FARTHEST, np.minimum(distance, _FARTHEST))


def _find_warning(field: Field, value: object) -> PredictionWarning | None:
    if field.levels is not None:
        text = render_level(value)
        if text in field.levels:
            return None
        words = f"{field.name} = {text!r} was never run; runs had {', '.join(map(repr, field.levels[:5]))}"
        return build_warning("unmeasured-value", words, name=field.name, value=text, measured=list(field.levels))
    number = _number(value)
    if np.isnan(number) or field.low <= np.clip(number, -_LARGEST, _LARGEST) <= field.high:
        return None
    if field.constant:
        words = f"{field.name} was always {field.low:g} in the runs; what {number:g} does to it is not known"
        return build_warning("never-varied", words, name=field.name, value=number, measured=float(field.low))
    outside = f"{field.name} = {number:g} lies outside the runs, which had {field.low:g} to {field.high:g}"
    if _has_no_meaning(np.array([number]), field)[0]:
        outside = f"{outside}; it is predicted as {field.low:g}, because no law of powers reaches it"
    limits = {"low": float(field.low), "high": float(field.high)}
    return build_warning("outside-measured-range", outside, name=field.name, value=number, **limits)


def _encoded_names(field: Field) -> tuple[str, ...]:
    if field.levels is None:
        return (field.name,)
    return tuple(f"{field.name}={level}" for level in field.levels)
