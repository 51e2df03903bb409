"""The model for questions whose numbers were not measured: between measured ones, or beyond them.

Sweeps are grids: leave one configuration out, and every value of it still stands in some other run. That judges
predictions for the grid's own values, and there a tree that has memorised them is hard to beat. Other questions are
another matter. So candidates are judged by leaving out all runs with one value of one column: one from the middle for
questions between measured values, the largest for questions beyond them. Few values can be left out, and which
candidate is best on them is often chance: the better ones are blended instead of one being picked.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretell.core.intervals import Spread
from foretell.core.model_card import Scores
from foretell.runtimes.encoding import BETWEEN, BEYOND
from foretell.runtimes.metrics import get_policy, score
from foretell.runtimes.recipes import Bools, FittedRecipe, Floats, Recipe, Saturation, TrainingSet
from foretell.runtimes.regressors import build_blend, weigh_by_error
from foretell.runtimes.selection import judged_rows

BLEND, CONSTANT = "blend", "constant"
_NEVER_ELSEWHERE = ("boosting",)  # trees alone know steps only; with a law they are another candidate
# How much of a fall beyond the largest measured value is believed. Half, unless the runs clearly say otherwise: who
# measured 1, 2 and 4 cores and asks for 8 gains something, but less than from 2 to 4.
_BELIEVED = (0.5, 1.0, 0.0)
_CLEARLY = 1.5  # times as good
_LEAST_TO_CARRY_NOTHING = 20  # configurations: among fewer, the median may be nearest by chance
MOST_VALUES = 64  # more distinct values than this are no grid
_END = 0.15  # of the runs, left out at the upper end of a column that is no grid
_MOST_FOLDS = ((1000, 5), (np.inf, 2))  # of each regime, for up to so many rows
_MOST_JUDGED = 500  # rows of a fold; more of them say the same
_LEAST_LEFT = 1 / 3  # of the judged configurations, that a fold must leave for fitting


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The model for one regime, fitted to all rows, and how far measured values lie from it there.

    ``held_out`` are predictions for ``rows`` (a row may stand there more than once) from fits without their value.
    """

    fitted: FittedRecipe
    spread: Spread
    winner: str
    expected: Scores
    rows: NDArray[np.intp]
    held_out: Floats
    widths: Floats | None


