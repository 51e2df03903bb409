"""Scaling laws with a switch between them: another algorithm, a full cache, a limit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.model_files import read_number, read_place
from foretell.runtimes.regressors._base import SMALLEST, Floats, RunRegressor, State, check_part
from foretell.runtimes.regressors.scaling_law import ScalingLawRegressor

_LEAST_ROWS = 6  # on each side of a switch
_MOST_SWITCHES = 2  # one after the other: at most four laws
_TRIED = 3  # switches that get laws, of those that look best with straight lines in logs
_MOST_PLACES = 12  # where a column is tried to be cut
_RIDGE = 1e-3
_LEAST_GAIN = 3.0  # terms that a second straight line must be worth
_TINY = 1e-12

Switch: TypeAlias = tuple[int, float, int, int]  # column, value, the side at or below it, the side above it


class PiecewiseLawRegressor(RunRegressor):
    """A scaling law on each side of a switch in one column, where the runs show one.

    A switch pays for itself and for every term of both laws by the Bayesian information criterion.
    """

    complexity = 2.5
    laws_: list[ScalingLawRegressor]

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        self.switches_: list[Switch] = []
        self.laws_ = []
        self._grow(X, np.maximum(y, SMALLEST), weight, depth=0)

    def _grow(self, X: Floats, y: Floats, weight: Floats, depth: int) -> int:
        """The place of the law for these rows; those of switches are counted down from -1."""
        law = ScalingLawRegressor().fit(X, y, weight)
        switch = _find_switch(law, X, y, weight) if depth < _MOST_SWITCHES else None
        if switch is None:
            self.laws_.append(law)
            return len(self.laws_) - 1
        place = len(self.switches_)
        self.switches_.append((switch.column, switch.value, 0, 0))
        below = X[:, switch.column] <= switch.value
        sides = [self._grow(X[rows], y[rows], weight[rows], depth + 1) for rows in (below, ~below)]
        self.switches_[place] = (switch.column, switch.value, sides[0], sides[1])
        return -1 - place

    def _predict(self, X: Floats) -> Any:
        values = np.empty(len(X))
        waiting = [(-1 if self.switches_ else 0, np.arange(len(X)))]
        while waiting:
            place, rows = waiting.pop()
            if place >= 0:
                values[rows] = self.laws_[place].predict(X[rows]) if len(rows) else 0.0
                continue
            column, value, below, above = self.switches_[-1 - place]
            is_below = X[rows, column] <= value
            waiting += [(below, rows[is_below]), (above, rows[~is_below])]
        return values

    def to_state(self) -> State:
        return State(values={"switches": self.switches_}, parts=tuple(self.laws_))

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        for law in state.parts:
            check_part(law, ScalingLawRegressor, columns=columns)
        model = cls._start(columns)
        model.laws_ = list(state.parts)  # type: ignore[arg-type]  # checked above
        model.switches_ = _read_switches(state.values["switches"], laws=len(model.laws_), columns=columns)
        return model


def _read_switches(listed: Sequence[Any], *, laws: int, columns: int) -> list[Switch]:
    """Switches that lead to laws or to later switches, and no two of them to the same: so every path ends."""
    switches = [
        (read_place(column, columns), read_number(value), below, above) for column, value, below, above in listed
    ]
    sides = [side for switch in switches for side in switch[2:]]
    for place, switch in enumerate(switches):
        for side in switch[2:]:
            # Laws are counted from 0 up, switches from -1 down.
            if type(side) is not int or not -len(switches) <= side < laws or -1 - place <= side < 0:
                raise ValueError("switches that lead outside or back")
    if not laws or len(set(sides)) < len(sides):
        raise ValueError("switches that meet again")
    return switches


@dataclass(frozen=True, slots=True, kw_only=True)
class _Switch:
    column: int
    value: float

    def sides(self, X: Floats) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        below = X[:, self.column] <= self.value
        return below, ~below


def _find_switch(law: ScalingLawRegressor, X: Floats, y: Floats, weight: Floats) -> _Switch | None:
    """The switch by which two laws are better than one, if there is any."""
    listed = list(_list_switches(X))
    read = _read_logs(X)
    whole = _straight_loss([np.ones(len(y), dtype=bool)], read, y, weight)
    losses = np.array([_straight_loss(switch.sides(X), read, y, weight) for switch in listed])
    # Straight lines are quick to fit, and two of them that hardly say more than one are no sign of a switch.
    better = np.flatnonzero(
        len(y) * np.log(np.maximum(losses, _TINY) / max(whole, _TINY)) < -_LEAST_GAIN * np.log(len(y))
    )
    promising = [listed[place] for place in better[np.argsort(losses[better], kind="stable")][:_TRIED]]
    alone = _criterion([law], [np.ones(len(y), dtype=bool)], X, y, weight)
    price = np.log(len(y)) + np.log1p(len(listed))
    scored = [(_fit_sides(switch, X, y, weight) + price, place) for place, switch in enumerate(promising)]
    best, place = min(scored, default=(np.inf, 0))
    return promising[place] if best < alone else None


def _list_switches(X: Floats) -> Iterator[_Switch]:
    for column in range(X.shape[1]):
        values = np.unique(X[:, column])
        middles = np.sqrt(values[:-1] * values[1:]) if values[0] > 0 else (values[:-1] + values[1:]) / 2
        for value in middles[np.linspace(0, len(middles) - 1, min(len(middles), _MOST_PLACES)).astype(int)]:
            switch = _Switch(column=column, value=float(value))
            if min(int(side.sum()) for side in switch.sides(X)) >= _LEAST_ROWS:
                yield switch


def _read_logs(X: Floats) -> Floats:
    """A constant, and the columns in logs where they are positive, centred and scaled."""
    positive = X.min(axis=0) > 0
    read = np.where(positive, np.log(np.where(positive, X, 1.0)), X)
    return np.column_stack([np.ones(len(X)), (read - read.mean(axis=0)) / np.maximum(read.std(axis=0), SMALLEST)])


def _straight_loss(sides: Sequence[NDArray[np.bool_]], design: Floats, y: Floats, weight: Floats) -> float:
    """What a straight line in logs on each side leaves over."""
    loss = 0.0
    for side in sides:
        root = np.sqrt(weight[side])
        ridge = np.sqrt(_RIDGE * side.sum()) * np.eye(design.shape[1])
        target = np.append(np.log(y[side]) * root, np.zeros(len(ridge)))
        augmented = np.vstack([design[side] * root[:, None], ridge])
        solution = np.linalg.lstsq(augmented, target, rcond=None)[0]
        loss += float(np.sum((augmented @ solution - target)[: side.sum()] ** 2))
    return loss


def _fit_sides(switch: _Switch, X: Floats, y: Floats, weight: Floats) -> float:
    sides = switch.sides(X)
    laws = [ScalingLawRegressor().fit(X[side], y[side], weight[side]) for side in sides]
    return _criterion(laws, sides, X, y, weight)


def _criterion(laws: list[ScalingLawRegressor], sides: Any, X: Floats, y: Floats, weight: Floats) -> float:
    """The Bayesian information criterion of relative errors, each term paid for."""
    errors = np.empty(len(y))
    for law, side in zip(laws, sides, strict=True):
        errors[side] = np.log(law.predict(X[side]) / y[side])
    loss = float(np.sum(weight * errors**2) / np.sum(weight))
    terms = sum(1 + len(term) for law in laws for term in law.terms_)
    return float(len(y) * np.log(max(loss, 1e-8)) + terms * np.log(len(y)))
