"""A new app with few runs borrows from another: its predictions, scaled, or its runs; or neither, where that hurts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.app import App
from foretell.core.errors import NotEnoughRunsError
from foretell.core.intervals import Spread, measure_error
from foretell.core.model_card import Borrowing, Judgement, LeaderboardRow, ModelCard, Scores
from foretell.core.warning import PredictionWarning, build_warning
from foretell.runtimes.encoding import Encoder, fit_encoder
from foretell.runtimes.fit import NEED, NEED_TO_BORROW, Progress, learn, lend_ranges
from foretell.runtimes.metrics import DEFAULT_POLICY, get_policy, score
from foretell.runtimes.predictor import ELAPSED, MEMORY, Predictor
from foretell.runtimes.proportionality import FactorRecipe, Units
from foretell.runtimes.recipes import DEFAULT, FittedRecipe, Recipe, TrainingSet
from foretell.runtimes.run_table import MACHINE_PREFIX, Column, Columns, RunTable, build_column
from foretell.runtimes.selection import Trial, pick, without_the_chooser

Floats: TypeAlias = NDArray[np.float64]

SCALED, POOLED = "scaled", "pooled"
_ALONE = "alone"
_APP = f"{MACHINE_PREFIX}app"  # named as a fact of the place: nobody chooses it, nobody is asked for it
_MOST_LENDERS = 3  # that are judged in full, of those that nobody named
_MOST_LENT = 500  # rows pooled with the own ones; more cost time and say the same
_LEAST_FULL_SCALE = 3
_FOLDS = 10
# Of the mean's error. In simulation 3 to 14 % of unrelated lenders get there by chance with three runs (8 to 24 % with
# two), and 95 % of those within a tenth of the truth.
_CLEARLY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Lender:
    """Another app: its predictor and the runs behind it."""

    name: str
    predictor: Predictor
    table: RunTable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way(Recipe):
    """A way to learn, as a candidate: of equals, going alone is the simplest."""

    family: str
    order: int = 1

    @property
    def rank(self) -> tuple[float, ...]:
        return (self.order,)

    @property
    def least_to_win_ties(self) -> float:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """What was learned one way, and from whom."""

    way: str
    predictor: Predictor
    lender: Lender | None = None

    @property
    def judgement(self) -> Judgement:
        return self.predictor.card.judgements[ELAPSED]

    def trial(self, number: int) -> Trial:
        predictions = np.array([predicted for _, predicted in self.judgement.pairs])
        fitted = self.predictor.models[ELAPSED]
        return Trial(recipe=_Way(family=str(number), order=min(number, 1)), fitted=fitted, predictions=predictions)


def learn_borrowing(
    app: App,
    table: RunTable,
    lenders: Sequence[Lender],
    *,
    policy: str = DEFAULT_POLICY,
    candidates: str = DEFAULT,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Predictor:
    """The predictor learned alone, or with one of the lenders where unseen runs say that this is better.

    Raises:
        NotEnoughRunsError: if there are fewer than two configurations; or fewer than five, and no lender helps.
        NotFoundError: if there is no such policy or list of candidates.
    """
    get_policy(policy)
    own = len(np.unique(table.group[~table.censored]))
    if own < NEED:
        return _learn_few(app, table, lenders, policy=policy)
    teacher = _Teacher(app=app, table=table, policy=policy, candidates=candidates, seed=seed, progress=progress)
    alone = _Option(way=_ALONE, predictor=teacher.alone())
    options = [alone, *(option for lender in lenders for option in teacher.ways(lender, alone))]
    return _choose(options, policy=policy, own=own)


def shortlist(table: RunTable, lenders: Sequence[Lender]) -> list[Lender]:
    """Those whose times are most nearly in proportion to the runs' own, nearest first."""
    known = np.flatnonzero(~table.censored)
    rows = table.take(known)

    def strays(lender: Lender) -> float:
        logs = np.log(rows.elapsed_s / lender.predictor.points(rows.columns, len(rows))[ELAPSED])
        return float(np.mean(np.abs(logs - np.median(logs))))

    return sorted(lenders, key=strays)[:_MOST_LENDERS] if len(known) else []


def is_similar(table: RunTable, other: RunTable) -> bool:
    """Whether something varies, and under the same name, in the runs of both."""
    return bool(_varying(table.columns) & _varying(other.columns))


