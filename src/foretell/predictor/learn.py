"""From a table of runs to a predictor."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.entities.app import App
from foretell.entities.formula import Formula
from foretell.entities.learned import Judgement, ModelCard, Standing
from foretell.errors import NotEnoughRunsError
from foretell.features.encode import fit_encoder
from foretell.features.table import RunTable
from foretell.models.intervals import Spread
from foretell.models.metrics import score
from foretell.models.recipes import Recipe, TrainingSet, list_recipes
from foretell.models.selection import Selected, get_policy, select
from foretell.predictor.predictor import CUSTOM, ELAPSED, MEMORY, Predictor

Floats: TypeAlias = NDArray[np.float64]
Progress: TypeAlias = Callable[[str], None]

_NEED = 5
_MOST_ROWS = 20_000  # a sample of a long history says the same, and building stays quick
_PHASE_RECIPES = (Recipe(family="law"), Recipe(family="boosting"), Recipe(family="linear"))


def learn(
    app: App, table: RunTable, *, policy: str = "mae", seed: int = 0, progress: Progress = lambda _: None
) -> Predictor:
    """A predictor of time, memory and phases, each by the candidate that does best on full-scale runs it never saw.

    Raises:
        NotEnoughRunsError: if fewer than five configurations ran to their end.
        NotFoundError: if there is no such policy.
    """
    get_policy(policy)
    table, notes = _sampled(table, seed=seed)
    have = len(np.unique(table.group[~table.censored]))
    if have < _NEED:
        raise NotEnoughRunsError(app.name, have=have, need=_NEED)
    encoder = fit_encoder(table.columns)
    trainer = _Trainer(
        X=encoder.encode(table.columns, len(table)), table=table, policy=policy, seed=seed, progress=progress
    )
    elapsed = trainer.select(ELAPSED, table.elapsed_s)
    memory = trainer.find(MEMORY, table.peak_memory_bytes)
    phases = trainer.select_phases(app)
    custom = _try_custom(app, table, elapsed, phases, policy) if phases else None
    parts = {ELAPSED: elapsed, **({MEMORY: memory} if memory else {}), **phases}
    spreads = {name: selected.spread for name, selected in parts.items()}
    judgements = {ELAPSED: custom.judgement if custom else elapsed.judgement}
    if custom:
        spreads[CUSTOM] = custom.spread
    if memory:
        judgements[MEMORY] = memory.judgement
    return Predictor(
        encoder=encoder,
        models={name: selected.fitted for name, selected in parts.items()},
        spreads=spreads,
        formula=app.estimate if custom else None,
        card=ModelCard(
            app=app.name,
            policy=policy,
            judgements=judgements,
            uses_custom=custom is not None and custom.wins,
            notes=(*encoder.notes, *notes),
            columns=encoder.names,
        ),
    )


def _sampled(table: RunTable, *, seed: int) -> tuple[RunTable, tuple[str, ...]]:
    if len(table) <= _MOST_ROWS:
        return table, ()
    rows = np.sort(np.random.default_rng(seed).choice(len(table), _MOST_ROWS, replace=False))
    note = f"learned from a sample of {_MOST_ROWS:,} of {len(table):,} runs"
    return table.take(rows), (note,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trainer:
    X: Floats
    table: RunTable
    policy: str
    seed: int
    progress: Progress

    def select(self, quantity: str, y: Floats, recipes: Sequence[Recipe] | None = None) -> Selected:
        known = np.isfinite(y) & (y > 0)
        table = self.table
        data = TrainingSet(X=self.X, y=y, full_scale=table.full_scale, censored=table.censored, group=table.group).take(
            known
        )
        chosen = recipes or list_recipes(full_scale=bool(data.full_scale.any() and not data.full_scale.all()))
        selected = select(data, chosen, quantity=quantity, policy=self.policy, seed=self.seed, progress=self.progress)
        return replace(selected, judged=np.flatnonzero(known)[selected.judged])

    def find(self, quantity: str, y: Floats, recipes: Sequence[Recipe] | None = None) -> Selected | None:
        """Nothing where too few runs measured it."""
        known = np.isfinite(y) & (y > 0) & ~self.table.censored
        return self.select(quantity, y, recipes) if len(np.unique(self.table.group[known])) >= _NEED else None

    def select_phases(self, app: App) -> dict[str, Selected]:
        """A model for each phase of the app's formula; none if one of them was not measured often enough."""
        if app.estimate is None:
            return {}
        names = Formula(app.estimate).names
        phases = sorted(names & {phase.name for phase in app.phases})
        if not self._has_numbers(names - set(phases)):
            return {}
        whole = np.where(self.table.censored, np.nan, 1.0)  # what a stopped run printed is no phase of a whole one
        unknown = np.full(len(self.table), np.nan)
        found = {name: self.find(name, self.table.phases.get(name, unknown) * whole, _PHASE_RECIPES) for name in phases}
        return {name: selected for name, selected in found.items() if selected} if all(found.values()) else {}

    def _has_numbers(self, names: Iterable[str]) -> bool:
        columns = self.table.columns
        return all(name in columns and columns[name].dtype != object for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Custom:
    judgement: Judgement
    spread: Spread
    wins: bool


def _try_custom(
    app: App, table: RunTable, elapsed: Selected, phases: Mapping[str, Selected], policy: str
) -> _Custom | None:
    """The formula of phases against the model of the whole, on the same unseen rows."""
    assert app.estimate is not None
    rows = elapsed.judged
    held_out = {name: np.full(len(table), np.nan) for name in phases}
    for name, selected in phases.items():
        held_out[name][selected.judged] = selected.held_out
    with np.errstate(all="ignore"):  # what is not finite is seen to below
        whole = np.broadcast_to(Formula(app.estimate).evaluate({**table.columns, **held_out}), len(table))[rows]
    if not (np.isfinite(whole) & (whole > 0)).all():
        return None  # some judged runs lack a phase: the two cannot be compared
    actual = table.elapsed_s[rows]
    scores, weigh = score(actual, whole), get_policy(policy)
    line = Standing(
        candidate=f"custom: {app.estimate}", family=CUSTOM, mix="phases", adjustment=None, scores=scores, fit_s=0.0
    )
    basic = elapsed.judgement
    wins = weigh(scores) < weigh(basic.expected)
    board = tuple(sorted((line, *basic.leaderboard), key=lambda standing: weigh(standing.scores)))
    judgement = replace(basic, leaderboard=board)
    if wins:
        judgement = replace(
            judgement,
            winner=line.candidate,
            why=f"the phases together are nearer by {policy} than the best model of the whole, {basic.winner}",
            expected=scores,
            pairs=tuple(zip(actual.tolist(), whole.tolist(), strict=True)),
        )
    return _Custom(judgement=judgement, spread=Spread.learn(actual, whole), wins=wins)
