"""Chooses the runs expected to narrow prediction intervals most for their time, until that no longer pays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.campaigns.campaign_plan import Ending
from foretell.core.app import App, Parameter, ParameterType, Scale, Value
from foretell.core.run import Allocation, Run, RunSpec
from foretell.runtimes.encoding import fit_encoder
from foretell.runtimes.regressors import SMALLEST, GaussianProcessRunRegressor
from foretell.runtimes.run_table import build_columns, build_table

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

LEAST_NARROWING, FOR_SHARE = 0.02, 0.05  # a round pays if it narrows by 2 % for 5 % of the remaining cost
_SIDE = 1.6449  # standard deviations to either bound of a 90 % interval
_WIDEST = 3.0  # natural logarithm of the largest half-width that is distinguished: a factor of twenty
_TARGETS = 256
_MAX_OPTIONS = 1000  # compared in a round
_MAX_ROWS = 250  # runs to which the Gaussian process is fitted
_SPARE_RUNS = 5  # in addition to one for each column, before a process is fitted
_VALUES = 3  # of a number, before a process can extrapolate it
_GROWTH = 8  # a round is an eighth of the runs made,
_LONGEST_ROUND = 16  # but at most so many,
_SHORTLIST = 4  # chosen from so many options for each
_EARLIER = 4  # it ends only if it would also have ended without the last quarter of the runs
_MOSTLY = 0.5  # share of the variance above which noise dominates


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The next runs, best first; ``ending`` is why they are not needed, if so.

    ``width`` is the mean half-width of the 90 % interval as a share of the prediction, now and expected after these
    runs; ``None`` before a process could be fitted. ``left_s`` is the expected time of all options together.
    """

    specs: tuple[RunSpec, ...] = ()
    ending: Ending | None = None
    left_s: float | None = None
    width: float | None = None
    width_after: float | None = None


def list_targets(app: App, *, seed: int = 0) -> list[RunSpec]:
    """Return configurations drawn from the app's targets, or from its full-scale values where it has none."""
    draw = np.random.default_rng(seed)
    drawn = (_draw_target(app, draw) for _ in range(_TARGETS))
    return list({spec.configuration: spec for spec in drawn}.values())


def _draw_target(app: App, draw: np.random.Generator) -> RunSpec:
    resources = app.full_scale_resources
    return RunSpec(
        app=app.name,
        parameters={parameter.name: _draw_value(parameter, draw) for parameter in app.parameters},
        allocation=Allocation(
            cores=resources.cores[int(draw.integers(len(resources.cores)))],
            gpus=resources.gpus[int(draw.integers(len(resources.gpus)))],
            nodes=resources.nodes[int(draw.integers(len(resources.nodes)))],
        ),
    )


def _draw_value(parameter: Parameter, draw: np.random.Generator) -> Value:
    target = parameter.target or parameter.full_scale
    if target.low is None or target.high is None:
        return target.values[int(draw.integers(len(target.values)))]
    if parameter.type is ParameterType.INTEGER:
        return int(draw.integers(int(target.low), int(target.high) + 1))
    return float(draw.uniform(target.low, target.high))


