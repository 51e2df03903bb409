"""Answers for configurations nobody has run."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import StoreError
from foretell.core.formula import Formula
from foretell.core.intervals import Spread
from foretell.core.model_card import ModelCard
from foretell.core.prediction import Prediction, Request
from foretell.core.run import Allocation, Machine, RunSpec
from foretell.core.serialization import from_record, to_record
from foretell.core.warning import PredictionWarning, build_warning
from foretell.runtimes.bounds import Bounds, Marginal, Question
from foretell.runtimes.encoding import Encoder, Field
from foretell.runtimes.extrapolation import BETWEEN, BEYOND, ON_GRID, REGIMES
from foretell.runtimes.phase_formula import CUSTOM, REMAINDER
from foretell.runtimes.proportionality import BENCH_VERSION, Units
from foretell.runtimes.recipes import FittedRecipe, Saturation
from foretell.runtimes.regressor_files import dump_models, load_models
from foretell.runtimes.regressors import (
    LARGEST,
    SMALLEST,
    ConstantRunRegressor,
    GaussianProcessRunRegressor,
    RunRegressor,
)
from foretell.runtimes.requests import MEMORY as MEMORY_OUTLAY
from foretell.runtimes.requests import TIME as TIME_OUTLAY
from foretell.runtimes.requests import share_risk
from foretell.runtimes.run_table import MACHINE_CPU, Columns, build_columns

Floats: TypeAlias = NDArray[np.float64]
Regimes: TypeAlias = NDArray[np.int8]

ELAPSED, MEMORY = "elapsed_s", "peak_memory_bytes"
DOUBT = " doubt"  # after a quantity's name: the model that says how far rows stray
SOURCE = "source "  # before the names of models that are another app's
DEFAULT_LEVEL = 0.9
DEFAULT_RISK = 0.1  # the chance that a first request is too small, in time or in memory
_USED_WHERE = {ON_GRID: (ON_GRID,), BETWEEN: (BETWEEN, ON_GRID), BEYOND: (BEYOND, BETWEEN, ON_GRID)}
_OTHER_MACHINE = float(np.log(1.5))  # how far another machine's speed may be from the one measured on, each way
_STRANGER = float(np.log(2.0))  # a kind that no run had may take half or twice as long
_STRETCH = 0.05  # doubt that one more range away adds by itself, however well the inside is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predictions for many rows at once, as columns.

    ``stretch`` is how far a row lies outside the runs (0: inside). ``carried`` rows are for a machine of a kind no
    run was made on: the time is used as it is, and the interval is wider. ``regime`` says by which models a row is
    predicted, as an index of ``REGIMES``: with values as measured, between measured ones, or beyond them.
    """

    elapsed: Bounds
    basic: Bounds
    custom: Bounds | None
    memory: Bounds | None
    stretch: Floats
    carried: NDArray[np.bool_]
    regime: Regimes


def _ask(model: Callable[[Floats], Floats], X: Floats) -> Floats:
    """What a model says of each row.

    Raises:
        StoreError: if it says nothing: somebody changed it.
    """
    try:
        told = np.asarray(model(X))
    except (ValueError, IndexError, TypeError, AttributeError, ArithmeticError) as exc:
        raise StoreError(f"the stored model fails ({exc!r}); run 'foretell build' to make it anew") from exc
    if told.shape != (len(X),) or not np.all(told > 0):
        raise StoreError("the stored model predicts no positive numbers; run 'foretell build' to make it anew")
    return told


