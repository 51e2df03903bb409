"""What drives a prediction, read off the predictor's own answers: it works whatever models are underneath."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.app import Value
from foretell.core.run import Machine, RunSpec
from foretell.runtimes.bounds import Bounds
from foretell.runtimes.encoding import Field
from foretell.runtimes.explanation import (
    INSIDE,
    MACHINE,
    Contribution,
    Driver,
    Explanation,
    Piece,
    Point,
    QuantityExplanation,
    Source,
)
from foretell.runtimes.predictor import DEFAULT_LEVEL, ELAPSED, MEMORY, Predictor
from foretell.runtimes.run_table import MACHINE_PREFIX, build_column, render_level
from foretell.runtimes.shapley import share_out

Floats: TypeAlias = NDArray[np.float64]
Row: TypeAlias = Mapping[str, Value]

_RESOURCES = ("cores", "gpus", "nodes")
_STEP = math.sqrt(2.0)  # the exponent at the question is taken over this factor each way
_LEAST_EFFECT = 1.02  # what moves the prediction less over all its measured values does not matter
_POINTS = 25  # on a curve
_BENT = math.log(1.05)  # a curve that leaves its line by less than this is one power
_BENT_SHARE = 0.1  # nor is it bent if it leaves its line by less than this share of its rise
_SAME_EXPONENT = 0.15
_MOST_PLAYERS = 10
_LEAST_SHARE = 0.005
_TINY = 1e-300
_OTHERS = "others"


def explain(
    predictor: Predictor, spec: RunSpec, *, machine: Machine | None = None, level: float = DEFAULT_LEVEL
) -> Explanation:
    """What drives the time and memory of a configuration (on a machine, if one is given)."""
    question = _read_question(predictor, spec, machine)
    oracle = _Oracle(predictor=predictor, level=level)
    here = oracle.ask([question.asked, question.usual])
    sweeps = _sweep(question, oracle)
    contributions = _attribute(question, oracle)
    sources = _find_sources(question, oracle)
    found = {
        quantity: QuantityExplanation(
            quantity=quantity,
            estimate=bounds.estimate(0, level),
            usual=bounds.estimate(1, level),
            drivers=_find_drivers(sweeps, quantity, level),
            contributions=contributions[quantity],
            sources=sources[quantity],
        )
        for quantity, bounds in here.quantities.items()
    }
    return Explanation(
        app=spec.app,
        parameters=spec.parameters,
        allocation=spec.allocation,
        usual={field.name: question.show(field, question.usual[field.name]) for field in question.fields},
        elapsed_s=found[ELAPSED],
        peak_memory_bytes=found.get(MEMORY),
    )


def find_usual_values(predictor: Predictor) -> dict[str, float | str]:
    """The run that others are held against: numbers from the middle of those measured, the rest as most runs had it."""
    return {field.name: _find_usual(field) for field in _list_chosen(predictor)}


def _list_chosen(predictor: Predictor) -> list[Field]:
    """What users choose, not what a machine is."""
    return [field for field in predictor.encoder.fields if not field.name.startswith(MACHINE_PREFIX)]


def _find_usual(field: Field) -> float | str:
    if field.levels is not None or field.name in _RESOURCES or 0 < len(field.grid) <= 2:
        return field.fill
    if field.grid:
        return field.grid[(len(field.grid) - 1) // 2]
    middle = math.sqrt(field.low * field.high) if field.low > 0 else (field.low + field.high) / 2
    return float(round(middle)) if _is_whole(field) else middle


def _is_whole(field: Field) -> bool:
    return all(float(value).is_integer() for value in (field.low, field.high, *field.grid))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What is asked, and the usual run, each as a row; ``switches`` are the parameters that are true or false."""

    asked: Row
    usual: Row
    fields: tuple[Field, ...]
    switches: frozenset[str]
    regime: int

    def show(self, field: Field, value: Value) -> Value:
        """A value as its user would write it."""
        if field.levels is not None:
            return render_level(value)
        number = float(value)
        if field.name in self.switches:
            return bool(number)
        return int(number) if number.is_integer() else number

    def machine_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.asked if name.startswith(MACHINE_PREFIX))


