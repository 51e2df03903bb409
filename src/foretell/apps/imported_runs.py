"""Tables of runs and of configurations → Runs and RunSpecs."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from foretell.apps._nodes import find_near
from foretell.core.app import App, Domain, Parameter, ParameterType, Scale, Value
from foretell.core.errors import ImportDataError, Mistake, SpecError
from foretell.core.formula import ExpressionError, Formula
from foretell.core.run import (
    JOB_COLUMNS,
    LAST_COLUMNS,
    RESOURCE_COLUMNS,
    USAGE_COLUMNS,
    Allocation,
    Run,
    RunSpec,
    State,
    Usage,
)
from foretell.core.table_files import Table, TableLike, get_table, is_missing
from foretell.core.units import parse_bytes, parse_duration

_RESOURCES = ("cores", "gpus", "nodes")
_SCALES = dict.fromkeys(("sd", "scaled-down", "scaled_down", "small"), Scale.SCALED_DOWN)
_SCALES |= dict.fromkeys(("fs", "full-scale", "full_scale", "full"), Scale.FULL_SCALE)
_STATES = {state.value: state for state in State if state.final} | {
    "timeout": State.TIMED_OUT,
    "oom": State.OUT_OF_MEMORY,
}
_MOST_VALUES = 50  # distinct values remembered of an imported parameter
_MOST_SHOWN = 5
_LARGEST = 1e15
_UNREADABLE = -np.inf
_TRUTH = (bool, np.bool_)
_NUMBERS = (int, float, Decimal, np.number)
_NUMERIC = (ParameterType.INTEGER, ParameterType.NUMBER)
_COUNTS = ("cores", "gpus", "nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column of a table of runs says what; every other one is a parameter.

    ``per`` is a formula of numeric parameters and resources that the time is known to be in proportion to. Plain
    numbers are in ``elapsed_unit_s`` and ``memory_unit_bytes``; texts such as ``1-02:30:00`` or ``4GB`` have their own.
    """

    elapsed: str
    memory: str | None = None
    scale: str | None = None
    state: str | None = None
    drop: Collection[str] = ()
    per: str | None = None
    elapsed_unit_s: float = 1.0
    memory_unit_bytes: int = 1

    def named(self) -> list[str]:
        return [name for name in (self.elapsed, self.memory, self.scale, self.state, *self.drop) if name is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsRead:
    """What a table of runs holds. ``skipped`` says why rows were left out, and which."""

    app: App
    runs: tuple[Run, ...]
    skipped: Mapping[str, Sequence[int]]


def read_runs(source: TableLike, *, app: str, columns: Columns) -> RunsRead:
    """The runs of a table, and the app as its columns describe it.

    Raises:
        ImportDataError: if the table lacks a column, or has no usable row.
        SpecError: if the app's name cannot be used.
    """
    table = get_table(source)
    columns = _for_own_export(table, columns)
    _check_columns(table, columns)
    _check_app_name(app)
    reader = _RunReader(app=app, table=table, columns=columns)
    runs = tuple(reader)
    if not runs:
        raise ImportDataError(f"no usable row among {len(table)}: {_render_skipped(reader.skipped)}")
    described = App(name=app, parameters=tuple(reader.parameters), per=_read_per(columns.per, reader.parameters))
    return RunsRead(app=described, runs=runs, skipped=reader.skipped)


def _read_per(per: str | None, parameters: Sequence[Parameter]) -> str | None:
    if per is None:
        return None
    numbers = [parameter.name for parameter in parameters if parameter.type in _NUMERIC]
    expected = f"expected a formula of {', '.join((*numbers, *_COUNTS))}"
    try:
        formula = Formula.parse(per)
    except ExpressionError as exc:
        raise ImportDataError(f"per: found {exc.found}; {expected}") from exc
    unknown = sorted(formula.names - {*numbers, *_COUNTS})
    if unknown:
        raise ImportDataError(f"per = {per!r}: no column of numbers is named {unknown[0]!r}; {expected}")
    return formula.text


def _for_own_export(table: Table, columns: Columns) -> Columns:
    """What Foretell exported says itself which column is what."""
    names = {str(name) for name in table.columns}
    if not names.issuperset(LAST_COLUMNS):
        return columns
    known = {*USAGE_COLUMNS, *JOB_COLUMNS, *LAST_COLUMNS, *RESOURCE_COLUMNS} - {*_RESOURCES}
    listed = {name for name in names if name in known or name.startswith(("phase_", "machine_"))}
    named = replace(
        columns,
        memory=columns.memory or "peak_memory_bytes",
        scale=columns.scale or "scale",
        state=columns.state or "state",
    )
    return replace(named, drop=(*columns.drop, *sorted(listed - {*named.named()})))


def build_specs(app: App, source: TableLike, *, allocation: Allocation) -> list[RunSpec]:
    """A specification for each row; columns the app does not know are ignored, empty cells are not known.

    Raises:
        SpecError: if a parameter has no column and no usual value, or a cell is not of its type.
    """
    table = get_table(source)
    missing = [name for name in app.parameter_names() if name not in table.columns]
    usual = {name: value for name in missing if (value := _only_value(app, name)) is not None}
    mistakes = [
        Mistake(place=f"column {name}", found="no such column", expected=f"one; the table has {_listed(table.columns)}")
        for name in missing
        if name not in usual
    ]
    cells = {
        parameter.name: _read_cells(parameter, table[parameter.name], mistakes)
        for parameter in app.parameters
        if parameter.name in table.columns
    }
    resources = {name: _read_counts(name, table[name], mistakes) for name in _RESOURCES if name in table.columns}
    if mistakes:
        raise SpecError(f"configurations of {app.name}", mistakes[:20])
    specs = []
    for row in range(len(table)):
        parameters = {name: values[row] for name, values in cells.items() if values[row] is not None}
        counts = {name: values[row] for name, values in resources.items()}
        base = {name: getattr(allocation, name) for name in (*_RESOURCES, "memory_bytes")}
        specs.append(
            RunSpec(app=app.name, parameters={**usual, **parameters}, allocation=Allocation(**{**base, **counts}))
        )
    return specs


def _only_value(app: App, name: str) -> Value | None:
    parameter = app.find_parameter(name)
    values = parameter.full_scale.values if parameter else ()
    return values[0] if len(values) == 1 else None


def _read_cells(parameter: Parameter, column: Sequence[Any], mistakes: list[Mistake]) -> list[Any]:
    values: list[Value | None] = []
    for row, cell in enumerate(column):
        try:
            values.append(None if is_missing(cell) else _read_cell(parameter.type, cell))
        except ValueError:
            found = f"{cell!r} in row {row + 1}"
            mistakes.append(
                Mistake(place=f"column {parameter.name}", found=found, expected=f"a value of type {parameter.type}")
            )
            values.append(None)
    return values


def _cell_mistake(name: str, row: int, cell: Any, expected: str) -> Mistake:
    return Mistake(place=f"column {name}", found=f"{cell!r} in row {row + 1}", expected=expected)


def _read_cell(kind: ParameterType, cell: Any) -> Value:
    if kind is ParameterType.TEXT:
        return _render_text(cell)
    if kind is ParameterType.BOOLEAN:
        known = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
        if str(cell).strip().lower() not in known:
            raise ValueError(cell)
        return known[str(cell).strip().lower()]
    number = float(cell)
    if not np.isfinite(number) or abs(number) > 1e300:
        raise ValueError(cell)
    return int(number) if number.is_integer() and abs(number) < _LARGEST else number


def _render_text(cell: Any) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _read_counts(name: str, column: Sequence[Any], mistakes: list[Mistake]) -> list[int]:
    counts = []
    for row, cell in enumerate(column):
        try:
            count = int(float(cell))
        except (TypeError, ValueError, OverflowError):
            count = -1
        if count < 0:
            mistakes.append(_cell_mistake(name, row, cell, "a whole number"))
        counts.append(max(count, 0))
    return counts


def _check_columns(table: Table, columns: Columns) -> None:
    unknown = [name for name in columns.named() if name not in table.columns]
    if unknown:
        near = [match for name in unknown if (match := find_near(name, map(str, table.columns)))]
        meant = f"; did you mean {_listed(near)}?" if near else ""
        raise ImportDataError(f"no column {_listed(unknown)}; the table has {_listed(table.columns)}{meant}")
    taken = [columns.elapsed, *([columns.memory] if columns.memory else [])]
    if len(set(taken)) < len(taken):
        raise ImportDataError(f"column {columns.elapsed!r} cannot be both the time and the memory")


def _check_app_name(app: str) -> None:
    if not app or any(character.isspace() or character in "/\\\0" for character in app):
        expected = "letters, digits, dots, underscores or hyphens"
        raise SpecError("--app", [Mistake(place="name", found=repr(app), expected=expected)])


@dataclass
class _RunReader:
    """The usable rows of a table, one run each."""

    app: str
    table: Table
    columns: Columns
    skipped: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        aside = {*self.columns.named(), *_RESOURCES}
        names = [name for name in self.table.columns if name not in aside]
        self.parameters = [_find_type(str(name), self.table[name]) for name in names]
        self._seen: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Run]:
        elapsed = _measures(self.table[self.columns.elapsed], unit=self.columns.elapsed_unit_s, parse=parse_duration)
        memory = self._read_memory()
        cells = {parameter.name: self.table[parameter.name] for parameter in self.parameters}
        resources = {name: _numbers(self.table[name]) for name in _RESOURCES if name in self.table.columns}
        scales, states = self._words(self.columns.scale), self._words(self.columns.state)
        for row in range(len(self.table)):
            try:
                yield self._read(row, elapsed[row], memory[row], cells, resources, scales[row], states[row])
            except _Unusable as exc:
                self.skipped.setdefault(str(exc), []).append(row + 1)

    def _read_memory(self) -> Any:
        if self.columns.memory is None:
            return np.full(len(self.table), np.nan)
        return _measures(self.table[self.columns.memory], unit=self.columns.memory_unit_bytes, parse=parse_bytes)

    def _words(self, name: str | None) -> list[str | None]:
        if name is None:
            return [None] * len(self.table)
        return ["" if is_missing(cell) else str(cell).strip().lower() for cell in self.table[name]]

    def _read(
        self,
        row: int,
        elapsed: float,
        memory: float,
        cells: Mapping[str, Sequence[Any]],
        resources: Mapping[str, Any],
        scale: str | None,
        state: str | None,
    ) -> Run:
        if not (np.isfinite(elapsed) and 0 < elapsed < _LARGEST):
            raise _Unusable(
                f"{self.columns.elapsed} is not a positive number or a time such as 90s, 1.5h or 1-02:30:00"
            )
        if memory == _UNREADABLE:
            raise _Unusable(f"{self.columns.memory} is not a number or a size such as 512M or 4GB")
        spec = RunSpec(
            app=self.app,
            parameters=self._parameters(row, cells),
            allocation=_read_allocation(resources, row),
            scale=_look_up(_SCALES, scale, self.columns.scale, Scale.FULL_SCALE),
        )
        peak = int(memory) if np.isfinite(memory) and 0 < memory < 2**62 else None
        return Run(
            spec=RunSpec(
                app=spec.app,
                parameters=spec.parameters,
                allocation=spec.allocation,
                scale=spec.scale,
                repetition=self._repetition(spec, elapsed, peak),
            ),
            state=_look_up(_STATES, state, self.columns.state, State.COMPLETED),
            usage=Usage(elapsed_s=float(elapsed), peak_memory_bytes=peak),
            source="import",
        )

    def _parameters(self, row: int, cells: Mapping[str, Sequence[Any]]) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for parameter in self.parameters:
            cell = cells[parameter.name][row]
            if is_missing(cell):
                continue
            try:
                values[parameter.name] = _read_cell(parameter.type, cell)
            except (ValueError, OverflowError):
                raise _Unusable(f"{parameter.name} is not a finite {parameter.type}") from None
        return values

    def _repetition(self, spec: RunSpec, elapsed: float, peak: int | None) -> int:
        """A number made of what was measured, so that the same row is the same run in every file."""
        key = f"{spec.configuration} {elapsed!r} {peak!r}"
        self._seen[key] += 1
        return int(hashlib.sha256(f"{key} {self._seen[key]}".encode()).hexdigest()[:7], 16)