def _check_columns(model: RunRegressor, encoder: Encoder) -> RunRegressor:
    """A model that reads what the encoder writes.

    Raises:
        ValueError: if it reads more columns or fewer.
    """
    if model.n_features_in_ != len(encoder.names):
        raise ValueError(f"a model of {model.n_features_in_} columns, where there are {len(encoder.names)}")
    return model


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """What was learned of one app: a model for each quantity, and how far the truth strays from each.

    The models of ``borrowed`` quantities answer in units of what ``source``, another app's predictor, says.
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
    borrowed: tuple[str, ...] = ()
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
        addition to its request, in multiples of the prediction. With a ``regime`` all rows are predicted by its models,
        wherever they lie.
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
        """The matrix that :meth:`forecast_pairs` asks the models with."""
        return self._read_pairs(specs, options).X

    def _read_pairs(self, specs: Sequence[RunSpec], options: Sequence[tuple[Allocation, Machine]]) -> "_Rows":
        """Specifications and options are encoded once each, not once a pair."""
        blank = [RunSpec(app="", parameters={}, allocation=allocation) for allocation, _ in options]
        placed = build_columns(blank, [machine for _, machine in options])
        asked = {name: column for name, column in build_columns(specs).items() if name not in placed}
        return self._cross(self._read(asked, len(specs)), self._read(placed, len(options)), placed)

    def points(self, columns: Columns, rows: int) -> dict[str, Floats]:
        """Time and memory without bounds."""
        return self._points(self._read(columns, rows))

    def _cross(self, asked: "_Rows", options: "_Rows", placed: Columns) -> "_Rows":
        crossed = asked.cross(options, from_other=self.encoder.comes_from(placed))
        if self.source is None or asked.source is None or options.source is None:
            return crossed
        return replace(crossed, source=self.source._cross(asked.source, options.source, placed))

    def _read(self, columns: Columns, rows: int) -> "_Rows":
        named = {BENCH_VERSION, *self.units.names, *(Formula(self.formula).names if self.formula is not None else ())}
        return _Rows(
            X=self.encoder.encode(columns, rows),
            named={name: column for name, column in columns.items() if name in named},
            stretch=self.encoder.stretch(columns, rows),
            strangers=self.encoder.strangers(columns, rows),
            carried=self._carried(columns, rows),
            regime=self.encoder.regime(columns, rows),
            unmeasured=self.encoder.count_unmeasured(columns, rows),
            source=self.source._read(self._lent(columns, rows), rows) if self.source else None,
        )

    def _lent(self, columns: Columns, rows: int) -> Columns:
        """A question as the source reads it: what it lacks is as in this app's own runs, not as in the source's."""
        kinds = {field.name: float if field.levels is None else object for field in self.encoder.fields}
        usual = {field.name: np.full(rows, field.fill, dtype=kinds[field.name]) for field in self.encoder.fields}
        return {**usual, **columns}

    def _values(self, rows: "_Rows") -> dict[str, Floats]:
        """What each model predicts, in seconds or bytes.

        A text that no run had leaves a row without a mark, of which some models make next to nothing. What lies outside
        the predictions for all known texts is not believed: their mean, in logs, takes its place.
        """
        values = self._raw_values(rows)
        for unknown, few, shares, levels in self._list_unknown(rows):
            known = [self._raw_values(level) for level in levels]
            for name in self._raw_values(few):
                logs, own = np.log([one[name] for one in known]), np.log(values[name][unknown])
                believed = (own >= logs.min(axis=0)) & (own <= logs.max(axis=0))
                values[name][unknown] = np.exp(np.where(believed, own, shares @ logs))
        return values

    def _raw_values(self, rows: "_Rows") -> dict[str, Floats]:
        values = {name: _ask(model.predict, rows.X) for name, model in self.models.items() if self._answers(name, rows)}
        units = {ELAPSED: self.units.of(rows.named, len(rows.X))}
        if self.source is not None and rows.source is not None:
            lent = self.source._points(rows.source)
            units |= {name: lent[name] for name in self.borrowed}
        return values | {
            name: values[name] * unit
            for quantity, unit in units.items()
            for name in (quantity + regime for regime in REGIMES)
            if name in values
        }

    def _points(self, rows: "_Rows") -> dict[str, Floats]:
        values = self._by_regime(rows, self._values(rows))
        points = {name: values[name] for name in (ELAPSED, MEMORY) if name in values}
        if self.formula is not None:
            whole = self._whole(self.formula, rows.named, values)
            points[ELAPSED] = np.where(self._uses_custom(rows.regime), whole, points[ELAPSED])
        return points

    def _by_regime(self, rows: "_Rows", values: Mapping[str, Floats]) -> dict[str, Floats]:
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
        self, rows: "_Rows", *, level: float, risk: float | None, retry_cost: float | None = None
    ) -> Forecast:
        unit = self.units.of(rows.named, len(rows.X))
        values = self._values(rows)
        unknown = self._find_level_shifts(rows)
        quantities = 1 + (MEMORY in values)
        share = share_risk(DEFAULT_RISK if risk is None else risk, quantities)
        shifts = {name: _STRETCH * rows.stretch + shift for name, shift in unknown.items()}
        moving = Question(
            shift=shifts[ELAPSED] + self._other_machine(unit, rows),
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
            stretch=rows.stretch + rows.strangers,
            carried=rows.carried,
            regime=rows.regime,
        )

    def _find_level_shifts(self, rows: "_Rows") -> dict[str, Floats]:
        """By how much each quantity may be off, in logs, where a text is one that no run had.

        It may be like any of those that runs had, and by ``_STRANGER`` unlike all of them.
        """
        shifts = {ELAPSED: _STRANGER * rows.strangers, MEMORY: _STRANGER * rows.strangers}
        for unknown, few, _, levels in self._list_unknown(rows):
            own = self._points(few)
            for level in levels:
                for name, values in self._points(level).items():
                    shifts[name][unknown] = np.maximum(shifts[name][unknown], np.abs(np.log(values / own[name])))
        return shifts

    def _list_unknown(self, rows: "_Rows") -> Iterator[tuple[NDArray[np.intp], "_Rows", Floats, list["_Rows"]]]:
        """For each text that no run had in some rows: which, these rows, and them with each level that runs had.

        Between the last two stands which share of the runs had the level.
        """
        for columns, shares in self.encoder.list_levels() if rows.strangers.any() else ():
            unknown = np.flatnonzero((rows.X[:, columns] == 0).all(axis=1))
            if len(unknown):
                few = rows.take(unknown)
                yield unknown, few, shares, [replace(few, X=_mark(few.X, column)) for column in columns]

    def _answers(self, name: str, rows: "_Rows") -> bool:
        """Whether a model is needed: those for values that were not measured need such rows."""
        if name.endswith(DOUBT):
            return False
        regime = next((suffix for suffix in (BETWEEN, BEYOND) if name.endswith(suffix)), None)
        if regime is None:
            return True
        used = {
            name.removesuffix(regime) + other
            for present in np.unique(rows.regime)
            for other in _USED_WHERE[REGIMES[present]][:-1]
        }
        return name in used

    def _other_machine(self, unit: Floats, rows: "_Rows") -> Floats:
        """Where machines are known by how fast they are, less doubt is left than where they are not."""
        unknown = rows.carried & ~self.units.knows_machine(rows.named, len(unit))
        return np.asarray(np.maximum(_OTHER_MACHINE * unknown, self.units.doubt(unit)))

    def _widths(self, name: str, used: str, rows: "_Rows") -> Floats:
        """How far each row may lie from its prediction, in units of the spread."""
        chosen = self.models.get(used)
        if chosen is not None and isinstance(chosen.model, ConstantRunRegressor):
            return np.ones(len(rows.X))  # the columns carry no information, so nor do values outside the runs
        fitted = self.models.get((ELAPSED if name == CUSTOM else name) + DOUBT)
        if fitted is None or not isinstance(fitted.model, GaussianProcessRunRegressor):
            return 1 + rows.stretch + rows.strangers
        return _ask(fitted.model.spread, rows.X)

    def _bounds(self, name: str, values: Mapping[str, Floats], rows: "_Rows", question: Question) -> Bounds:
        outlay = MEMORY_OUTLAY if name == MEMORY else TIME_OUTLAY
        marginal, found = self.marginals.get(ELAPSED if name == CUSTOM else name), None
        for number in np.unique(rows.regime):
            used = self._used(name, REGIMES[number], self.spreads)
            value, spread = values[self._used(name, REGIMES[number], values)], self.spreads[used]
            widths, here = self._widths(name, used, rows), self._allow_for_saturation(used, rows, question)
            if REGIMES[number] == BETWEEN:
                # The spread there is that of one value left out; noise apart, each further one adds as much.
                widths = widths * np.sqrt((1 + np.maximum(rows.unmeasured, 1)) / 2)
            if marginal is None:  # a model of an earlier version
                bounds = here.bounds(value, spread, widths, outlay)
            else:
                bounds = marginal.limit(here, value, spread, widths, stretch=rows.stretch, outlay=outlay)
            found = bounds if found is None else found.replaced(rows.regime == number, bounds)
        assert found is not None
        return found

    def _allow_for_saturation(self, used: str, rows: "_Rows", question: Question) -> Question:
        fitted = self.models.get(used)
        return question if fitted is None else replace(question, shift=question.shift + fitted.find_doubt(rows.X))

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

    def dump(self) -> bytes:
        """This predictor as bytes, without pickle."""
        return dump_models(self._list_models(), facts=self._facts())

    def _list_models(self) -> dict[str, RunRegressor]:
        lent = self.source._list_models() if self.source else {}
        own = {name: fitted.model for name, fitted in self.models.items()}
        return own | {SOURCE + name: model for name, model in lent.items()}

    def _facts(self) -> dict[str, Any]:
        return {
            "encoder": to_record(self.encoder),
            "spreads": {name: to_record(spread) for name, spread in self.spreads.items()},
            "factors": {name: fitted.factor for name, fitted in self.models.items()},
            "saturation": {
                name: to_record(fitted.saturation) for name, fitted in self.models.items() if fitted.saturation
            },
            "marginals": {name: to_record(marginal) for name, marginal in self.marginals.items()},
            "formula": self.formula,
            "units": to_record(self.units),
            "borrowed": list(self.borrowed),
            "source": {**self.source._facts(), "card": to_record(_abridge(self.source.card))} if self.source else None,
        }

    @classmethod
    def load(cls, blob: bytes, card: ModelCard) -> Self:
        """What :meth:`dump` wrote.

        Raises:
            StoreError: if the bytes are damaged or not ours.
        """
        models, facts = load_models(blob)
        try:
            predictor = cls._restore(models, facts, card)
            predictor._try_out()
        except Exception as exc:  # what somebody changed fails in as many ways as there are parts
            raise StoreError(
                f"the stored model lacks a part or has a foreign one ({exc!r}); run 'foretell build' to make it anew"
            ) from exc
        return predictor

    def _try_out(self) -> None:
        """Ask every model for the usual configuration, and for one that no run had."""
        columns: Columns = {
            field.name: np.array([field.fill, field.fill + 1.5], dtype=float)
            if isinstance(field.fill, float | int)
            else np.array([field.fill, ""], dtype=object)
            for field in self.encoder.fields
        }
        forecast = self.forecast(columns, 2)
        self.explain([RunSpec(app="", parameters={})] * 2, columns, forecast, level=DEFAULT_LEVEL)
        for bounds in (forecast.elapsed, forecast.basic, forecast.memory):
            if bounds is not None and not np.isfinite([bounds.value[0], bounds.low[0], bounds.high[0]]).all():
                raise ValueError("it predicts no numbers")

    @classmethod
    def _restore(cls, models: Mapping[str, RunRegressor], facts: Mapping[str, Any], card: ModelCard) -> Self:
        formula, source = facts["formula"], facts.get("source")
        lent = {name.removeprefix(SOURCE): model for name, model in models.items() if name.startswith(SOURCE)}
        factors, saturation = facts["factors"].items(), facts.get("saturation", {})
        encoder = from_record(Encoder, facts["encoder"])
        return cls(
            encoder=encoder,
            models={
                name: FittedRecipe(
                    model=_check_columns(models[name], encoder),
                    factor=factor,
                    saturation=from_record(Saturation, saturation[name]) if name in saturation else None,
                )
                for name, factor in factors
            },
            spreads={name: from_record(Spread, record) for name, record in facts["spreads"].items()},
            formula=None if formula is None else Formula.parse(formula).text,
            card=card,
            units=from_record(Units, facts["units"]),
            marginals={name: from_record(Marginal, record) for name, record in facts.get("marginals", {}).items()},
            source=cls._restore(lent, source, from_record(ModelCard, source["card"])) if source else None,
            borrowed=tuple(facts.get("borrowed", ())),
        )

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
                {name: column[row : row + 1] for name, column in columns.items()}, forecast.carried[row]
            ),
        )

    def _list_warnings(self, row: Columns, carried: bool) -> tuple[PredictionWarning, ...]:
        known = (*self.warnings, *self._few(), *self.encoder.list_warnings(row))
        if not carried:
            return known
        cpu = str(row[MACHINE_CPU][0]) or "an unnamed CPU"
        scaled = bool(self.units.knows_machine(row, 1)[0])
        how = "scaled by how fast it is" if scaled else "carried over"
        text = f"no run was made on {cpu}; the time is {how}, with wider bounds"
        return (*known, build_warning("other-machine", text, cpu=cpu, scaled=scaled))

    def _few(self) -> tuple[PredictionWarning, ...]:
        borrowed = self.card.borrowed
        if borrowed is None or borrowed.alone is not None:
            return ()
        own, source = borrowed.configurations, borrowed.source
        text = f"only {own} configurations of its own were run; the rest is known from {source}, with wider bounds"
        return (build_warning("few-runs", text, configurations=own, source=source),)

    def _whole(self, formula: str, columns: Columns, values: Columns) -> Floats:
        with np.errstate(all="ignore"):
            whole = Formula(formula).evaluate({**columns, **values}) + values.get(REMAINDER, 0.0)
        return np.asarray(np.clip(np.nan_to_num(whole, nan=SMALLEST), SMALLEST, LARGEST))

    def _carried(self, columns: Columns, rows: int) -> NDArray[np.bool_]:
        asked = columns.get(MACHINE_CPU)
        measured = next((field.levels for field in self.encoder.fields if field.name == MACHINE_CPU), None)
        if asked is None or measured is None:
            return np.zeros(rows, dtype=bool)
        return ~np.isin(asked.astype(str), measured)


def _mark(X: Floats, column: np.intp) -> Floats:
    marked = X.copy()
    marked[:, column] = 1.0
    return marked


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Questions as the models read them; ``named`` are the columns that the formula of phases reads."""

    X: Floats
    named: Columns
    stretch: Floats
    strangers: Floats
    carried: NDArray[np.bool_]
    regime: Regimes
    unmeasured: Floats
    source: "_Rows | None" = None

    def take(self, rows: NDArray[np.intp]) -> "_Rows":
        return _Rows(
            X=self.X[rows],
            named={name: column[rows] for name, column in self.named.items()},
            stretch=self.stretch[rows],
            strangers=self.strangers[rows],
            carried=self.carried[rows],
            regime=self.regime[rows],
            unmeasured=self.unmeasured[rows],
            source=self.source.take(rows) if self.source else None,
        )

    def cross(self, other: "_Rows", *, from_other: NDArray[np.bool_]) -> "_Rows":
        """Every row with every row of the other, which has the matrix columns marked so."""
        across, along = len(self.X), len(other.X)
        X = np.repeat(self.X, along, axis=0)
        X[:, from_other] = np.tile(other.X[:, from_other], (across, 1))
        named = {name: np.repeat(column, along) for name, column in self.named.items()}
        return _Rows(
            X=X,
            named=named | {name: np.tile(column, across) for name, column in other.named.items()},
            stretch=np.repeat(self.stretch, along) + np.tile(other.stretch, across),
            strangers=np.repeat(self.strangers, along) + np.tile(other.strangers, across),
            carried=np.repeat(self.carried, along) | np.tile(other.carried, across),
            regime=np.maximum(np.repeat(self.regime, along), np.tile(other.regime, across)),
            unmeasured=np.repeat(self.unmeasured, along) + np.tile(other.unmeasured, across),
        )


def _abridge(card: ModelCard) -> ModelCard:
    """A source's card without what only its own readers want."""
    short = {name: replace(judged, leaderboard=(), pairs=()) for name, judged in card.judgements.items()}
    return replace(card, judgements=short)
