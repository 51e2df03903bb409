"""Predictions of time and memory for configurations that need not have been run."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import StoreError
from foretell.core.formula import Formula
from foretell.core.intervals import Spread
from foretell.core.model_card import ModelCard
from foretell.core.prediction import Prediction, Request
from foretell.core.run import Allocation, Machine, RunSpec
from foretell.core.warning import PredictionWarning, build_warning
from foretell.runtimes.bounds import Bounds, Marginal, Question
from foretell.runtimes.encoded_rows import EncodedRows, Regimes, list_unknown_texts
from foretell.runtimes.encoding import BETWEEN, BEYOND, ON_GRID, REGIMES, Encoder, Field
from foretell.runtimes.proportionality import BENCH_VERSION, Units
from foretell.runtimes.recipes import FittedRecipe
from foretell.runtimes.regressors import LARGEST, SMALLEST, ConstantRunRegressor, GaussianProcessRunRegressor
from foretell.runtimes.requests import MEMORY as MEMORY_OUTLAY
from foretell.runtimes.requests import TIME as TIME_OUTLAY
from foretell.runtimes.requests import share_risk
from foretell.runtimes.run_table import MACHINE_CPU, Columns, build_columns

Floats: TypeAlias = NDArray[np.float64]

ELAPSED, MEMORY = "elapsed_s", "peak_memory_bytes"
CUSTOM = "custom"  # the time by the app's formula of its phases
REMAINDER = "(remainder)"  # what no phase covers: the program's start and its end
DEVIATION = " deviation"  # after a quantity's name: the model that predicts how far runs lie from predictions
DEFAULT_LEVEL = 0.9
DEFAULT_RISK = 0.1  # the chance that a first request is too small, in time or in memory
_USED_WHERE = {ON_GRID: (ON_GRID,), BETWEEN: (BETWEEN, ON_GRID), BEYOND: (BEYOND, BETWEEN, ON_GRID)}
_OTHER_MACHINE = float(np.log(1.5))  # how far another machine's speed may be from the one measured on, each way
_UNKNOWN_TEXT = float(np.log(2.0))  # a kind that no run had may take half or twice as long
_EXTRAPOLATED = 0.05  # what one more range away adds by itself, however well the inside is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predictions for many rows at once, as columns.

    ``extrapolation`` is how far a row lies outside the runs (0: inside). ``other_machine`` rows are for a machine of a
    kind no run was made on: their time is that of the measured machines, with a wider interval. ``regime`` says which
    models predict a row, as an index of ``REGIMES``: those for values as measured, between them, or beyond them.
    """

    elapsed: Bounds
    basic: Bounds
    custom: Bounds | None
    memory: Bounds | None
    extrapolation: Floats
    other_machine: NDArray[np.bool_]
    regime: Regimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """The models of one app, one for each quantity, and the spread of measured values around each.

    The models of ``transferred`` quantities predict in units of what ``source``, another app's predictor, predicts.
    ``warnings`` hold for every prediction.
    """

    encoder: Encoder
    models: Mapping[str, FittedRecipe]
    spreads: Mapping[str, Spread]
    formula: str | None
    card: ModelCard
    units: Units
    marginals: Mapping[str, Marginal] = field(default_factory=dict)
    source: "Predictor | None" = None
    transferred: tuple[str, ...] = ()
    warnings: tuple[PredictionWarning, ...] = ()

    def forecast(
        self,
        columns: Columns,
        rows: int,
        *,
        level: float = DEFAULT_LEVEL,
        risk: float | None = None,
        retry_cost: float | None = None,
        regime: int | None = None,
    ) -> Forecast:
        """Time and memory for rows given as columns; quick for hundreds of thousands of them.

        ``risk`` is the chance that the first request is too small, in time or in memory. Without it, it is at most
        ``DEFAULT_RISK``, and less where a larger request costs less. ``retry_cost`` is what a failed try costs in
        addition to its request, in multiples of the prediction. With a ``regime`` its models predict all rows,
        wherever they lie.

        Raises:
            StoreError: A stored model was changed and cannot predict.
        """
        read = self._read(columns, rows)
        if regime is not None:
            read = replace(read, regime=np.full(rows, regime, dtype=np.int8))
        return self._forecast(read, level=level, risk=risk, retry_cost=retry_cost)

    def forecast_pairs(
        self,
        specs: Sequence[RunSpec],
        options: Sequence[tuple[Allocation, Machine]],
        *,
        level: float = DEFAULT_LEVEL,
        risk: float | None = None,
    ) -> Forecast:
        """Every specification on every option; the options of one specification stand together."""
        return self._forecast(self._read_pairs(specs, options), level=level, risk=risk)

    def encode_pairs(self, specs: Sequence[RunSpec], options: Sequence[tuple[Allocation, Machine]]) -> Floats:
        """The matrix that the models read in :meth:`forecast_pairs`."""
        return self._read_pairs(specs, options).X

    def _read_pairs(self, specs: Sequence[RunSpec], options: Sequence[tuple[Allocation, Machine]]) -> EncodedRows:
        """Specifications and options are encoded once each, not once a pair."""
        blank = [RunSpec(app="", parameters={}, allocation=allocation) for allocation, _ in options]
        placed = build_columns(blank, [machine for _, machine in options])
        asked = {name: column for name, column in build_columns(specs).items() if name not in placed}
        return self._cross(self._read(asked, len(specs)), self._read(placed, len(options)), placed)

    def points(self, columns: Columns, rows: int) -> dict[str, Floats]:
        """Time and memory without intervals."""
        return self._points(self._read(columns, rows))

    def _cross(self, asked: EncodedRows, options: EncodedRows, placed: Columns) -> EncodedRows:
        crossed = asked.cross(options, from_other=self.encoder.comes_from(placed))
        if self.source is None or asked.source is None or options.source is None:
            return crossed
        return replace(crossed, source=self.source._cross(asked.source, options.source, placed))

    def _read(self, columns: Columns, rows: int) -> EncodedRows:
        named = {BENCH_VERSION, *self.units.names, *(Formula(self.formula).names if self.formula is not None else ())}
        return EncodedRows(
            X=self.encoder.encode(columns, rows),
            named={name: column for name, column in columns.items() if name in named},
            extrapolation=self.encoder.find_extrapolation(columns, rows),
            unknown_texts=self.encoder.count_unknown_texts(columns, rows),
            other_machine=self._is_other_machine(columns, rows),
            regime=self.encoder.regime(columns, rows),
            unmeasured=self.encoder.count_unmeasured(columns, rows),
            source=self.source._read(self._complete(columns, rows), rows) if self.source else None,
        )

    def _complete(self, columns: Columns, rows: int) -> Columns:
        """The columns for the source: what they lack is as in this app's own runs, not as in the source's."""
        kinds = {field.name: float if field.levels is None else object for field in self.encoder.fields}
        usual = {field.name: np.full(rows, field.fill, dtype=kinds[field.name]) for field in self.encoder.fields}
        return {**usual, **columns}

    def _predict_all(self, rows: EncodedRows) -> dict[str, Floats]:
        """What each model predicts, in seconds or bytes.

        A text that no run had leaves a row without a mark, and some models then predict next to nothing. A prediction
        outside those for all known texts is replaced by their mean, in logs.
        """
        values = self._predict_raw(rows)
        for unknown in list_unknown_texts(rows, self.encoder):
            known = [self._predict_raw(level) for level in unknown.with_known]
            for name in self._predict_raw(unknown.rows):
                logs, own = np.log([one[name] for one in known]), np.log(values[name][unknown.places])
                plausible = (own >= logs.min(axis=0)) & (own <= logs.max(axis=0))
                values[name][unknown.places] = np.exp(np.where(plausible, own, unknown.shares @ logs))
        return values

    def _predict_raw(self, rows: EncodedRows) -> dict[str, Floats]:
        values = {name: self._run(model.predict, rows.X) for name, model in self.models.items() if _is_used(name, rows)}
        units = {ELAPSED: self.units.of(rows.named, len(rows.X))}
        if self.source is not None and rows.source is not None:
            points = self.source._points(rows.source)
            units |= {name: points[name] for name in self.transferred}
        return values | {
            name: values[name] * unit
            for quantity, unit in units.items()
            for name in (quantity + regime for regime in REGIMES)
            if name in values
        }

    def _run(self, predict: Callable[[Floats], Floats], X: Floats) -> Floats:
        """The predictions of one model.

        Raises:
            StoreError: It does not predict positive numbers. Those that were fitted do, but stored ones can be changed.
        """
        remedy = f"run 'foretell build {self.card.app}' to rebuild it"
        try:
            predicted = np.asarray(predict(X))
        except (ValueError, IndexError, TypeError, AttributeError, ArithmeticError) as exc:
            raise StoreError(f"the stored model of {self.card.app!r} fails ({exc!r}); {remedy}") from exc
        if predicted.shape != (len(X),) or not np.all(predicted > 0):
            raise StoreError(f"the stored model of {self.card.app!r} does not predict positive numbers; {remedy}")
        return predicted

    def _points(self, rows: EncodedRows) -> dict[str, Floats]:
        values = self._by_regime(rows, self._predict_all(rows))
        points = {name: values[name] for name in (ELAPSED, MEMORY) if name in values}
        if self.formula is not None:
            whole = self._whole(self.formula, rows.named, values)
            points[ELAPSED] = np.where(self._uses_custom(rows.regime), whole, points[ELAPSED])
        return points

    def _by_regime(self, rows: EncodedRows, values: Mapping[str, Floats]) -> dict[str, Floats]:
        """Each quantity as predicted by the model for such rows."""
        quantities = [name for name in values if not name.endswith((BETWEEN, BEYOND))]
        return {
            name: np.choose(rows.regime, [values[self._used(name, regime, values)] for regime in REGIMES])
            for name in quantities
        }

    def _used(self, name: str, regime: str, known: Collection[str]) -> str:
        """The name of what is used in a regime: its own, or that of the nearest regime that could be judged."""
        return next((name + other for other in _USED_WHERE[regime] if name + other in known), name)

    def _forecast(
        self, rows: EncodedRows, *, level: float, risk: float | None, retry_cost: float | None = None
    ) -> Forecast:
        unit = self.units.of(rows.named, len(rows.X))
        values = self._predict_all(rows)
        unknown = self._find_level_shifts(rows)
        quantities = 1 + (MEMORY in values)
        share = share_risk(DEFAULT_RISK if risk is None else risk, quantities)
        shifts = {name: _EXTRAPOLATED * rows.extrapolation + shift for name, shift in unknown.items()}
        moving = Question(
            shift=shifts[ELAPSED] + self._find_machine_shift(unit, rows),
            level=level,
            risk=share,
            least_cost=risk is None,
            retry_cost=retry_cost,
        )
        basic = self._bounds(ELAPSED, values, rows, moving)
        custom = None
        if self.formula is not None:
            whole = self._whole(self.formula, rows.named, self._by_regime(rows, values))
            custom = self._bounds(CUSTOM, {CUSTOM + regime: whole for regime in REGIMES}, rows, moving)
        return Forecast(
            elapsed=basic if custom is None else basic.replaced(self._uses_custom(rows.regime), custom),
            basic=basic,
            custom=custom,
            memory=self._bounds(MEMORY, values, rows, replace(moving, shift=shifts[MEMORY]))
            if MEMORY in values
            else None,
            extrapolation=rows.extrapolation + rows.unknown_texts,
            other_machine=rows.other_machine,
            regime=rows.regime,
        )

    def _find_level_shifts(self, rows: EncodedRows) -> dict[str, Floats]:
        """By how much each quantity may be off, in logs, where no run had a row's text.

        The text may be like any of those that runs had, and by ``_UNKNOWN_TEXT`` unlike all of them.
        """
        shifts = {ELAPSED: _UNKNOWN_TEXT * rows.unknown_texts, MEMORY: _UNKNOWN_TEXT * rows.unknown_texts}
        for unknown in list_unknown_texts(rows, self.encoder):
            own, at = self._points(unknown.rows), unknown.places
            for level in unknown.with_known:
                for name, values in self._points(level).items():
                    shifts[name][at] = np.maximum(shifts[name][at], np.abs(np.log(values / own[name])))
        return shifts

    def _find_machine_shift(self, unit: Floats, rows: EncodedRows) -> Floats:
        """By how much the time may be off, in logs, on another machine; less where its speed is known."""
        unknown = rows.other_machine & ~self.units.knows_machine(rows.named, len(unit))
        return np.asarray(np.maximum(_OTHER_MACHINE * unknown, self.units.find_shift(unit)))

    def _widths(self, name: str, used: str, rows: EncodedRows) -> Floats:
        """How far each row may lie from its prediction, in units of the spread."""
        chosen = self.models.get(used)
        if chosen is not None and isinstance(chosen.model, ConstantRunRegressor):
            return np.ones(len(rows.X))  # the columns carry no information, so nor do values outside the runs
        fitted = self.models.get((ELAPSED if name == CUSTOM else name) + DEVIATION)
        if fitted is None or not isinstance(fitted.model, GaussianProcessRunRegressor):
            return 1 + rows.extrapolation + rows.unknown_texts
        return self._run(fitted.model.spread, rows.X)

    def _bounds(self, name: str, values: Mapping[str, Floats], rows: EncodedRows, question: Question) -> Bounds:
        outlay = MEMORY_OUTLAY if name == MEMORY else TIME_OUTLAY
        marginal, found = self.marginals.get(ELAPSED if name == CUSTOM else name), None
        for number in sorted(set(rows.regime.tolist())):
            used = self._used(name, REGIMES[number], self.spreads)
            value, spread = values[self._used(name, REGIMES[number], values)], self.spreads[used]
            widths, here = self._widths(name, used, rows), self._allow_for_saturation(used, rows, question)
            if REGIMES[number] == BETWEEN:
                # The spread there is that of one value left out; noise apart, each further one adds as much.
                widths = widths * np.sqrt((1 + np.maximum(rows.unmeasured, 1)) / 2)
            if marginal is None:  # transferred, with too few runs for one
                bounds = here.bounds(value, spread, widths, outlay)
            else:
                bounds = marginal.limit(here, value, spread, widths, extrapolation=rows.extrapolation, outlay=outlay)
            found = bounds if found is None else found.replaced(rows.regime == number, bounds)
        assert found is not None
        return found

    def _allow_for_saturation(self, used: str, rows: EncodedRows, question: Question) -> Question:
        fitted = self.models.get(used)
        return (
            question
            if fitted is None
            else replace(question, shift=question.shift + fitted.find_saturation_shift(rows.X))
        )

    def _uses_custom(self, regime: Regimes) -> NDArray[np.bool_]:
        card = self.card
        wins = {ON_GRID: card.uses_custom, BETWEEN: card.uses_custom_between, BEYOND: card.uses_custom_beyond}
        judged = [wins[self._used(ELAPSED, name, self.spreads).removeprefix(ELAPSED)] for name in REGIMES]
        return np.array(judged, dtype=bool)[regime]

    def predict(
        self,
        specs: Sequence[RunSpec],
        *,
        machines: Sequence[Machine] | None = None,
        level: float = DEFAULT_LEVEL,
        risk: float | None = None,
        retry_cost: float | None = None,
    ) -> list[Prediction]:
        """A prediction for each specification."""
        columns = self.tabulate(specs, machines)
        forecast = self.forecast(columns, len(specs), level=level, risk=risk, retry_cost=retry_cost)
        return self.explain(specs, columns, forecast, level=level)

    def tabulate(self, specs: Sequence[RunSpec], machines: Sequence[Machine] | None = None) -> Columns:
        """Specifications as the columns that :meth:`forecast` reads."""
        return build_columns(specs, machines)

    def explain(
        self, specs: Sequence[RunSpec], columns: Columns, forecast: Forecast, *, level: float
    ) -> list[Prediction]:
        """A forecast row by row, with its warnings."""
        return [self._prediction(spec, row, columns, forecast, level) for row, spec in enumerate(specs)]

    def measured_counts(self, resource: str) -> tuple[int, ...] | None:
        """The only count of a resource that runs had; ``None`` if it varied."""
        field = self._field(resource)
        return (int(field.low),) if field.constant else None

    def measured_range(self, resource: str) -> tuple[float, float]:
        """The least and the largest count of a resource that runs had."""
        field = self._field(resource)
        return field.low, field.high

    def measured_levels(self, name: str) -> tuple[str, ...]:
        """The texts that runs had in a column; empty if it is not known."""
        found = next((column for column in self.encoder.fields if column.name == name), None)
        return tuple(filter(None, found.levels)) if found is not None and found.levels is not None else ()

    def usual_counts(self) -> dict[str, int]:
        """What most runs had of each resource."""
        return {name: int(float(self._field(name).fill)) for name in ("cores", "gpus", "nodes")}

    def _field(self, name: str) -> Field:
        return next(field for field in self.encoder.fields if field.name == name)

    def risk(self, forecast: Forecast, *, walltime_s: Floats, memory: Floats) -> Floats:
        """The chance that these requests are too small, in time or in memory."""
        fits = 1 - forecast.elapsed.exceeded(walltime_s)
        if forecast.memory is not None:
            fits = fits * (1 - forecast.memory.exceeded(memory))
        return np.asarray(1 - fits)

    def _prediction(self, spec: RunSpec, row: int, columns: Columns, forecast: Forecast, level: float) -> Prediction:
        memory = forecast.memory
        return Prediction(
            parameters=spec.parameters,
            allocation=spec.allocation,
            elapsed_s=forecast.elapsed.estimate(row, level),
            peak_memory_bytes=memory.estimate(row, level) if memory else None,
            request=Request(
                walltime_s=float(forecast.elapsed.request[row]),
                memory_bytes=math.ceil(memory.request[row]) if memory else None,
                retries_walltime_s=tuple(forecast.elapsed.retries[row].tolist()),
                retries_memory=tuple(math.ceil(retry) for retry in memory.retries[row]) if memory else (),
            ),
            basic=forecast.basic.estimate(row, level),
            custom=forecast.custom.estimate(row, level) if forecast.custom else None,
            warnings=self._list_warnings(
                {name: column[row : row + 1] for name, column in columns.items()}, forecast.other_machine[row]
            ),
        )

    def _list_warnings(self, row: Columns, other_machine: bool) -> tuple[PredictionWarning, ...]:
        known = (*self.warnings, *self._warn_of_few_runs(), *self.encoder.list_warnings(row))
        if not other_machine:
            return known
        cpu = str(row[MACHINE_CPU][0]) or "an unnamed CPU"
        scaled = bool(self.units.knows_machine(row, 1)[0])
        how = "scaled by its speed" if scaled else "that of the measured machines"
        text = f"no run was made on {cpu}; the time is {how}, with a wider interval"
        return (*known, build_warning("other-machine", text, cpu=cpu, scaled=scaled))

    def _warn_of_few_runs(self) -> tuple[PredictionWarning, ...]:
        transfer = self.card.transfer
        if transfer is None or transfer.alone is not None:
            return ()
        own, source = transfer.configurations, transfer.source
        text = f"only {own} configurations of it were run; the rest is transferred from {source}, with a wider interval"
        return (build_warning("few-runs", text, configurations=own, source=source),)

    def _whole(self, formula: str, columns: Columns, values: Columns) -> Floats:
        with np.errstate(all="ignore"):
            whole = Formula(formula).evaluate({**columns, **values}) + values.get(REMAINDER, 0.0)
        return np.asarray(np.clip(np.nan_to_num(whole, nan=SMALLEST), SMALLEST, LARGEST))

    def _is_other_machine(self, columns: Columns, rows: int) -> NDArray[np.bool_]:
        asked = columns.get(MACHINE_CPU)
        measured = next((field.levels for field in self.encoder.fields if field.name == MACHINE_CPU), None)
        if asked is None or measured is None:
            return np.zeros(rows, dtype=bool)
        return ~np.isin(asked.astype(str).astype(object), np.array(measured, dtype=object))


def _is_used(name: str, rows: EncodedRows) -> bool:
    """Whether a model predicts rows; those for values that were not measured are used for such rows only."""
    if name.endswith(DEVIATION):
        return False
    regime = next((suffix for suffix in (BETWEEN, BEYOND) if name.endswith(suffix)), None)
    if regime is None:
        return True
    used = {
        name.removesuffix(regime) + other
        for present in set(rows.regime.tolist())
        for other in _USED_WHERE[REGIMES[present]][:-1]
    }
    return name in used