class _Unusable(Exception):  # noqa: N818  # a reason to skip a row, not an error of the whole
    pass


def _look_up(table: Mapping[str, Any], word: str | None, column: str | None, default: Any) -> Any:
    if word is None:
        return default
    try:
        return table[word]
    except KeyError:
        raise _Unusable(f"{column} is {word!r}, not one of {', '.join(table)}") from None


def _read_allocation(resources: Mapping[str, Any], row: int) -> Allocation:
    counts = {name: _count(values[row], name) for name, values in resources.items()}
    return Allocation(cores=counts.get("cores", 1), gpus=counts.get("gpus", 0), nodes=counts.get("nodes", 1))


def _count(value: float, name: str) -> int:
    if not np.isfinite(value) or value < (0 if name == "gpus" else 1) or value > 1e9:
        raise _Unusable(f"{name} is not a count")
    return int(value)


def _measures(column: Sequence[Any], *, unit: float, parse: Callable[[str], float]) -> Any:
    """Numbers in a unit, or texts and spans of time with their own; ``nan`` for empty cells."""
    values = _numbers(column) * unit
    for place in np.flatnonzero(np.isnan(values)):
        cell = column[int(place)]
        if isinstance(cell, timedelta):
            values[place] = cell.total_seconds()
        elif not is_missing(cell):
            values[place] = _parse_measure(str(cell), parse)
    return values


