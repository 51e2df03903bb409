"""Transfer to an app with two to four configurations: one factor on another app's predictions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.app import App
from foretell.core.errors import NotEnoughRunsError
from foretell.core.intervals import Spread, measure_error
from foretell.core.model_card import Judgement, LeaderboardRow, ModelCard, Transfer
from foretell.runtimes.encoding import Encoder, fit_encoder
from foretell.runtimes.fit import NEED, NEED_TO_TRANSFER, transfer_ranges
from foretell.runtimes.metrics import get_policy, score
from foretell.runtimes.predictor import ELAPSED, MEMORY, Predictor
from foretell.runtimes.proportionality import FactorRecipe, Units
from foretell.runtimes.recipes import FittedRecipe, Recipe, TrainingSet
from foretell.runtimes.run_table import Columns, RunTable
from foretell.runtimes.selection import Trial, pick

Floats: TypeAlias = NDArray[np.float64]

SCALED = "scaled"
# Of the mean's error. In simulation 3 to 14 % of unrelated sources get there by chance with three runs (8 to 24 % with
# two), and 95 % of those within a tenth of the truth.
_CLEARLY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRecipe(Recipe):
    """A way to fit, as a candidate: of equals, the one without transfer is the simplest."""

    family: str
    order: int = 1

    @property
    def rank(self) -> tuple[float, ...]:
        return (self.order,)

    @property
    def least_to_win_ties(self) -> float:
        return 0


def fit_few(
    app: App, table: RunTable, sources: Sequence[tuple[str, Predictor]], *, policy: str
) -> tuple[Predictor, Transfer]:
    """One factor on the predictions of a source, where that is clearly better than the mean of the app's own runs.

    Each configuration in turn is left out of the factor, and predicted.

    Raises:
        NotEnoughRunsError: There are fewer than two configurations, or no source is good enough.
    """
    own = len(np.unique(table.group[~table.censored]))
    if own < NEED_TO_TRANSFER or not sources:
        raise NotEnoughRunsError(app.name, have=own, need=NEED_TO_TRANSFER if sources else NEED)
    encoder, ones = fit_encoder(table.columns), np.ones(len(table))
    alone = _scale(ELAPSED, table.elapsed_s, ones, table, encoder)
    points = [predictor.points(table.columns, len(table)) for _, predictor in sources]
    scaled = [_scale(ELAPSED, table.elapsed_s, one[ELAPSED], table, encoder) for one in points]
    chosen = _find_clearly_better(alone, scaled, policy)
    if chosen is None:
        raise NotEnoughRunsError(app.name, have=own, need=NEED)
    (name, source), parts = sources[chosen], {ELAPSED: scaled[chosen]}
    memory = _find_memory(table, points[chosen], encoder, policy)
    parts |= {MEMORY: memory} if memory else {}
    encoder = transfer_ranges(encoder, source.encoder)
    judgements = {quantity: part.judgement(policy, table) for quantity, part in parts.items()}
    predictor = Predictor(
        encoder=encoder,
        models={quantity: part.fit(encoder) for quantity, part in parts.items()},
        spreads={quantity: part.spread(source.card.judgements[quantity]) for quantity, part in parts.items()},
        formula=None,
        units=Units(),
        source=source,
        transferred=tuple(parts),
        card=ModelCard(
            app=app.name,
            policy=policy,
            judgements=judgements,
            uses_custom=False,
            warnings=encoder.warnings,
            columns=encoder.names,
        ),
    )
    expected = judgements[ELAPSED].expected
    return predictor, Transfer(source=name, method=SCALED, alone=None, with_source=expected, configurations=own)


def _find_memory(table: RunTable, points: Columns, encoder: Encoder, policy: str) -> "_Scaled | None":
    y = table.peak_memory_bytes
    known = np.isfinite(y) & (y > 0) & ~table.censored
    if MEMORY not in points or len(np.unique(table.group[known])) < NEED_TO_TRANSFER:
        return None
    alone, scaled = (_scale(MEMORY, y, unit, table, encoder) for unit in (np.ones(len(table)), points[MEMORY]))
    return None if _find_clearly_better(alone, [scaled], policy) is None else scaled


def _find_clearly_better(alone: "_Scaled", scaled: Sequence["_Scaled"], policy: str) -> int | None:
    """Which of them is so much better than the mean of the app's own runs that few runs prove it."""
    weigh = get_policy(policy)
    trials = [part.trial(number) for number, part in enumerate((alone, *scaled))]
    best = pick(trials, alone.actual, weigh)
    errors = [weigh(score(alone.actual, trial.predictions)) for trial in (best, trials[0])]
    return int(best.recipe.family) - 1 if errors[0] <= _CLEARLY * errors[1] and best is not trials[0] else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scaled:
    """A factor on given units, and its predictions for configurations that were left out of it."""

    quantity: str
    data: TrainingSet
    held_out: Floats

    @property
    def actual(self) -> Floats:
        return self.data.y

    @property
    def configurations(self) -> int:
        return len(np.unique(self.data.group))

    def trial(self, number: int) -> Trial:
        recipe = TransferRecipe(family=str(number), order=min(number, 1))
        return Trial(recipe=recipe, fitted=FactorRecipe().fit(self.data), predictions=self.held_out)

    def fit(self, encoder: Encoder) -> FittedRecipe:
        """The factor as a model that reads the encoder's columns."""
        like = np.zeros((len(self.data), len(encoder.names)))
        return FactorRecipe().fit(replace(self.data, X=like))

    def spread(self, source: Judgement) -> Spread:
        """Not narrower than the source's own, and wider where it is estimated from few runs."""
        measured, predicted = np.array(source.pairs).T if source.pairs else np.ones((2, 1))
        least = measure_error(np.log(measured / predicted))
        return Spread.learn_from_few(self.actual, self.held_out, configurations=self.configurations, least=least)

    def judgement(self, policy: str, table: RunTable) -> Judgement:
        scores = score(self.actual, self.held_out)
        line = LeaderboardRow(candidate="factor", family="factor", mix="", adjustment=None, scores=scores, fit_s=0.0)
        return Judgement(
            quantity=self.quantity,
            policy=policy,
            winner=line.candidate,
            why="factor: the only candidate that can be fitted to so few runs",
            leaderboard=(line,),
            expected=scores,
            pairs=tuple(zip(self.actual.tolist(), self.held_out.tolist(), strict=True)),
            rows=len(table),
            full_scale_rows=int(table.full_scale.sum()),
            censored_rows=int(table.censored.sum()),
        )


def _scale(quantity: str, y: Floats, unit: Floats, table: RunTable, encoder: Encoder) -> _Scaled:
    known = np.flatnonzero(np.isfinite(y) & (y > 0) & ~table.censored)
    data = TrainingSet(
        X=encoder.encode(table.columns, len(table)),
        y=y,
        unit=unit,
        full_scale=table.full_scale,
        censored=table.censored,
        group=table.group,
    ).take(known)
    held_out = np.empty(len(data))
    for group in np.unique(data.group):
        inside = data.group == group
        fitted = FactorRecipe().fit(data.take(~inside))
        held_out[inside] = fitted.predict(data.X[inside]) * data.unit[inside]
    return _Scaled(quantity=quantity, data=data, held_out=held_out)
