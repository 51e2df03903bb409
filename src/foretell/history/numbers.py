"""Numbers of many lines at once, from the bytes themselves: no text is made of them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.history.lines import Lines, Places

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Characters = NDArray[np.uint8]

_LONGEST = 18  # characters; what is longer is read one by one
_FACTORS = np.full(256, np.nan)
for _unit, _power in zip("KMGTP", range(10, 60, 10), strict=True):
    _FACTORS[ord(_unit)] = 2.0**_power
_MOMENT, _HOURS, _MINUTES = (
    np.frombuffer(shape, dtype=np.uint8) for shape in (b"0000-00-00T00:00:00", b"00:00:00", b"00:00.000")
)
_DOT, _ZERO, _NINE = ord("."), ord("0"), ord("9")
_BEFORE_TASK = tuple(map(ord, "_+"))
LARGEST = 2**62  # what every database holds
LARGEST_COUNT = 2**31  # of cores, nodes, GPUs and tasks


class Read(NamedTuple):
    """Figures, ``nan`` where nothing was written; and the places of what is no number."""

    values: Floats
    unread: Places


def read_figures(lines: Lines, column: int, rows: Places) -> Read:
    """``3``, ``12.5``, ``3120K``, ``0.01M``: decimals with or without a unit."""
    begins = lines.begins_of(column)[rows]
    lengths = lines.ends[rows, column] - begins
    widest = min(int(lengths.max(initial=0)), _LONGEST)
    values, decimals = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int8)
    factors, dotted = np.ones(len(rows)), np.zeros(len(rows), dtype=bool)
    wrong = lengths > _LONGEST
    for place in range(widest):
        within = place < lengths
        character = lines.characters[np.where(within, begins + place, begins)]
        digit = within & (character >= _ZERO) & (character <= _NINE)
        values = np.where(digit, values * 10 + (character - _ZERO), values)
        decimals += digit & dotted
        other = within & ~digit
        if other.any():
            dot = other & (character == _DOT) & ~dotted
            dotted |= dot
            unit = other & (place == lengths - 1) & (place > 0)
            factors = np.where(unit, _FACTORS[character], factors)
            wrong |= other & ~dot & ~unit
    values = values * factors / 10.0**decimals
    unread = np.flatnonzero(wrong | ((np.isnan(values) | (values >= LARGEST)) & (lengths > 0)))
    return Read(np.where(lengths > 0, values, np.nan), unread)


class Ids(NamedTuple):
    """Job ids with their tasks, -1 where they have none; and the places of what is no such id."""

    jobs: Whole
    tasks: Whole
    unread: Places


def read_ids(lines: Lines, column: int, rows: Places) -> Ids:
    """``12``, ``12_3`` and ``12+3``."""
    begins = lines.begins_of(column)[rows]
    lengths = lines.ends[rows, column] - begins
    jobs, tasks = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), -1, dtype=np.int64)
    wrong = (lengths == 0) | (lengths > _LONGEST)
    for place in range(min(int(lengths.max(initial=0)), _LONGEST)):
        within = place < lengths
        character = lines.characters[np.where(within, begins + place, begins)]
        digit, of_task = within & (character >= _ZERO) & (character <= _NINE), tasks >= 0
        figure = character.astype(np.int64) - _ZERO
        jobs = np.where(digit & ~of_task, jobs * 10 + figure, jobs)
        tasks = np.where(digit & of_task, tasks * 10 + figure, tasks)
        parts = within & np.isin(character, _BEFORE_TASK) & ~of_task & (place > 0) & (place < lengths - 1)
        tasks = np.where(parts, 0, tasks)
        wrong |= within & ~digit & ~parts
    return Ids(jobs, tasks, np.flatnonzero(wrong | (tasks >= LARGEST_COUNT)))


def read_moments(lines: Lines, column: int, rows: Places) -> Read:
    """``2025-01-31T12:00:00`` as seconds since 1970, without any zone; all else is unread."""
    right, digits = _match(_MOMENT, lines, column, rows)
    year = digits[:, :4] @ (1000, 100, 10, 1)
    month, day, hour, minute, second = (digits[:, at] * 10 + digits[:, at + 1] for at in (5, 8, 11, 14, 17))
    right &= (year >= 1970) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    days = _count_days(np.where(right, year, 1970), np.where(right, month, 1), day)
    return Read(((days * 24 + hour) * 60 + minute) * 60.0 + second, np.flatnonzero(~right))


def read_clocks(lines: Lines, column: int, rows: Places) -> Read:
    """``02:03:04`` and ``03:04.567`` as seconds; all else is unread."""
    long, digits = _match(_HOURS, lines, column, rows)
    hours = digits @ (36000, 3600, 0, 600, 60, 0, 10, 1)
    short, digits = _match(_MINUTES, lines, column, rows)
    minutes = digits @ (600_000, 60_000, 0, 10_000, 1000, 0, 100, 10, 1) / 1000
    return Read(np.where(long, hours, np.where(short, minutes, np.nan)), np.flatnonzero(~long & ~short))


def _match(shape: Characters, lines: Lines, column: int, rows: Places) -> tuple[NDArray[np.bool_], Whole]:
    """Which fields look so (a 0 is any digit), and their digits."""
    begins = lines.begins_of(column)[rows]
    right = lines.ends[rows, column] - begins == shape.size
    found = lines.characters[np.where(right, begins, 0)[:, None] + np.arange(shape.size)]
    right &= ((found == shape) | ((shape == _ZERO) & (found >= _ZERO) & (found <= _NINE))).all(axis=1)
    return right, (found - _ZERO).astype(np.int64)


def _count_days(year: Whole, month: Whole, day: Whole) -> Whole:
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    return months.astype("datetime64[D]").astype(np.int64) + day - 1


def has_dot(lines: Lines, column: int) -> NDArray[np.bool_]:
    """Which lines have a dot in a field."""
    dots = np.flatnonzero(lines.characters == _DOT)
    begins = lines.begins_of(column)
    return np.asarray(np.searchsorted(dots, lines.ends[:, column]) > np.searchsorted(dots, begins))


def belong(lines: Lines, column: int, steps: Places, jobs: Places) -> NDArray[np.bool_]:
    """Whether each step's id is its job's with something behind a dot."""
    begins, ends = lines.begins_of(column), lines.ends[:, column]
    lengths = ends[jobs] - begins[jobs]
    same: NDArray[np.bool_] = lines.characters[begins[steps] + lengths] == _DOT
    for place in range(int(lengths.max(initial=0))):
        within = place < lengths
        one, other = (lines.characters[begins[rows] + np.where(within, place, 0)] for rows in (steps, jobs))
        same &= one == other
    return same


def as_list(figures: Floats) -> list[Any]:
    """Whole numbers; ``None`` for what is not known, or larger than anything measured can be."""
    known = ~np.isnan(figures) & (figures < LARGEST)
    whole: NDArray[np.object_] = np.rint(np.where(known, figures, 0.0)).astype(np.int64).astype(object)
    whole[~known] = None
    return list(whole)