def _read_question(predictor: Predictor, spec: RunSpec, machine: Machine | None) -> _Question:
    """Both rows have the same columns; a parameter that the question lacks is as most runs had it."""
    columns = predictor.tabulate([spec], None if machine is None else [machine])
    known = {field.name: field for field in predictor.encoder.fields}
    given = {name: column[0] for name, column in columns.items() if name in known}
    asked = {name: known[name].fill if _is_missing(value) else value for name, value in given.items()}
    fields = tuple(_list_chosen(predictor))
    asked = {field.name: field.fill for field in fields} | asked
    usual = {name: known[name].fill for name in asked} | {field.name: _find_usual(field) for field in fields}
    switches = frozenset(name for name, value in spec.parameters.items() if isinstance(value, bool))
    regime = predictor.encoder.regime({name: build_column([value]) for name, value in asked.items()}, 1)
    return _Question(asked=asked, usual=usual, fields=fields, switches=switches, regime=int(regime[0]))


def _is_missing(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """What is predicted for rows, by quantity."""

    quantities: Mapping[str, Bounds]
    other_machine: NDArray[np.bool_]

    def log_values(self) -> Floats:
        """A column for each quantity."""
        return np.column_stack([_log(bounds.value) for bounds in self.quantities.values()])

    def log_widths(self) -> Floats:
        return np.column_stack([_log(bounds.high) - _log(bounds.low) for bounds in self.quantities.values()])


def _log(values: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(values, _TINY)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Oracle:
    predictor: Predictor
    level: float

    def ask(self, rows: Sequence[Row], *, regime: int | None = None) -> _Answers:
        """With a ``regime`` all rows are predicted by its models: the step to another model is no effect of a value."""
        columns = {name: build_column([row[name] for row in rows]) for name in rows[0]}
        forecast = self.predictor.forecast(columns, len(rows), level=self.level, regime=regime)
        memory = {} if forecast.memory is None else {MEMORY: forecast.memory}
        quantities = {ELAPSED: forecast.elapsed, **memory}
        return _Answers(quantities=quantities, other_machine=forecast.other_machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    """One field through its values, all else as asked."""

    field: Field
    asked: Value
    values: tuple[Value, ...]
    shown: tuple[Value, ...]
    bounds: Mapping[str, Bounds]

    def inside(self) -> NDArray[np.bool_]:
        if self.field.levels is not None:
            return np.isin(np.array(self.shown, dtype=object), np.array(self.field.levels, dtype=object))
        numbers = np.array(self.values, dtype=float)
        return np.asarray((numbers >= self.field.low) & (numbers <= self.field.high))


def _sweep(question: _Question, oracle: _Oracle) -> list[_Sweep]:
    """Every field that models read, through its measured range and on to the question."""
    varied = [field for field in question.fields if field.used and not field.constant]
    if not varied:
        return []
    lists = [_list_values(field, question.asked[field.name]) for field in varied]
    rows = [
        {**question.asked, field.name: value} for field, values in zip(varied, lists, strict=True) for value in values
    ]
    answers, alike = oracle.ask(rows), oracle.ask(rows, regime=question.regime)
    ends = np.cumsum([0, *map(len, lists)])
    sweeps = []
    for field, values, (start, end) in zip(varied, lists, pairwise(ends), strict=True):
        sweeps.append(
            _Sweep(
                field=field,
                asked=question.show(field, question.asked[field.name]),
                values=tuple(values),
                shown=tuple(question.show(field, value) for value in values),
                bounds={
                    name: _align(bounds.take(slice(start, end)), alike.quantities[name].value[start:end])
                    for name, bounds in answers.quantities.items()
                },
            )
        )
    return sweeps


def _align(natural: Bounds, values: Floats) -> Bounds:
    """These values, with intervals as wide as those of the bounds."""
    factor = values / natural.value
    return replace(natural, value=values, low=natural.low * factor, high=natural.high * factor)


def _find_listed(field: Field, asked: Value) -> Value:
    return render_level(asked) if field.levels is not None else float(asked)


def _list_values(field: Field, asked: Value) -> list[Value]:
    if field.levels is not None:
        return [*dict.fromkeys((*field.levels, render_level(asked)))]
    here = float(asked)
    low, high = min(field.low, here), max(field.high, here)
    if low > 0:
        steps = [value for value in (here / _STEP, here * _STEP) if low <= value <= high]
        numbers = np.array([*np.geomspace(low, high, _POINTS), *steps])
    else:
        numbers = np.linspace(low, high, _POINTS)
    if _is_whole(field) and here.is_integer():
        numbers = np.round(numbers)
    named = (*field.grid, field.low, field.high, here)
    return sorted(set(np.clip([*numbers, *named], low, high).tolist()))


def _find_drivers(sweeps: Sequence[_Sweep], quantity: str, level: float) -> tuple[Driver, ...]:
    """Those that matter, the strongest first."""
    drivers = [_build_driver(sweep, sweep.bounds[quantity], level) for sweep in sweeps if sweep.inside().any()]
    kept = [driver for driver in drivers if driver.effect >= _LEAST_EFFECT]
    return tuple(sorted(kept, key=lambda driver: -driver.effect))


def _build_driver(sweep: _Sweep, bounds: Bounds, level: float) -> Driver:
    field, inside = sweep.field, np.flatnonzero(sweep.inside())
    logs = _log(bounds.value)
    least, most = (inside[pick(logs[inside])] for pick in (np.argmin, np.argmax))
    powers = field.levels is None and field.low > 0 and float(sweep.asked) > 0 and len(inside) > 1
    x = np.log(np.array(sweep.values, dtype=float)) if powers else logs
    return Driver(
        name=field.name,
        value=sweep.asked,
        effect=float(np.exp(logs[most] - logs[least])),
        least=sweep.shown[least],
        most=sweep.shown[most],
        low=None if field.levels is not None else float(field.low),
        high=None if field.levels is not None else float(field.high),
        exponent=_find_slope(x, logs, field, float(sweep.asked)) if powers else None,
        pieces=_find_pieces(x[inside], logs[inside]) if powers else (),
        curve=tuple(Point(value=value, estimate=bounds.estimate(row, level)) for row, value in enumerate(sweep.shown)),
    )


def _find_slope(x: Floats, y: Floats, field: Field, here: float) -> float:
    """The exponent at the question: over a step each way, but not out of the measured range nor further out."""
    low, high = max(min(field.low, here), here / _STEP), min(max(field.high, here), here * _STEP)
    if _is_whole(field) and here.is_integer():  # a step that is no whole number cannot be taken
        low, high = math.floor(low), math.ceil(high)
    start, end = np.clip(np.log([low, high]), x[0], x[-1])
    rise = np.interp(end, x, y) - np.interp(start, x, y)
    return float(rise / (end - start)) if end > start else 0.0


def _find_pieces(x: Floats, y: Floats) -> tuple[Piece, ...]:
    """One power, or two with a bend where one leaves the curve by too much."""
    line, off = _fit(x, y, None)
    whole = (Piece(low=_unlog(x[0]), high=_unlog(x[-1]), exponent=line[0]),)
    if np.max(np.abs(off)) <= max(_BENT, _BENT_SHARE * float(np.ptp(y))):
        return whole
    fits = {float(knot): _fit(x, y, knot) for knot in x[1:-1]}
    if not fits:
        return whole
    knot = min(fits, key=lambda at: float(np.sum(fits[at][1] ** 2)))
    first, second = fits[knot][0]
    if abs(first - second) < _SAME_EXPONENT:
        return whole
    return (
        Piece(low=_unlog(x[0]), high=_unlog(knot), exponent=first),
        Piece(low=_unlog(knot), high=_unlog(x[-1]), exponent=second),
    )


def _fit(x: Floats, y: Floats, knot: float | None) -> tuple[tuple[float, float], Floats]:
    """The slopes before and after the knot, and how far the curve is off them."""
    parts = [np.ones_like(x), x] if knot is None else [np.ones_like(x), x, np.maximum(x - knot, 0.0)]
    matrix = np.column_stack(parts)
    solved = np.linalg.lstsq(matrix, y, rcond=None)[0]
    slope, bend = float(solved[1]), 0.0 if knot is None else float(solved[2])
    return (slope, slope + bend), np.asarray(y - matrix @ solved)


def _unlog(value: float) -> float:
    number = float(np.exp(value))
    return float(round(number)) if math.isclose(number, round(number), rel_tol=1e-9) else number


def _attribute(question: _Question, oracle: _Oracle) -> dict[str, tuple[Contribution, ...]]:
    """The log-difference to the usual run, shared out among the values that differ."""
    asked, usual = question.asked, question.usual
    names: list[tuple[str, ...]]
    names = [(field.name,) for field in question.fields if asked[field.name] != usual[field.name]]
    machine = question.machine_names()
    if any(asked[name] != usual[name] for name in machine):
        names.append(machine)
    players = _join_least(names, question, oracle)

    def worth(masks: NDArray[np.bool_]) -> Floats:
        return oracle.ask(_mix(usual, asked, players, masks)).log_values()

    shares = share_out(worth, len(players))
    quantities = list(oracle.ask([asked]).quantities)
    return {
        quantity: _list_contributions(question, players, shares[:, index] if players else np.zeros(0))
        for index, quantity in enumerate(quantities)
    }


def _join_least(names: Sequence[tuple[str, ...]], question: _Question, oracle: _Oracle) -> list[tuple[str, ...]]:
    """At most ten players: those that do least by themselves play as one."""
    if len(names) <= _MOST_PLAYERS:
        return list(names)
    alone = np.vstack([np.zeros(len(names), dtype=bool), np.eye(len(names), dtype=bool)])
    times = oracle.ask(_mix(question.usual, question.asked, names, alone)).log_values()[:, 0]
    order = np.argsort(-np.abs(times[1:] - times[0]), kind="stable")
    own, rest = order[: _MOST_PLAYERS - 1], order[_MOST_PLAYERS - 1 :]
    return [*(names[index] for index in own), tuple(name for index in rest for name in names[index])]


def _list_contributions(
    question: _Question, players: Sequence[tuple[str, ...]], shares: Floats
) -> tuple[Contribution, ...]:
    fields = {field.name: field for field in question.fields}
    total = float(np.sum(np.abs(shares)))
    found = []
    for player, share in zip(players, shares, strict=True):
        part = abs(float(share)) / total if total > 0 else 0.0
        field = fields.get(player[0]) if len(player) == 1 else None
        name = player[0] if field else MACHINE if player[0].startswith(MACHINE_PREFIX) else _OTHERS
        asked, usual = (question.show(field, row[name]) if field else "" for row in (question.asked, question.usual))
        found.append(Contribution(name=name, value=asked, usual=usual, factor=float(np.exp(share)), share=part))
    kept = [contribution for contribution in found if contribution.share >= _LEAST_SHARE]
    return tuple(sorted(kept, key=lambda contribution: -contribution.share))


def _find_sources(question: _Question, oracle: _Oracle) -> dict[str, tuple[Source, ...]]:
    """The interval's width, shared out among the values outside the runs and what is left with all of them inside."""
    here = oracle.ask([question.asked])
    strays = _list_strays(question, other_machine=bool(here.other_machine[0]))
    players = [tuple(stray.nearest) for stray in strays]
    nearest = dict(question.asked)
    for stray in strays:
        nearest |= stray.nearest

    def worth(masks: NDArray[np.bool_]) -> Floats:
        return oracle.ask(_mix(nearest, question.asked, players, masks)).log_widths()

    shares = np.maximum(share_out(worth, len(players)), 0.0)
    inside = worth(np.zeros((1, len(players)), dtype=bool))[0]
    return {
        quantity: _list_sources(strays, shares[:, index] if strays else np.zeros(0), float(inside[index]))
        for index, quantity in enumerate(here.quantities)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stray:
    """A value outside the runs, and the nearest inside."""

    name: str
    value: Value | None
    measured: str
    nearest: Row


def _list_strays(question: _Question, *, other_machine: bool) -> list[_Stray]:
    asked = question.asked
    strays = [
        _Stray(
            name=field.name,
            value=question.show(field, asked[field.name]),
            measured=_describe_range(field),
            nearest={field.name: _find_nearest(field, asked[field.name])},
        )
        for field in question.fields
        if _is_outside(field, asked[field.name])
    ]
    if other_machine:
        usual = {name: question.usual[name] for name in question.machine_names()}
        strays.append(_Stray(name=MACHINE, value=None, measured="", nearest=usual))
    return strays


def _list_sources(strays: Sequence[_Stray], shares: Floats, inside: float) -> tuple[Source, ...]:
    total = inside + float(np.sum(shares))
    found = [
        Source(name=stray.name, value=stray.value, measured=stray.measured, share=float(share) / total)
        for stray, share in zip(strays, shares, strict=True)
        if total > 0 and share / total >= _LEAST_SHARE
    ]
    rest = Source(name=INSIDE, value=None, measured="", share=inside / total if total > 0 else 1.0)
    return (*sorted(found, key=lambda source: -source.share), rest)


def _is_outside(field: Field, value: Value) -> bool:
    if field.levels is not None:
        return render_level(value) not in field.levels
    return not field.low <= float(value) <= field.high


def _find_nearest(field: Field, value: Value) -> Value:
    return field.fill if field.levels is not None else min(max(float(value), field.low), field.high)


def _describe_range(field: Field) -> str:
    if field.levels is not None:
        return ", ".join(field.levels[:3]) + (", …" if len(field.levels) > 3 else "")
    return f"{field.low:g}" if field.constant else f"{field.low:g} to {field.high:g}"


def _mix(base: Row, other: Row, players: Sequence[tuple[str, ...]], masks: NDArray[np.bool_]) -> list[Row]:
    """For each mask a row: the players marked have the values of the other row."""
    return [
        {**base, **{name: other[name] for player, on in zip(players, mask, strict=True) if on for name in player}}
        for mask in masks
    ]
