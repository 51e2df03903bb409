"""HARP's custom estimate: the formula of phases against the model of the whole, on the same unseen rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.formula import Formula
from foretell.core.intervals import Spread
from foretell.core.model_card import Judgement, LeaderboardRow
from foretell.runtimes.bounds import Marginal
from foretell.runtimes.extrapolation import Elsewhere
from foretell.runtimes.metrics import get_policy, score
from foretell.runtimes.predictor import CUSTOM, REMAINDER
from foretell.runtimes.run_table import RunTable
from foretell.runtimes.selection import Selected

Floats: TypeAlias = NDArray[np.float64]

_LEAST_COVERED = 0.01  # of the usual remainder, where the phases took all of the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What was chosen for one quantity: for values as measured, and by regime for others.

    ``marginal`` is what is known of a run whose configuration is not.
    """

    selected: Selected
    elsewhere: Mapping[str, Elsewhere]
    marginal: Marginal


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """How the formula did, and by regime how it did where values were left out, if that could be judged."""

    judgement: Judgement
    spread: Spread
    wins: bool
    elsewhere: Mapping[str, Spread]
    wins_elsewhere: frozenset[str]


def find_remainder(formula: str, table: RunTable) -> Floats:
    """What the formula of a run's measured phases leaves of its time; not known of any run where it leaves nothing."""
    unknown = np.full(len(table), np.nan)
    with np.errstate(all="ignore"):
        covered = np.broadcast_to(Formula(formula).evaluate({**table.columns, **table.phases}), len(table))
        left = np.where(table.censored, np.nan, table.elapsed_s - covered)
    known = left[np.isfinite(left)]
    usual = float(np.median(known)) if len(known) else 0.0
    return np.maximum(left, _LEAST_COVERED * usual) if usual > 0 else unknown


def judge_custom(
    formula: str, table: RunTable, elapsed: Part, phases: Mapping[str, Part], *, policy: str
) -> Custom | None:
    """The formula compared with the candidates; ``None`` if some judged runs lack a phase."""
    rows = elapsed.selected.judged
    held_out = {name: _spread_out(part.selected, len(table))[rows] for name, part in phases.items()}
    whole = _compose(formula, table, rows, held_out)
    if whole is None:
        return None
    actual, weigh = table.elapsed_s[rows], get_policy(policy)
    scores, basic = score(actual, whole), elapsed.selected.judgement
    line = LeaderboardRow(
        candidate=f"custom: {formula}", family=CUSTOM, mix="phases", adjustment=None, scores=scores, fit_s=0.0
    )
    wins = weigh(scores) < weigh(basic.expected)
    board = tuple(sorted((line, *basic.leaderboard), key=lambda standing: weigh(standing.scores)))
    judgement, widths = replace(basic, leaderboard=board), elapsed.selected.widths
    if wins:
        judgement = replace(
            judgement,
            winner=line.candidate,
            why=f"the phases together are nearer by {policy} than the best model of the whole, {basic.winner}, "
            f"on runs that neither's choice had seen",
            expected=scores,
            pairs=tuple(zip(actual.tolist(), whole.tolist(), strict=True)),
        )
    judged = {regime: _judge_elsewhere(formula, table, regime, elapsed, phases, policy) for regime in elapsed.elsewhere}
    known = {regime: found for regime, found in judged.items() if found is not None}
    return Custom(
        judgement=judgement,
        spread=Spread.learn(actual, whole, widths),
        wins=wins,
        elsewhere={regime: spread for regime, (spread, _) in known.items()},
        wins_elsewhere=frozenset(regime for regime, (_, wins_there) in known.items() if wins_there),
    )


def _judge_elsewhere(
    formula: str, table: RunTable, regime: str, elapsed: Part, phases: Mapping[str, Part], policy: str
) -> tuple[Spread, bool] | None:
    """The same where values were left out; the same rows must have been left out for the whole and for each phase."""
    basic = elapsed.elsewhere[regime]
    parts = {name: part.elsewhere.get(regime) for name, part in phases.items()}
    held_out = {name: part.held_out for name, part in parts.items() if part and np.array_equal(part.rows, basic.rows)}
    whole = _compose(formula, table, basic.rows, held_out) if len(held_out) == len(phases) else None
    if whole is None:
        return None
    actual, weigh = table.elapsed_s[basic.rows], get_policy(policy)
    return Spread.learn(actual, whole, basic.widths), weigh(score(actual, whole)) < weigh(basic.expected)


def _spread_out(selected: Selected, rows: int) -> Floats:
    values = np.full(rows, np.nan)
    values[selected.judged] = selected.held_out
    return values


def _compose(formula: str, table: RunTable, rows: NDArray[np.intp], held_out: Mapping[str, Floats]) -> Floats | None:
    columns = {name: column[rows] for name, column in table.columns.items()}
    with np.errstate(all="ignore"):  # what is not finite is handled below
        whole = np.broadcast_to(Formula(formula).evaluate({**columns, **held_out}), len(rows))
        whole = whole + held_out.get(REMAINDER, 0.0)
    return np.asarray(whole) if (np.isfinite(whole) & (whole > 0)).all() else None