def _parse_measure(text: str, parse: Callable[[str], float]) -> float:
    try:
        return parse(text) if text.strip() else np.nan
    except ValueError:
        return _UNREADABLE


def _numbers(column: Sequence[Any]) -> Any:
    return np.array([_read_number(cell) for cell in column], dtype=float)


def _read_number(cell: Any) -> float:
    if cell is None or isinstance(cell, timedelta):
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _find_type(name: str, column: Sequence[Any]) -> Parameter:
    known = [cell for cell in column if not is_missing(cell)]
    if known and all(isinstance(cell, _TRUTH) for cell in known):
        kind = ParameterType.BOOLEAN
    elif all(isinstance(cell, _NUMBERS) and not isinstance(cell, _TRUTH) for cell in known):
        kind = (
            ParameterType.INTEGER
            if all(cell == round(cell) for cell in known if math.isfinite(cell))
            else ParameterType.NUMBER
        )
    else:
        kind = ParameterType.TEXT
    distinct = list({str(cell): cell for cell in known}.values())[: _MOST_VALUES + 1]
    values = tuple(_read_cell(kind, cell) for cell in distinct if _is_readable(kind, cell))
    return Parameter(name=name, type=kind, full_scale=Domain(values=values if len(values) <= _MOST_VALUES else ()))


def _is_readable(kind: ParameterType, cell: Any) -> bool:
    try:
        _read_cell(kind, cell)
    except (ValueError, OverflowError):
        return False
    return True


def _listed(names: Collection[Any]) -> str:
    shown = [repr(str(name)) for name in names]
    more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
    return ", ".join(shown[:20]) + more


def _render_skipped(skipped: Mapping[str, Sequence[int]]) -> str:
    parts = [f"{reason} (rows {', '.join(map(str, rows[:_MOST_SHOWN]))})" for reason, rows in skipped.items()]
    return "; ".join(parts) or "it is empty"