def select_elsewhere(data: TrainingSet, whole: Mapping[Recipe, FittedRecipe], *, policy: str) -> dict[str, Elsewhere]:
    """What to use between measured values and beyond them; a regime of which no value can be left out is absent.

    ``whole`` are the recipes as fitted to all rows.
    """
    usable = {
        recipe: fitted
        for recipe, fitted in whole.items()
        if recipe.share == 1 and not recipe.adjusted and recipe.family not in _NEVER_ELSEWHERE
    }
    folds = [*_list_folds(data, BETWEEN), *_list_folds(data, BEYOND)]
    if not folds or not usable:
        return {}
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        trials = _Trials.make(data, usable, folds)
        return {regime: trials.choose(regime, policy=policy) for regime in (BETWEEN, BEYOND) if trials.judges(regime)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fold:
    regime: str
    rows: NDArray[np.intp]
    kept: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """Logarithms of predictions for rows whose value was left out: a column for each member of the blend.

    ``logs`` has them for each belief in falls. ``number`` is the fold of each row.
    """

    data: TrainingSet
    members: Mapping[Recipe, FittedRecipe]
    constant: FittedRecipe | None
    folds: Sequence[_Fold]
    number: NDArray[np.intp]
    logs: Mapping[float, Floats]
    constant_logs: Floats
    widths: Floats | None

    @classmethod
    def make(cls, data: TrainingSet, whole: Mapping[Recipe, FittedRecipe], folds: Sequence[_Fold]) -> "_Trials":
        parts = [_Part.make(data, whole, fold) for fold in folds]
        flat = next((place for place, recipe in enumerate(whole) if recipe.family == CONSTANT), None)
        others = [place for place in range(len(whole)) if place != flat]
        logs = {share: np.vstack([part.logs[share] for part in parts]) for share in _BELIEVED}
        widths = [part.widths for part in parts if part.widths is not None]
        recipes = list(whole)
        return cls(
            data=data,
            members={recipes[place]: whole[recipes[place]] for place in others} or dict(whole),
            constant=None if flat is None else whole[recipes[flat]],
            folds=folds,
            number=np.concatenate([np.full(len(fold.rows), place) for place, fold in enumerate(folds)]),
            logs={share: table[:, others] if others else table for share, table in logs.items()},
            constant_logs=logs[_BELIEVED[0]][:, flat or 0],
            widths=np.concatenate(widths) if widths else None,
        )

    @property
    def rows(self) -> NDArray[np.intp]:
        return np.concatenate([fold.rows for fold in self.folds])

    @property
    def log_actual(self) -> Floats:
        return np.asarray(np.log(self.data.y[self.rows]))

    def judges(self, regime: str) -> bool:
        return any(fold.regime == regime for fold in self.folds)

    def choose(self, regime: str, *, policy: str) -> Elsewhere:
        weigh = get_policy(policy)
        mine = np.isin(self.number, [place for place, fold in enumerate(self.folds) if fold.regime == regime])
        actual = np.exp(self.log_actual[mine])
        believed, held_out = self._choose_belief(mine, weigh)
        if self.constant is not None and self._is_constant_better(weigh):
            fitted, winner, held_out, widths = self.constant, CONSTANT, np.exp(self.constant_logs[mine]), None
        else:
            fitted, winner = self._blend(believed if regime == BEYOND else 1.0), BLEND
            widths = None if self.widths is None else self.widths[mine]
        return Elsewhere(
            fitted=fitted,
            spread=Spread.learn(actual, held_out, widths),
            winner=winner,
            expected=score(actual, held_out),
            rows=self.rows[mine],
            held_out=held_out,
            widths=None if self.widths is None else self.widths[mine],
        )

    def _choose_belief(self, mine: Bools, weigh: Callable[[Scores], float]) -> tuple[float, Floats]:
        """How much of a fall beyond the runs is believed, and the blend's predictions with that."""
        actual = np.exp(self.log_actual[mine])
        held_out = {share: np.exp(self._blend_held_out(share)[mine]) for share in _BELIEVED}
        scores = {share: weigh(score(actual, predictions)) for share, predictions in held_out.items()}
        best = min(scores, key=lambda share: scores[share])
        chosen = best if scores[best] * _CLEARLY < scores[_BELIEVED[0]] else _BELIEVED[0]
        return chosen, held_out[chosen]

    def _blend_held_out(self, share: float) -> Floats:
        """What the blend predicts for each fold, weighed by the others."""
        logs, errors = self.logs[share], self.logs[_BELIEVED[0]] - self.log_actual[:, None]
        blended = np.empty(len(logs))
        for place in range(len(self.folds)):
            inside = self.number == place
            weights = weigh_by_error(errors[~inside] if not inside.all() else np.zeros((1, logs.shape[1])))
            blended[inside] = logs[inside] @ weights
        return blended

    def _is_constant_better(self, weigh: Callable[[Scores], float]) -> bool:
        """Whether the columns carry nothing: everywhere the median of the runs is nearer than what is made of them."""
        if len(np.unique(self.data.group[self.rows])) < _LEAST_TO_CARRY_NOTHING:
            return False
        actual = np.exp(self.log_actual)
        flat, blended = np.exp(self.constant_logs), np.exp(self._blend_held_out(_BELIEVED[0]))
        return weigh(score(actual, flat)) < weigh(score(actual, blended))

    def _blend(self, believed: float) -> FittedRecipe:
        errors = self.logs[_BELIEVED[0]] - self.log_actual[:, None]
        models = [fitted.model for fitted in self.members.values()]
        blend = FittedRecipe(model=build_blend(models, weigh_by_error(errors)))
        return blend if believed == 1 else replace(blend, saturation=Saturation.of(self.data.X, believed=believed))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One fold of the trials."""

    logs: Mapping[float, Floats]
    widths: Floats | None

    @classmethod
    def make(cls, data: TrainingSet, whole: Mapping[Recipe, FittedRecipe], fold: _Fold) -> "_Part":
        training, unseen = data.take(fold.kept), data.take(fold.rows)
        fits = [recipe.fit(training, like=fitted) for recipe, fitted in whole.items()]
        known = [widths for fit in fits if (widths := fit.find_widths(unseen.X)) is not None]
        return cls(
            logs={share: _predict_logs(fits, training, unseen, fold.regime, share) for share in _BELIEVED},
            widths=known[0] if known else None,
        )


def _predict_logs(
    fits: Sequence[FittedRecipe], training: TrainingSet, unseen: TrainingSet, regime: str, believed: float
) -> Floats:
    if regime == BEYOND and believed < 1:
        saturation = Saturation.of(training.X, believed=believed)
        fits = [replace(fit, saturation=saturation) for fit in fits]
    return np.column_stack([np.log(fit.predict(unseen.X) * unseen.unit) for fit in fits])


def _list_folds(data: TrainingSet, regime: str) -> list[_Fold]:
    judged = judged_rows(data)
    groups = len(np.unique(data.group[judged]))
    folds = []
    for left_out in _list_inside(data.X) if regime == BETWEEN else _list_ends(data.X):
        rows = judged[left_out[judged]]
        left = len(np.setdiff1d(data.group[judged], data.group[rows]))
        if len(rows) and left >= max(2, _LEAST_LEFT * groups):
            folds.append(_Fold(regime=regime, rows=rows[:: 1 + len(rows) // _MOST_JUDGED], kept=~left_out))
    most = next(count for limit, count in _MOST_FOLDS if len(data) <= limit)
    chosen = np.linspace(0, len(folds) - 1, min(len(folds), most)).astype(int)
    return [folds[place] for place in chosen]


def _list_inside(X: Floats) -> Iterator[Bools]:
    """The rows of each value between others, column by column."""
    for column in X.T:
        values = np.unique(column)
        for value in values[1:-1] if len(values) <= MOST_VALUES else ():
            yield column == value


def _list_ends(X: Floats) -> Iterator[Bools]:
    """The rows at the upper end of each column: most questions beyond the runs lie above them."""
    for column in X.T:
        values = np.unique(column)
        if len(values) > 2:
            yield column >= (values[-1] if len(values) <= MOST_VALUES else np.quantile(column, 1 - _END))
