"""Transfer from another app to one with few runs: of its predictions, scaled, or of its runs; only where that helps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.app import App
from foretell.core.model_card import Judgement, Scores, Transfer
from foretell.core.warning import PredictionWarning, build_warning
from foretell.runtimes.encoding import Encoder, fit_encoder
from foretell.runtimes.few_runs import SCALED, TransferRecipe, fit_few
from foretell.runtimes.fit import NEED, Progress, fit_predictor
from foretell.runtimes.metrics import DEFAULT_POLICY, get_policy, score
from foretell.runtimes.predictor import ELAPSED, MEMORY, Predictor
from foretell.runtimes.recipes import DEFAULT
from foretell.runtimes.run_table import MACHINE_PREFIX, Column, Columns, RunTable, build_column
from foretell.runtimes.selection import Trial, pick, predict_by_choice

Floats: TypeAlias = NDArray[np.float64]

POOLED = "pooled"
_ALONE = "alone"
_APP = f"{MACHINE_PREFIX}app"  # named like a fact of the machine, which is not a parameter of configurations
_MOST_SOURCES = 3  # that are judged in full, of those found in the store
_MOST_POOLED = 500  # rows of the source; more of them cost time and change little
_LEAST_FULL_SCALE = 3
_FOLDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceApp:
    """Another app: its predictor and the runs it was fitted to."""

    name: str
    predictor: Predictor
    table: RunTable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """A predictor, the method it was fitted by, and the source of the transfer."""

    method: str
    predictor: Predictor
    source: SourceApp | None = None

    @property
    def judgement(self) -> Judgement:
        return self.predictor.card.judgements[ELAPSED]

    def trial(self, number: int) -> Trial:
        predictions = np.array([predicted for _, predicted in self.judgement.pairs])
        fitted = self.predictor.models[ELAPSED]
        return Trial(
            recipe=TransferRecipe(family=str(number), order=min(number, 1)), fitted=fitted, predictions=predictions
        )


def fit_with_transfer(
    app: App,
    table: RunTable,
    sources: Sequence[SourceApp],
    *,
    policy: str = DEFAULT_POLICY,
    candidates: str = DEFAULT,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Predictor:
    """The predictor fitted to the app's own runs, or with one of the sources where that is better on unseen runs.

    Raises:
        NotEnoughRunsError: There are fewer than two configurations; or fewer than five, and no source helps.
        NotFoundError: The policy or the list of candidates is unknown.
    """
    get_policy(policy)
    own = len(np.unique(table.group[~table.censored]))
    if own < NEED:
        predictor, transfer = fit_few(app, table, [(one.name, one.predictor) for one in sources], policy=policy)
        return _add_transfer(predictor, predictor.card.judgements[ELAPSED], transfer, ())
    fitter = _Fitter(app=app, table=table, policy=policy, candidates=candidates, seed=seed, progress=progress)
    alone = _Option(method=_ALONE, predictor=fitter.fit_alone())
    options = [alone, *(option for source in sources for option in fitter.fit_with(source, alone))]
    return _choose(options, policy=policy, own=own)


def rank_sources(table: RunTable, sources: Sequence[SourceApp]) -> list[SourceApp]:
    """The sources whose times are most nearly proportional to the app's own, nearest first."""
    known = np.flatnonzero(~table.censored)
    rows = table.take(known)

    def find_error(source: SourceApp) -> float:
        logs = np.log(rows.elapsed_s / source.predictor.points(rows.columns, len(rows))[ELAPSED])
        return float(np.mean(np.abs(logs - np.median(logs))))

    return sorted(sources, key=find_error)[:_MOST_SOURCES] if len(known) else []


def is_similar(table: RunTable, other: RunTable) -> bool:
    """Whether a column of the same name varies in the runs of both."""
    return bool(_varying(table.columns) & _varying(other.columns))


