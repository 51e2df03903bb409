"""HARP's custom estimate: the formula of phases against the model of the whole, on the same unseen rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.entities.formula import Formula
from foretell.entities.learned import Judgement, Standing
from foretell.features.table import RunTable
from foretell.models.between import Between
from foretell.models.intervals import Spread
from foretell.models.metrics import score
from foretell.models.selection import Selected, get_policy

Floats: TypeAlias = NDArray[np.float64]

CUSTOM = "custom"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What was chosen for one quantity: for values as measured, and for values in between."""

    selected: Selected
    between: Between | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """How the formula did. ``between`` is ``None`` where it could not be judged in between."""

    judgement: Judgement
    spread: Spread
    wins: bool
    between: Spread | None
    wins_between: bool


def judge_custom(
    formula: str, table: RunTable, elapsed: Part, phases: Mapping[str, Part], *, policy: str
) -> Custom | None:
    """The formula's standing beside the candidates; ``None`` if some judged runs lack a phase."""
    rows = elapsed.selected.judged
    held_out = {name: _spread_out(part.selected, len(table))[rows] for name, part in phases.items()}
    whole = _compose(formula, table, rows, held_out)
    if whole is None:
        return None
    actual, weigh = table.elapsed_s[rows], get_policy(policy)
    scores, basic = score(actual, whole), elapsed.selected.judgement
    line = Standing(
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
    between, wins_between = _judge_between(formula, table, elapsed.between, phases, policy)
    return Custom(
        judgement=judgement,
        spread=Spread.learn(actual, whole, widths),
        wins=wins,
        between=between,
        wins_between=wins_between,
    )


def _judge_between(
    formula: str, table: RunTable, elapsed: Between | None, phases: Mapping[str, Part], policy: str
) -> tuple[Spread | None, bool]:
    """The same where values were left out; the same rows must have been left out for the whole and for each phase."""
    parts = {name: part.between for name, part in phases.items()}
    if elapsed is None or any(part is None or not np.array_equal(part.rows, elapsed.rows) for part in parts.values()):
        return None, False
    held_out = {name: part.held_out for name, part in parts.items() if part is not None}
    whole = _compose(formula, table, elapsed.rows, held_out)
    if whole is None:
        return None, False
    actual, weigh = table.elapsed_s[elapsed.rows], get_policy(policy)
    return Spread.learn(actual, whole, elapsed.widths), weigh(score(actual, whole)) < weigh(elapsed.expected)


def _spread_out(selected: Selected, rows: int) -> Floats:
    values = np.full(rows, np.nan)
    values[selected.judged] = selected.held_out
    return values


def _compose(formula: str, table: RunTable, rows: NDArray[np.intp], held_out: Mapping[str, Floats]) -> Floats | None:
    columns = {name: column[rows] for name, column in table.columns.items()}
    with np.errstate(all="ignore"):  # what is not finite is seen to below
        whole = np.broadcast_to(Formula(formula).evaluate({**columns, **held_out}), len(rows))
    return np.asarray(whole) if (np.isfinite(whole) & (whole > 0)).all() else None