def _varying(columns: Columns) -> set[str]:
    asked = {name: column for name, column in columns.items() if not name.startswith(MACHINE_PREFIX)}
    return {name for name, column in asked.items() if len(set(column[column == column].tolist())) > 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Teacher:
    app: App
    table: RunTable
    policy: str
    candidates: str
    seed: int
    progress: Progress

    def alone(self) -> Predictor:
        return self._learn(self.table, self.progress)

    def ways(self, lender: Lender, alone: _Option) -> Iterator[_Option]:
        """What the lender makes possible, as far as it can be held against going alone."""
        scaled = self._learn(self.table, self._telling(lender), source=lender.predictor)
        if self._hurts_memory(scaled, alone.predictor):
            scaled = self._learn(self.table, self._telling(lender), source=lender.predictor, borrowed=(ELAPSED,))
        yield _Option(way=SCALED, predictor=scaled, lender=lender)
        pooled = self._pool(lender)
        if not self._hurts_memory(pooled, alone.predictor):
            yield _Option(way=POOLED, predictor=pooled, lender=lender)

    def _learn(
        self,
        table: RunTable,
        progress: Progress,
        source: Predictor | None = None,
        borrowed: Sequence[str] = (ELAPSED, MEMORY),
    ) -> Predictor:
        return learn(
            self.app,
            table,
            policy=self.policy,
            candidates=self.candidates,
            seed=self.seed,
            progress=progress,
            source=source,
            borrowed=borrowed,
        )

    def _telling(self, lender: Lender) -> Progress:
        return lambda step: self.progress(f"with {lender.name}, {step}")

    def _pool(self, lender: Lender) -> Predictor:
        draw = np.random.default_rng(self.seed).permutation(len(lender.table))
        lent = lender.table.take(np.sort(draw[:_MOST_LENT]))
        pooled = pool_tables(self.table, lent, names=(self.app.name, lender.name))
        predictor = self._learn(pooled, self._telling(lender))
        judgements = {name: self._own_rows(judged) for name, judged in predictor.card.judgements.items()}
        return replace(
            predictor,
            encoder=_with_usual(predictor.encoder, fit_encoder(self.table.columns), self.app.name),
            card=replace(predictor.card, judgements=judgements),
        )

    def _own_rows(self, judgement: Judgement) -> Judgement:
        """Counts as its readers mean them: runs of this app."""
        table = self.table
        full, stopped = int(table.full_scale.sum()), int(table.censored.sum())
        return replace(judgement, rows=len(table), full_scale_rows=full, censored_rows=stopped)

    def _hurts_memory(self, predictor: Predictor, alone: Predictor) -> bool:
        own, other = alone.card.judgements.get(MEMORY), predictor.card.judgements.get(MEMORY)
        if own is None:
            return False
        weigh = get_policy(self.policy)
        return other is None or weigh(other.expected) > weigh(own.expected)


def pool_tables(own: RunTable, lent: RunTable, *, names: tuple[str, str]) -> RunTable:
    """Both apps' runs as one table; the lent ones teach as scaled-down runs do, and are never judged by."""
    enough = len(np.unique(own.group[own.full_scale & ~own.censored])) >= _LEAST_FULL_SCALE
    columns = {
        name: _joined(own.columns.get(name), lent.columns.get(name), len(own), len(lent))
        for name in dict.fromkeys((*own.columns, *lent.columns))
    }
    unknown = np.full(len(own), np.nan), np.full(len(lent), np.nan)
    phases = {
        name: np.concatenate([own.phases.get(name, unknown[0]), lent.phases.get(name, unknown[1])])
        for name in dict.fromkeys((*own.phases, *lent.phases))
    }
    return RunTable(
        columns={**columns, _APP: np.repeat(np.array(names, dtype=object), [len(own), len(lent)])},
        elapsed_s=np.concatenate([own.elapsed_s, lent.elapsed_s]),
        peak_memory_bytes=np.concatenate([own.peak_memory_bytes, lent.peak_memory_bytes]),
        phases=phases,
        full_scale=np.concatenate([own.full_scale | (not enough), np.zeros(len(lent), dtype=bool)]),
        censored=np.concatenate([own.censored, lent.censored]),
        group=np.concatenate([own.group, lent.group + own.group.max() + 1]),
        run_ids=own.run_ids + lent.run_ids,
    )


def _joined(own: Column | None, lent: Column | None, own_rows: int, lent_rows: int) -> Column:
    first = [None] * own_rows if own is None else own.tolist()
    second = [None] * lent_rows if lent is None else lent.tolist()
    return build_column([*first, *second])


def _with_usual(encoder: Encoder, own: Encoder, name: str) -> Encoder:
    """What a question lacks is as in most of the own runs."""
    usual = {field.name: field.fill for field in own.fields} | {_APP: name}
    fields = (
        replace(field, fill=usual[field.name]) if _is_alike(field.fill, usual.get(field.name)) else field
        for field in encoder.fields
    )
    return replace(encoder, fields=tuple(fields))


def _is_alike(fill: float | str, other: float | str | None) -> bool:
    return other is not None and isinstance(fill, str) == isinstance(other, str)


def _choose(options: Sequence[_Option], *, policy: str, own: int) -> Predictor:
    """The best by the policy on the own unseen runs; of equals, going alone."""
    weigh = get_policy(policy)
    alone = options[0]
    actual = np.array([measured for measured, _ in alone.judgement.pairs])
    options = [option for option in options if _is_judged_by(option, actual)]
    trials = [option.trial(number) for number, option in enumerate(options)]
    winner = options[int(pick(trials, actual, weigh).recipe.family)]
    warnings = tuple(_refusals(options, winner, policy))
    if winner.lender is None:
        return _with_warnings(alone.predictor, warnings)
    folds = np.arange(len(actual)) % _FOLDS
    held_out = without_the_chooser(trials, actual, folds, weigh)
    expected = score(actual, held_out)
    borrowing = Borrowing(
        source=winner.lender.name,
        way=winner.way,
        alone=alone.judgement.expected,
        borrowed=winner.judgement.expected,
        configurations=own,
    )
    pairs = tuple(zip(actual.tolist(), held_out.tolist(), strict=True))
    judgement = replace(winner.judgement, expected=expected, pairs=pairs)
    return _with_borrowing(winner.predictor, judgement, borrowing, warnings)


def _is_judged_by(option: _Option, actual: Floats) -> bool:
    return np.array_equal([measured for measured, _ in option.judgement.pairs], actual)


def _refusals(options: Sequence[_Option], winner: _Option, policy: str) -> Iterator[PredictionWarning]:
    """The best that each lender had to offer, where that was not taken."""
    weigh = get_policy(policy)
    alone = options[0].judgement.expected
    names = dict.fromkeys(option.lender.name for option in options if option.lender is not None)
    for name in names:
        if winner.lender is not None and winner.lender.name == name:
            continue
        offered = [option for option in options if option.lender is not None and option.lender.name == name]
        best = min((option.judgement.expected for option in offered), key=weigh)
        text = f"does not borrow from {name}: {_compare(alone, best, policy)}{_why_not(alone, best, weigh, winner)}"
        yield build_warning("not-transferred", text, source=name)


def _why_not(alone: Scores, best: Scores, weigh: Callable[[Scores], float], winner: _Option) -> str:
    if winner.lender is not None or weigh(best) >= weigh(alone):
        return ""
    return ", which chance may explain"


def describe_borrowing(borrowing: Borrowing, policy: str) -> str:
    """In words: from whom, in which way, and what that brought."""
    how = "its predictions, scaled" if borrowing.way == SCALED else "its runs, learned together with the own ones"
    if borrowing.alone is None:
        told = _tell(borrowing.borrowed, policy)
        few = f"{borrowing.configurations} configurations, too few to go alone"
        return f"borrows from {borrowing.source} ({how}): {told} on the own {few}, each left out in turn"
    return f"borrows from {borrowing.source} ({how}): {_compare(borrowing.alone, borrowing.borrowed, policy)}"


def _compare(alone: Scores, borrowed: Scores, policy: str) -> str:
    words = _tell(alone, policy), _tell(borrowed, policy)
    return f"{words[0]} alone, {words[1].removeprefix('error ')} with it"


def _tell(scores: Scores, policy: str) -> str:
    if policy == DEFAULT_POLICY:
        return f"error {round(scores.mape, 2):.3g} %"
    return f"{policy} {get_policy(policy)(scores):.3g}"


def _with_borrowing(
    predictor: Predictor, judgement: Judgement, borrowing: Borrowing, warnings: Sequence[PredictionWarning]
) -> Predictor:
    card = predictor.card
    judged = replace(card, judgements={**card.judgements, ELAPSED: judgement}, borrowed=borrowing)
    text = describe_borrowing(borrowing, card.policy)
    transferred = build_warning("transferred", text, source=borrowing.source, way=borrowing.way)
    return _with_warnings(replace(predictor, card=judged), (transferred, *warnings))


def _with_warnings(predictor: Predictor, warnings: Sequence[PredictionWarning]) -> Predictor:
    card = predictor.card
    return replace(predictor, card=replace(card, warnings=(*warnings, *card.warnings)))


def _learn_few(app: App, table: RunTable, lenders: Sequence[Lender], *, policy: str) -> Predictor:
    """One factor on a lender's predictions, where that is clearly nearer than the mean of the own runs.

    Each configuration in turn is left out of the factor, and judged.
    """
    own = len(np.unique(table.group[~table.censored]))
    if own < NEED_TO_BORROW or not lenders:
        raise NotEnoughRunsError(app.name, have=own, need=NEED_TO_BORROW if lenders else NEED)
    encoder, ones = fit_encoder(table.columns), np.ones(len(table))
    alone = _scale(ELAPSED, table.elapsed_s, ones, table, encoder)
    lent = [lender.predictor.points(table.columns, len(table)) for lender in lenders]
    scaled = [_scale(ELAPSED, table.elapsed_s, points[ELAPSED], table, encoder) for points in lent]
    chosen = _find_clearly_better(alone, scaled, policy)
    if chosen is None:
        raise NotEnoughRunsError(app.name, have=own, need=NEED)
    lender, parts = lenders[chosen], {ELAPSED: scaled[chosen]}
    memory = _find_memory(table, lent[chosen], encoder, policy)
    parts |= {MEMORY: memory} if memory else {}
    encoder = lend_ranges(encoder, lender.predictor.encoder)
    judgements = {name: part.judgement(policy, table) for name, part in parts.items()}
    predictor = Predictor(
        encoder=encoder,
        models={name: part.fit(encoder, table) for name, part in parts.items()},
        spreads={name: part.spread(lender.predictor.card.judgements[name]) for name, part in parts.items()},
        formula=None,
        units=Units(),
        source=lender.predictor,
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
    borrowing = Borrowing(source=lender.name, way=SCALED, alone=None, borrowed=expected, configurations=own)
    return _with_borrowing(predictor, judgements[ELAPSED], borrowing, ())


def _find_memory(table: RunTable, lent: Columns, encoder: Encoder, policy: str) -> "_Scaled | None":
    y = table.peak_memory_bytes
    known = np.isfinite(y) & (y > 0) & ~table.censored
    if MEMORY not in lent or len(np.unique(table.group[known])) < NEED_TO_BORROW:
        return None
    alone, scaled = (_scale(MEMORY, y, unit, table, encoder) for unit in (np.ones(len(table)), lent[MEMORY]))
    return None if _find_clearly_better(alone, [scaled], policy) is None else scaled


def _find_clearly_better(alone: "_Scaled", scaled: Sequence["_Scaled"], policy: str) -> int | None:
    """Which of them beats the mean of the own runs by so much that few runs are proof of it."""
    weigh = get_policy(policy)
    trials = [part.trial(number) for number, part in enumerate((alone, *scaled))]
    best = pick(trials, alone.actual, weigh)
    errors = [weigh(score(alone.actual, trial.predictions)) for trial in (best, trials[0])]
    return int(best.recipe.family) - 1 if errors[0] <= _CLEARLY * errors[1] and best is not trials[0] else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scaled:
    """A factor, and what it said of configurations left out of it."""

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
        recipe = _Way(family=str(number), order=min(number, 1))
        return Trial(recipe=recipe, fitted=FactorRecipe().fit(self.data), predictions=self.held_out)

    def fit(self, encoder: Encoder, table: RunTable) -> FittedRecipe:
        """The factor as a model that reads the encoder's columns."""
        like = np.zeros((len(self.data), len(encoder.names)))
        return FactorRecipe().fit(replace(self.data, X=like))

    def spread(self, source: Judgement) -> Spread:
        """Not narrower than the source's own, and wider because so few say how wide."""
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
            why="factor: the only one that so few runs can teach",
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
