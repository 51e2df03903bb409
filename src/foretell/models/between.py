"""The choice for questions whose values lie between or beyond those that were measured.

Sweeps are grids: leave one configuration out, and every value of it still stands in some other run. That judges answers
for the grid's own values, and there a tree that has memorised them is hard to beat. Questions off the grid are another
matter, so they are judged by leaving out all runs with one value of one parameter, the least and the largest too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from foretell.entities.learned import Scores
from foretell.models.intervals import Spread
from foretell.models.metrics import score
from foretell.models.recipes import Bools, FittedRecipe, Floats, Recipe, TrainingSet
from foretell.models.selection import (
    Trial,
    answer,
    find_doubt,
    get_policy,
    judged_rows,
    pick,
    without_the_chooser,
)

_NEVER_BETWEEN = ("boosting",)  # trees alone know steps only; with a law they are another candidate
MOST_VALUES = 64  # more distinct values than this are no grid
_MOST_FOLDS = ((1000, 5), (np.inf, 2))  # for up to so many rows, so many
_MOST_JUDGED = 500  # rows with one value; more of them say the same
_LEAST_LEFT = 1 / 3  # of the judged configurations, for a fold to teach anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """The winner in between, fitted on all rows, and how far the truth strays from it there.

    ``held_out`` are predictions for ``rows`` (a row may stand there more than once) from fits without their value.
    """

    fitted: FittedRecipe
    spread: Spread
    winner: str
    expected: Scores
    rows: NDArray[np.intp]
    held_out: Floats
    widths: Floats | None


def select_between(data: TrainingSet, whole: Mapping[Recipe, FittedRecipe], *, policy: str) -> Between | None:
    """The best recipe by the policy on values left out; ``None`` if no value lies between others.

    ``whole`` are the recipes as fitted to all rows.
    """
    weigh = get_policy(policy)
    folds = _thinned(list(_value_folds(data)), len(data))
    if not folds:
        return None
    fold_of = np.concatenate([np.full(len(rows), number) for number, (rows, _) in enumerate(folds)])
    actual = np.concatenate([data.y[rows] for rows, _ in folds])
    with threadpool_limits(1):
        trials = [
            _try(recipe, fitted, data, folds)
            for recipe, fitted in whole.items()
            if recipe.share == 1 and not recipe.adjusted and recipe.family not in _NEVER_BETWEEN
        ]
        winner = pick(trials, actual, weigh)
        held_out = without_the_chooser(trials, actual, fold_of, weigh)
        _, widths = find_doubt(trials)
        return Between(
            fitted=winner.fitted,
            spread=Spread.learn(actual, held_out, widths),
            winner=winner.recipe.name,
            expected=score(actual, held_out),
            rows=np.concatenate([rows for rows, _ in folds]),
            held_out=held_out,
            widths=widths,
        )


def _value_folds(data: TrainingSet) -> Iterator[tuple[NDArray[np.intp], Bools]]:
    """Judged rows with one value of one column, and the rows without it."""
    judged = judged_rows(data)
    groups = len(np.unique(data.group[judged]))
    for column in data.X.T:
        values = np.unique(column)
        for value in values if 2 < len(values) <= MOST_VALUES else ():
            rows = judged[column[judged] == value]
            left = len(np.setdiff1d(data.group[judged], data.group[rows]))
            if len(rows) and left >= max(2, _LEAST_LEFT * groups):
                yield rows[:: 1 + len(rows) // _MOST_JUDGED], column != value


def _thinned(folds: list[tuple[NDArray[np.intp], Bools]], rows: int) -> list[tuple[NDArray[np.intp], Bools]]:
    most = next(count for limit, count in _MOST_FOLDS if rows <= limit)
    chosen = np.linspace(0, len(folds) - 1, min(len(folds), most)).astype(int)
    return [folds[index] for index in chosen]


def _try(
    recipe: Recipe, whole: FittedRecipe, data: TrainingSet, folds: Sequence[tuple[NDArray[np.intp], Bools]]
) -> Trial:
    answers = [answer(recipe, data.take(kept), data.take(rows), like=whole) for rows, kept in folds]
    strayed = [strays for _, _, strays in answers if strays is not None]
    return Trial(
        recipe=recipe,
        fitted=whole,
        predictions=np.concatenate([told for _, told, _ in answers]),
        widths=np.concatenate(strayed) if strayed else None,
    )
