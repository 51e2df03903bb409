"""Cross-validation of candidates on full-scale runs, and the choice among them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretell.core.intervals import Spread
from foretell.core.model_card import Judgement, LeaderboardRow, Scores
from foretell.runtimes.metrics import DEFAULT_POLICY, get_policy, score
from foretell.runtimes.recipes import Bools, FittedRecipe, Floats, Recipe, TrainingSet
from foretell.runtimes.regressors import build_blend, weigh_members

_RESAMPLES = 100
_TIE = 0.16  # share of resamples in which a candidate must be as good as the best: within one standard error of it
_SAME_PERCENT = 1.0  # predictions that near are the same to whoever asks for memory or time
_FAR = 2.0
_ROUNDING_PERCENT = 0.05  # errors below it are shown as 0.0 %
_NOTABLE, _MOST_TIMES = 1.005, 100  # times as far off: less is 1.00, more is as good as any number
_LEAST_FULL_SCALE = 3
_FOLDS = 10
_FOLDS_FOR_MANY = 5
_MANY_ROWS = 50
_MOST_JUDGED = 1000
_PLENTY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The winner fitted on all rows, how far the truth strays from it, and how the candidates did.

    ``held_out`` are predictions for the judged rows from fits and choices that did not see them. ``deviation`` says how
    far a row is expected to stray, ``widths`` what it said of the judged rows without having seen them. ``whole`` are
    the recipes as fitted to all rows.
    """

    fitted: FittedRecipe
    whole: Mapping[Recipe, FittedRecipe]
    deviation: FittedRecipe | None
    spread: Spread
    judgement: Judgement
    judged: NDArray[np.intp]
    held_out: Floats
    widths: Floats | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A recipe fitted to all rows, and what it predicted for rows it had not seen."""

    recipe: Recipe
    fitted: FittedRecipe
    predictions: Floats
    widths: Floats | None = None
    factor: float = 1.0
    fit_s: float = 0.0


def select(
    data: TrainingSet,
    recipes: Sequence[Recipe],
    *,
    quantity: str,
    policy: str = DEFAULT_POLICY,
    blended: bool = False,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Selected:
    """The best recipe by the policy, with what to expect of it; ``blended`` ones stand for election as well.

    Raises:
        NotFoundError: if there is no such policy.
    """
    from threadpoolctl import threadpool_limits

    weigh = get_policy(policy)
    judged = _sample(data.group, judged_rows(data), seed=seed)
    folds = _fold_of(data.group[judged], seed=seed)
    actual = data.y[judged]
    with threadpool_limits(1):  # threads cost more than they bring to fits of this size
        trials = []
        for recipe in recipes:
            progress(f"{quantity}: {recipe.name}")
            trials.append(_try(recipe, data, judged, folds))
    whole = {trial.recipe: trial.fitted for trial in trials}
    if blended:
        trials.append(_blend(trials, actual, folds))
    winner = pick(trials, actual, weigh)
    held_out = predict_by_choice(trials, actual, folds, weigh)
    standings = sorted((_standing(trial, actual) for trial in trials), key=lambda line: weigh(line.scores))
    judgement = Judgement(
        quantity=quantity,
        policy=policy,
        winner=winner.recipe.name,
        why=_explain(winner, standings, policy, weigh),
        leaderboard=tuple(standings),
        expected=score(actual, held_out),
        pairs=tuple(zip(actual.tolist(), held_out.tolist(), strict=True)),
        rows=len(data),
        full_scale_rows=int(data.full_scale.sum()),
        censored_rows=int(data.censored.sum()),
    )
    deviation, widths = find_deviation_model(trials)
    return Selected(
        fitted=winner.fitted,
        whole=whole,
        deviation=deviation,
        spread=Spread.learn(actual, held_out, widths),
        judgement=judgement,
        judged=judged,
        held_out=held_out,
        widths=widths,
    )


def find_deviation_model(trials: Sequence[Trial]) -> tuple[FittedRecipe | None, Floats | None]:
    """The candidate that knows how far rows stray, and what it said of unseen ones; else all stray alike."""
    for trial in trials:
        if trial.widths is not None:
            return trial.fitted, trial.widths
    return None, None


def judged_rows(data: TrainingSet) -> NDArray[np.intp]:
    """Full-scale rows that ran to their end; every such row where hardly any is full scale."""
    known = ~data.censored
    full = known & data.full_scale
    enough = len(np.unique(data.group[full])) >= _LEAST_FULL_SCALE
    return np.flatnonzero(full if enough else known)


def _sample(group: NDArray[np.int64], judged: NDArray[np.intp], *, seed: int) -> NDArray[np.intp]:
    """At most so many judged rows, configurations staying together."""
    if len(judged) <= _MOST_JUDGED:
        return judged
    groups, index, sizes = np.unique(group[judged], return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(groups))
    kept = order[np.cumsum(sizes[order]) <= _MOST_JUDGED]
    return judged[np.isin(index, kept)]


def _fold_of(group: NDArray[np.int64], *, seed: int) -> NDArray[np.int64]:
    """The fold of each row: configurations stay together."""
    groups, index = np.unique(group, return_inverse=True)
    folds = min(_FOLDS if len(group) <= _MANY_ROWS else _FOLDS_FOR_MANY, len(groups))
    of_group = np.random.default_rng(seed).permutation(np.arange(len(groups)) % folds)
    return np.asarray(of_group[index])


def _splits(
    data: TrainingSet, judged: NDArray[np.intp], folds: NDArray[np.int64]
) -> Iterator[tuple[TrainingSet, Bools]]:
    """What is fitted, and which judged rows it did not see.

    Where these are a small sample of what could be judged, plenty of their kind is left without them: one fit will do.
    """
    if len(judged) * _PLENTY <= len(judged_rows(data)):
        folds = np.zeros_like(folds)
    for fold in np.unique(folds):
        inside = folds == fold
        seen = ~np.isin(data.group, data.group[judged[inside]])
        yield data.take(seen), inside


def _try(recipe: Recipe, data: TrainingSet, judged: NDArray[np.intp], folds: NDArray[np.int64]) -> Trial:
    started = time.perf_counter()
    whole = recipe.fit(data)
    fit_s = time.perf_counter() - started
    predictions, widths, factors = np.empty(len(judged)), np.empty(len(judged)), []
    for training, inside in _splits(data, judged, folds):
        fitted, unseen = recipe.fit(training, like=whole), data.take(judged[inside])
        known = fitted.find_widths(unseen.X)
        predictions[inside] = fitted.predict(unseen.X) * unseen.unit
        widths[inside] = np.nan if known is None else known
        factors.append(fitted.factor)
    return Trial(
        recipe=recipe,
        fitted=whole,
        predictions=predictions,
        widths=None if np.isnan(widths).any() else widths,
        factor=float(np.median(factors)),
        fit_s=fit_s,
    )


def _blend(trials: Sequence[Trial], actual: Floats, folds: NDArray[np.int64]) -> Trial:
    """All of them together. What it says of a fold, it says with weights from the other folds."""
    errors = np.column_stack([np.log(trial.predictions / actual) for trial in trials])
    logs = np.log([trial.predictions for trial in trials])
    predictions = np.empty(len(actual))
    for fold in np.unique(folds):
        inside = folds == fold
        weights = weigh_members(errors[~inside] if (~inside).any() else errors)
        predictions[inside] = np.exp(weights @ logs[:, inside])
    blend = build_blend([trial.fitted.model for trial in trials], weigh_members(errors))
    fit_s = sum(trial.fit_s for trial in trials)
    return Trial(recipe=Recipe(family="blend"), fitted=FittedRecipe(model=blend), predictions=predictions, fit_s=fit_s)


def pick(trials: Sequence[Trial], actual: Floats, weigh: Callable[[Scores], float]) -> Trial:
    """The best, or the simplest of those that other rows of the same kind might have put first."""
    best = min(trials, key=lambda trial: weigh(score(actual, trial.predictions)))
    simpler = sorted(
        (
            trial
            for trial in trials
            if trial.recipe.least_to_win_ties <= len(actual) and trial.recipe.rank < best.recipe.rank
        ),
        key=lambda trial: trial.recipe.rank,
    )
    return next((trial for trial in simpler if _is_tied(trial, best, actual, weigh)), best)


def _is_tied(trial: Trial, best: Trial, actual: Floats, weigh: Callable[[Scores], float]) -> bool:
    if 100 * np.mean(np.abs(trial.predictions - best.predictions) / actual) < _SAME_PERCENT:
        return True
    if weigh(score(actual, trial.predictions)) > _FAR * weigh(score(actual, best.predictions)):
        return False  # not worth resampling
    draws = np.random.default_rng(0).integers(len(actual), size=(_RESAMPLES, len(actual)))
    as_good = [
        weigh(score(actual[rows], trial.predictions[rows])) <= weigh(score(actual[rows], best.predictions[rows]))
        for rows in draws
    ]
    return float(np.mean(as_good)) >= _TIE


def predict_by_choice(
    trials: Sequence[Trial], actual: Floats, folds: NDArray[np.int64], weigh: Callable[[Scores], float]
) -> Floats:
    """Predictions for each fold by the candidate the other folds would have picked.

    The winner is picked by these rows, so its own figures on them flatter it.
    """
    predictions = np.empty(len(actual))
    for fold in np.unique(folds):
        inside = folds == fold
        others = [replace(trial, predictions=trial.predictions[~inside]) for trial in trials]
        choice = pick(others, actual[~inside], weigh) if (~inside).any() else others[0]
        chosen = next(trial for trial in trials if trial.recipe == choice.recipe)
        predictions[inside] = chosen.predictions[inside]
    return predictions


def _standing(trial: Trial, actual: Floats) -> LeaderboardRow:
    return LeaderboardRow(
        candidate=trial.recipe.name,
        family=trial.recipe.family,
        mix=trial.recipe.mix,
        adjustment=trial.factor if trial.recipe.adjusted else None,
        scores=score(actual, trial.predictions),
        fit_s=trial.fit_s,
    )


def _explain(winner: Trial, standings: Sequence[LeaderboardRow], policy: str, weigh: Callable[[Scores], float]) -> str:
    name, first = winner.recipe.name, standings[0]
    if first.candidate != name:
        return f"{name}: as good as {first.candidate} by {policy}, within what chance would change, and simpler"
    runner_up = next((line for line in standings[1:] if line.family != first.family), None)
    if runner_up is None:
        return f"{name}: best by {policy}"
    next_family = f"the next family, {runner_up.candidate}"
    ratio = _compare(runner_up.scores, first.scores, weigh)
    if ratio < _NOTABLE:
        return f"{name}: by {policy} as good as {next_family}"
    times = f"{ratio:.2f}" if ratio < _MOST_TIMES else f"more than {_MOST_TIMES}"
    return f"{name}: best by {policy}; {next_family}, is {times} times as far off"


def _compare(other: Scores, best: Scores, weigh: Callable[[Scores], float]) -> float:
    """How many times as far off another candidate is; once where both are off by no more than rounding."""
    if max(other.mape, best.mape) < _ROUNDING_PERCENT:
        return 1.0
    return weigh(other) / weigh(best) if weigh(best) > 0 else np.inf
