"""What is known of a time before any run: that it is in proportion to something."""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.formula import Formula
from foretell.core.warning import PredictionWarning, build_warning
from foretell.runtimes.recipes import FittedRecipe, Recipe, TrainingSet
from foretell.runtimes.regressors import REGRESSORS
from foretell.runtimes.run_table import Columns

Floats: TypeAlias = NDArray[np.float64]

BENCH, BENCH_VERSION = "machine_bench_s", "machine_bench_version"
_CARRIED = float(np.log(1.2))  # how far off the proportion may be where no run was made
_SAME = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Times are learned in units of ``formula``, which reads columns; ``usual`` is its middle value in the runs."""

    formula: str | None = None
    version: float | None = None  # of the benchmark behind the figures
    bench: float = 1.0  # the middle figure of the runs' machines
    low: float = 1.0
    high: float = 1.0
    usual: float = 1.0
    names: tuple[str, ...] = field(default=())

    def of(self, columns: Columns, rows: int) -> Floats:
        """The unit of each row; the usual one where it is not known."""
        if self.formula is None:
            return np.ones(rows)
        if self.version is not None:
            columns = {**columns, BENCH: self._benches(columns, rows)}
        value = _evaluate(self.formula, columns, rows)
        return np.where(np.isfinite(value) & (value > 0), value, self.usual)

    def _benches(self, columns: Columns, rows: int) -> Floats:
        known = self.knows_machine(columns, rows)
        return np.where(known, _numbers(columns[BENCH]), self.bench) if known.any() else np.full(rows, self.bench)

    def knows_machine(self, columns: Columns, rows: int) -> NDArray[np.bool_]:
        """Of which rows it is known how fast their machine is, by the same benchmark as that of the runs."""
        if self.version is None or BENCH not in columns or BENCH_VERSION not in columns:
            return np.zeros(rows, dtype=bool)
        measured = _numbers(columns[BENCH])
        same = _numbers(columns[BENCH_VERSION]) == self.version
        return np.asarray(same & np.isfinite(measured) & (measured > 0))

    def find_shift(self, unit: Floats) -> Floats:
        """What it adds to the bounds, in logs, that runs had no such unit."""
        outside = (unit < self.low * (1 - _SAME)) | (unit > self.high * (1 + _SAME))
        return np.where(outside, _CARRIED, 0.0)


def find_units(per: str | None, columns: Columns) -> Units:
    """The units of these runs: what the app says, and how fast the machines are, where that is known of all."""
    per = per if per is not None and _has_value(per, columns).all() else None
    formula, version = per, None
    versions = np.unique(_numbers(columns[BENCH_VERSION])) if BENCH_VERSION in columns else np.array([])
    if BENCH in columns and len(versions) == 1 and np.isfinite(versions[0]):
        formula, version = f"({per}) * {BENCH}" if per else BENCH, float(versions[0])
    if formula is None:
        return Units()
    if not _has_value(formula, columns).all():
        return Units()
    value = _evaluate(formula, columns, _count_rows(columns))
    return Units(
        formula=formula,
        version=version,
        low=float(value.min()),
        high=float(value.max()),
        usual=float(np.median(value)),
        bench=1.0 if version is None else float(np.median(_numbers(columns[BENCH]))),
        names=tuple(sorted(Formula(formula).names)),
    )


def find_unit_warnings(per: str | None, columns: Columns) -> tuple[PredictionWarning, ...]:
    """That what the app file says is not used, and why."""
    lacking = 0 if per is None else int((~_has_value(per, columns)).sum())
    rows = _count_rows(columns)
    why = f"{lacking:,} of {rows:,} runs have no positive value of it"
    text = f"times are not learned in proportion to {per}: {why}"
    return (build_warning("proportion-not-used", text, per=per, lacking=lacking, runs=rows),) if lacking else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorRecipe(Recipe):
    """The same number of units for every row: the middle of what the runs took, in logs."""

    family: str = "law"

    @property
    def name(self) -> str:
        return "factor"

    @property
    def rank(self) -> tuple[float, ...]:
        return (-1.0,)

    def fit(self, data: TrainingSet, *, seed: int = 0, like: FittedRecipe | None = None) -> FittedRecipe:
        known = data.take(~data.censored)
        middle = float(np.exp(np.mean(np.log(known.y / known.unit))))
        model = REGRESSORS[self.family]().fit(np.zeros_like(known.X), np.full(len(known), middle))
        return FittedRecipe(model=model)


def _has_value(formula: str, columns: Columns) -> NDArray[np.bool_]:
    value = _evaluate(formula, columns, _count_rows(columns))
    return np.asarray(np.isfinite(value) & (value > 0))


def _count_rows(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _evaluate(formula: str, columns: Columns, rows: int) -> Floats:
    wanted = {name: _numbers(columns[name]) for name in Formula(formula).names if name in columns}
    missing = {name: np.full(rows, np.nan) for name in Formula(formula).names if name not in columns}
    with np.errstate(all="ignore"):
        return np.asarray(np.broadcast_to(Formula(formula).evaluate({**wanted, **missing}), rows), dtype=float)


def _numbers(column: NDArray[np.generic]) -> Floats:
    return column.astype(float) if column.dtype != object else np.full(len(column), np.nan)