def _varying(columns: Columns) -> set[str]:
    chosen = {name: column for name, column in columns.items() if not name.startswith(MACHINE_PREFIX)}
    return {name for name, column in chosen.items() if len(set(column[column == column].tolist())) > 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitter:
    app: App
    table: RunTable
    policy: str
    candidates: str
    seed: int
    progress: Progress

    def fit_alone(self) -> Predictor:
        return self._fit(self.table, self.progress)

    def fit_with(self, source: SourceApp, alone: _Option) -> Iterator[_Option]:
        """What the source makes possible, as far as it can be compared with the app's own runs alone."""
        scaled = self._fit(self.table, self._report(source), source=source.predictor)
        if self._hurts_memory(scaled, alone.predictor):
            scaled = self._fit(self.table, self._report(source), source=source.predictor, transferred=(ELAPSED,))
        yield _Option(method=SCALED, predictor=scaled, source=source)
        pooled = self._pool(source)
        if not self._hurts_memory(pooled, alone.predictor):
            yield _Option(method=POOLED, predictor=pooled, source=source)

    def _fit(
        self,
        table: RunTable,
        progress: Progress,
        source: Predictor | None = None,
        transferred: Sequence[str] = (ELAPSED, MEMORY),
    ) -> Predictor:
        return fit_predictor(
            self.app,
            table,
            policy=self.policy,
            candidates=self.candidates,
            seed=self.seed,
            progress=progress,
            source=source,
            transferred=transferred,
        )

    def _report(self, source: SourceApp) -> Progress:
        return lambda step: self.progress(f"with {source.name}, {step}")

    def _pool(self, source: SourceApp) -> Predictor:
        draw = np.random.default_rng(self.seed).permutation(len(source.table))
        sample = source.table.take(np.sort(draw[:_MOST_POOLED]))
        pooled = pool_tables(self.table, sample, names=(self.app.name, source.name))
        predictor = self._fit(pooled, self._report(source))
        judgements = {name: self._count_own_rows(judged) for name, judged in predictor.card.judgements.items()}
        return replace(
            predictor,
            encoder=_with_usual(predictor.encoder, fit_encoder(self.table.columns), self.app.name),
            card=replace(predictor.card, judgements=judgements),
        )

    def _count_own_rows(self, judgement: Judgement) -> Judgement:
        """The judgement with counts of this app's runs only."""
        table = self.table
        full, stopped = int(table.full_scale.sum()), int(table.censored.sum())
        return replace(judgement, rows=len(table), full_scale_rows=full, censored_rows=stopped)

    def _hurts_memory(self, predictor: Predictor, alone: Predictor) -> bool:
        own, other = alone.card.judgements.get(MEMORY), predictor.card.judgements.get(MEMORY)
        if own is None:
            return False
        weigh = get_policy(self.policy)
        return other is None or weigh(other.expected) > weigh(own.expected)


def pool_tables(own: RunTable, other: RunTable, *, names: tuple[str, str]) -> RunTable:
    """Both apps' runs as one table; the other's are used for fitting like scaled-down runs, and never for judging."""
    enough = len(np.unique(own.group[own.full_scale & ~own.censored])) >= _LEAST_FULL_SCALE
    columns = {
        name: _joined(own.columns.get(name), other.columns.get(name), len(own), len(other))
        for name in dict.fromkeys((*own.columns, *other.columns))
    }
    unknown = np.full(len(own), np.nan), np.full(len(other), np.nan)
    phases = {
        name: np.concatenate([own.phases.get(name, unknown[0]), other.phases.get(name, unknown[1])])
        for name in dict.fromkeys((*own.phases, *other.phases))
    }
    return RunTable(
        columns={**columns, _APP: np.repeat(np.array(names, dtype=object), [len(own), len(other)])},
        elapsed_s=np.concatenate([own.elapsed_s, other.elapsed_s]),
        peak_memory_bytes=np.concatenate([own.peak_memory_bytes, other.peak_memory_bytes]),
        phases=phases,
        full_scale=np.concatenate([own.full_scale | (not enough), np.zeros(len(other), dtype=bool)]),
        censored=np.concatenate([own.censored, other.censored]),
        group=np.concatenate([own.group, other.group + own.group.max() + 1]),
        run_ids=own.run_ids + other.run_ids,
    )


def _joined(own: Column | None, other: Column | None, own_rows: int, other_rows: int) -> Column:
    first = [None] * own_rows if own is None else own.tolist()
    second = [None] * other_rows if other is None else other.tolist()
    return build_column([*first, *second])


def _with_usual(encoder: Encoder, own: Encoder, name: str) -> Encoder:
    """The encoder with defaults as in most of the app's own runs."""
    usual = {field.name: field.fill for field in own.fields} | {_APP: name}
    fields = (
        replace(field, fill=usual[field.name]) if _is_alike(field.fill, usual.get(field.name)) else field
        for field in encoder.fields
    )
    return replace(encoder, fields=tuple(fields))


def _is_alike(fill: float | str, other: float | str | None) -> bool:
    return other is not None and isinstance(fill, str) == isinstance(other, str)


def _choose(options: Sequence[_Option], *, policy: str, own: int) -> Predictor:
    """The best by the policy on unseen runs of the app; of equals, the one without transfer."""
    weigh = get_policy(policy)
    alone = options[0]
    actual = np.array([measured for measured, _ in alone.judgement.pairs])
    options = [option for option in options if _is_judged_by(option, actual)]
    trials = [option.trial(number) for number, option in enumerate(options)]
    winner = options[int(pick(trials, actual, weigh).recipe.family)]
    warnings = tuple(_list_refusals(options, winner, policy))
    if winner.source is None:
        return _add_warnings(alone.predictor, warnings)
    folds = np.arange(len(actual)) % _FOLDS
    held_out = predict_by_choice(trials, actual, folds, weigh)
    transfer = Transfer(
        source=winner.source.name,
        method=winner.method,
        alone=alone.judgement.expected,
        with_source=winner.judgement.expected,
        configurations=own,
    )
    pairs = tuple(zip(actual.tolist(), held_out.tolist(), strict=True))
    judgement = replace(winner.judgement, expected=score(actual, held_out), pairs=pairs)
    return _add_transfer(winner.predictor, judgement, transfer, warnings)


def _is_judged_by(option: _Option, actual: Floats) -> bool:
    return np.array_equal([measured for measured, _ in option.judgement.pairs], actual)


def _list_refusals(options: Sequence[_Option], winner: _Option, policy: str) -> Iterator[PredictionWarning]:
    """The best result with each source that is not used."""
    weigh = get_policy(policy)
    alone = options[0].judgement.expected
    names = dict.fromkeys(option.source.name for option in options if option.source is not None)
    for name in names:
        if winner.source is not None and winner.source.name == name:
            continue
        tried = [option for option in options if option.source is not None and option.source.name == name]
        best = min((option.judgement.expected for option in tried), key=weigh)
        by_chance = winner.source is None and weigh(best) < weigh(alone)
        reason = ", a difference that may be chance" if by_chance else ""
        text = f"not transferred from {name}: {_compare(alone, best, policy)}{reason}"
        yield build_warning("not-transferred", text, source=name)


def describe_transfer(transfer: Transfer, policy: str) -> str:
    """A sentence with the source, the method, and the errors with and without the transfer."""
    how = "its predictions, scaled" if transfer.method == SCALED else "its runs, fitted together with the app's own"
    if transfer.alone is None:
        error = _render_error(transfer.with_source, policy)
        few = f"{transfer.configurations} configurations of the app, too few to fit a model to"
        return f"transferred from {transfer.source} ({how}): {error} on the {few}, each left out in turn"
    return f"transferred from {transfer.source} ({how}): {_compare(transfer.alone, transfer.with_source, policy)}"


def _compare(alone: Scores, with_source: Scores, policy: str) -> str:
    errors = _render_error(alone, policy), _render_error(with_source, policy)
    return f"{errors[0]} without, {errors[1].removeprefix('error ')} with it"


def _render_error(scores: Scores, policy: str) -> str:
    if policy == DEFAULT_POLICY:
        return f"error {round(scores.mape, 2):.3g} %"
    return f"{policy} {get_policy(policy)(scores):.3g}"


def _add_transfer(
    predictor: Predictor, judgement: Judgement, transfer: Transfer, warnings: Sequence[PredictionWarning]
) -> Predictor:
    card = predictor.card
    judged = replace(card, judgements={**card.judgements, ELAPSED: judgement}, transfer=transfer)
    text = describe_transfer(transfer, card.policy)
    warning = build_warning("transferred", text, source=transfer.source, method=transfer.method)
    return _add_warnings(replace(predictor, card=judged), (warning, *warnings))


def _add_warnings(predictor: Predictor, warnings: Sequence[PredictionWarning]) -> Predictor:
    card = predictor.card
    return replace(predictor, card=replace(card, warnings=(*warnings, *card.warnings)))