def propose(
    runs: Sequence[Run],
    options: Sequence[RunSpec],
    targets: Sequence[RunSpec],
    *,
    pending: Sequence[RunSpec] = (),
    at_once: int = 1,
    budget_s: float | None = None,
    until: float | None = None,
) -> Proposal:
    """Return the next round: as many runs as can be made at once, or an eighth of those made.

    ``runs`` are all that ended, in order; ``pending`` ones are being made. While some columns have few values, short
    runs with new values are proposed. No configuration is proposed twice, unless noise dominates the variance.
    It ends when the width is at most ``until``, or a round no longer pays: by all runs, and also by those without the
    last quarter, because a fit to few runs may be overconfident.
    """
    choice = _Choice.prepare(runs, options, targets, pending)
    if start := choice.pick_start():
        return Proposal(specs=tuple(choice.options[index] for index in start))
    if not choice.options or not len(choice.y):
        return Proposal(ending=Ending.NOTHING_LEFT)
    made = len(choice.y)
    now = choice.fit_first(made)
    proposal = now.propose(at_once=at_once, budget_s=budget_s, until=until)
    if proposal.ending not in (Ending.NARROW_ENOUGH, Ending.NO_LONGER_PAYS):
        return proposal
    before = choice.fit_first(made - made // _EARLIER)
    if before.propose(at_once=at_once, budget_s=budget_s, until=until).ending is proposal.ending:
        return proposal
    return replace(proposal, ending=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Runs, options, targets and pending runs as rows of one encoding; each option represents ``weight`` options.

    The machine of runs is not a column: all further runs are made here.
    """

    options: list[RunSpec]
    weight: float
    repeats: Flags
    X: Floats
    y: Floats
    X_options: Floats
    X_targets: Floats
    X_pending: Floats

    @classmethod
    def prepare(
        cls, runs: Sequence[Run], options: Sequence[RunSpec], targets: Sequence[RunSpec], pending: Sequence[RunSpec]
    ) -> "_Choice":
        table = build_table(runs)
        specs = {run.id: run.spec for run in runs}
        tried = {spec.configuration for spec in (*specs.values(), *pending)}
        first = {spec.configuration: spec for spec in reversed(options)}
        kept = [first[key] for key in sorted(first)[:_MAX_OPTIONS]]  # keys are hashes, so this is a random sample
        parts = [[specs[run_id] for run_id in table.run_ids], kept, targets, pending]
        columns = build_columns([spec for part in parts for spec in part])
        matrix = fit_encoder(columns).encode(columns, sum(map(len, parts)))
        X, X_options, X_targets, X_pending = np.split(matrix, np.cumsum([len(part) for part in parts])[:-1])
        return cls(
            options=kept,
            weight=len(first) / max(len(kept), 1),
            repeats=np.array([spec.configuration in tried for spec in kept], dtype=bool),
            X=X,
            y=table.elapsed_s,
            X_options=X_options,
            X_targets=X_targets,
            X_pending=X_pending,
        )

    def pick_start(self) -> list[int]:
        """Return options to run before a process is fitted: some values of each number, each text once, short first."""
        size = _guess_sizes(self.options, self.X_options)
        free = np.argsort(size, kind="stable")
        free = free[~self.repeats[free]]
        known = np.vstack([self.X, self.X_pending])
        picked: list[int] = [] if len(known) else free[:1].tolist()
        everything = np.vstack([known, self.X_options[free]])
        while len(free) > len(picked):
            rows = np.vstack([known, self.X_options[picked]])
            fresh = _fresh_values(rows, self.X_options[free], everything)
            if not fresh.any():
                break
            picked.append(int(free[np.argmax(fresh)]))
        enough = min(self.X.shape[1] + _SPARE_RUNS - len(known), len(free))
        cheap = free[: max(len(free) // 2, enough)]
        while len(picked) < enough:
            rows = np.vstack([known, self.X_options[picked]])
            picked.append(int(cheap[np.argmax(_distances(self.X_options[cheap], rows, everything))]))
        return picked

    def fit_first(self, made: int) -> "_FittedChoice":
        """Return the options judged by a process that is fitted to the first so many runs."""
        process = GaussianProcessRunRegressor(most_rows=_MAX_ROWS).fit(self.X[:made], self.y[:made])
        return _FittedChoice(choice=self, process=process)


def _guess_sizes(specs: Sequence[RunSpec], X: Floats) -> Floats:
    """Return rough sizes of runs: the logarithm of the product of their numbers, full scale last."""
    full = np.array([spec.scale is Scale.FULL_SCALE for spec in specs], dtype=bool)
    logs: Floats = np.log(np.where(X > 0, X, 1.0)).sum(axis=1)
    return np.where(full, logs + np.abs(logs).sum(), logs)


def _fresh_values(rows: Floats, options: Floats, everything: Floats) -> NDArray[np.intp]:
    """Return for each option in how many columns it has a new value that is needed."""
    fresh = np.zeros(len(options), dtype=np.intp)
    for known, column, values in zip(rows.T, options.T, everything.T, strict=True):
        if len(np.unique(known)) < min(_VALUES, len(np.unique(values))):
            fresh += ~np.isin(column, known)
    return fresh


def _distances(options: Floats, rows: Floats, everything: Floats) -> Floats:
    """Return the distance of each option from the nearest row; columns are scaled alike, in logs where positive."""
    logs = (everything > 0).all(axis=0)

    def read(X: Floats) -> Floats:
        return np.where(logs, np.log(np.where(logs, X, 1.0)), X)

    span = np.ptp(read(everything), axis=0)
    apart = (read(options)[:, None, :] - read(rows)[None, :, :]) / np.where(span > 0, span, 1.0)
    return np.asarray(np.square(apart).sum(axis=2).min(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _FittedChoice:
    """A Gaussian process fitted to runs, and its expectation of the options."""

    choice: _Choice
    process: GaussianProcessRunRegressor

    def propose(self, *, at_once: int, budget_s: float | None, until: float | None) -> Proposal:
        choice = self.choice
        spread = self.process.spread(choice.X_targets)
        variance, width = float(np.mean(spread**2)), _width(spread)
        allowed = ~choice.repeats | (self._noise() > _MOSTLY * variance)
        if not allowed.any():
            return Proposal(ending=Ending.NOTHING_LEFT, width=width)
        seconds = self._seconds()
        costs = seconds * [spec.allocation.cores for spec in choice.options]
        left_s, left = (choice.weight * float(each[allowed].sum()) for each in (seconds, costs))
        fitting = allowed if budget_s is None else allowed & (seconds <= budget_s)
        if not fitting.any():
            return Proposal(ending=Ending.BUDGET, width=width, left_s=left_s)
        gains, picked = self._pick(costs, fitting, max(at_once, _round(len(choice.y))))
        if budget_s is not None:
            within = max(int(np.sum(np.cumsum(seconds[picked]) <= budget_s * at_once)), 1)
            gains, picked = gains[:within], picked[:within]
        remains = np.sqrt(max(1 - sum(gains) / variance, 0.0))
        pays = 1 - remains >= LEAST_NARROWING / FOR_SHARE * costs[picked].sum() / left
        ending = None if pays else Ending.NO_LONGER_PAYS
        return Proposal(
            specs=tuple(choice.options[index] for index in picked),
            ending=Ending.NARROW_ENOUGH if until is not None and width <= until else ending,
            left_s=left_s,
            width=width,
            width_after=_width(spread * remains),
        )

    def _seconds(self) -> Floats:
        """Return the expected seconds of each option: more than the median where it is uncertain."""
        X = self.choice.X_options
        return np.asarray(self.process.predict(X) * np.exp(np.minimum(self.process.spread(X) ** 2, _WIDEST) / 2))

    def _pick(self, costs: Floats, fitting: Flags, count: int) -> tuple[list[float], list[int]]:
        """Return the options that narrow most for their cost, one after the other, and by how much."""
        choice = self.choice
        gain = self.process.narrowing(choice.X_targets, choice.X_options)
        best_first = np.argsort(-gain / costs, kind="stable")
        shortlist = best_first[fitting[best_first]][: _SHORTLIST * count]
        gain, costs, X = gain[shortlist], costs[shortlist], choice.X_options[shortlist]
        for row in choice.X_pending:
            gain *= 1 - self._overlap(row, X)
        gains: list[float] = []
        picked: list[int] = []
        free = np.ones(len(shortlist), dtype=bool)
        for _ in range(min(count, len(shortlist))):
            best = int(np.argmax(np.where(free, gain / costs, -np.inf)))
            free[best] = False
            picked.append(int(shortlist[best]))
            gains.append(float(gain[best]))
            gain *= 1 - self._overlap(X[best], X)
        return gains, picked

    def _overlap(self, row: Floats, X: Floats) -> Floats:
        """Return the share of this row's information that a run of each other row would give as well."""
        known = self.process.narrowing(row[None], X)
        whole = float(self.process.narrowing(row[None], row[None])[0])
        return np.asarray(np.clip(known / max(whole, SMALLEST), 0.0, 1.0))

    def _noise(self) -> float:
        """Return the variance between runs of one configuration: the spread of a run minus that of its mean."""
        row = self.choice.X[:1]
        spread, gain = float(self.process.spread(row)[0]), float(self.process.narrowing(row, row)[0])
        return spread**2 - spread * float(np.sqrt(gain))


def _round(made: int) -> int:
    return min(max(made // _GROWTH, 1), _LONGEST_ROUND)


def _width(spread: Floats) -> float:
    return float(np.mean(np.sinh(np.minimum(_SIDE * spread, _WIDEST))))
