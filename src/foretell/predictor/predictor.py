"""Answers for configurations nobody has run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.entities.formula import Formula
from foretell.entities.learned import ModelCard
from foretell.entities.prediction import Estimate, Prediction, Request
from foretell.entities.records import from_record, to_record
from foretell.entities.run import Allocation, Machine, RunSpec
from foretell.errors import StoreError
from foretell.features.encode import Encoder, Field
from foretell.features.table import MACHINE_CPU, Columns, build_columns
from foretell.models.intervals import Spread
from foretell.models.persist import dump_models, load_models
from foretell.models.recipes import FittedRecipe
from foretell.models.requests import MEMORY as MEMORY_OUTLAY
from foretell.models.requests import TIME as TIME_OUTLAY
from foretell.models.requests import Outlay, plan_for_widths
from foretell.models.runs import LARGEST, SMALLEST, ProcessRunRegressor, RunRegressor
from foretell.predictor.custom import CUSTOM
from foretell.predictor.units import BENCH_VERSION, Units

Floats: TypeAlias = NDArray[np.float64]

ELAPSED, MEMORY = "elapsed_s", "peak_memory_bytes"
BETWEEN = " between"  # after a quantity's name: its model for values between those measured
DOUBT = " doubt"  # after a quantity's name: the model that says how far rows stray
SOURCE = "source "  # before the names of models that are another app's
DEFAULT_LEVEL = 0.9
_TRIES = 3
_OTHER_MACHINE = float(np.log(1.5))  # how far another machine's speed may be from the one measured on, each way
_STRANGER = float(np.log(2.0))  # a kind that no run had may take half or twice as long
_STRETCH = 0.05  # doubt that one more range away adds by itself, however well the inside is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Estimates as columns: the value, its bounds at the level, the request and what to ask for after it.

    A new run strays from the value by ``shift`` at most and by the spread times ``width``, in logs.
    """

    value: Floats
    low: Floats
    high: Floats
    request: Floats
    retries: Floats  # a column a try
    width: Floats
    shift: Floats

    def estimate(self, row: int, level: float) -> Estimate:
        value, low, high = float(self.value[row]), float(self.low[row]), float(self.high[row])
        return Estimate(value=value, low=low, high=high, level=level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predictions for many rows at once, as columns.

    ``stretch`` is how far a row lies outside the runs (0: inside). ``carried`` rows are for a machine of a kind no
    run was made on: the time is carried over as it is, and the bounds are wider. ``off_grid`` rows have values between
    those measured, and the models chosen for that answer.
    """

    elapsed: Bounds
    basic: Bounds
    custom: Bounds | None
    memory: Bounds | None
    stretch: Floats
    carried: NDArray[np.bool_]
    off_grid: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """What was learned of one app: a model for each quantity, and how far the truth strays from each.

    The models of ``borrowed`` quantities answer in units of what ``source``, another app's predictor, says.
    """

    encoder: Encoder
    models: Mapping[str, FittedRecipe]
    spreads: Mapping[str, Spread]
    formula: str | None
    card: ModelCard
    units: Units
    source: "Predictor | None" = None
    borrowed: tuple[str, ...] = ()

    def forecast(
        self, columns: Columns, rows: int, *, level: float = DEFAULT_LEVEL, risk: float | None = None
    ) -> Forecast:
        """Time and memory for rows given as columns; quick for hundreds of thousands of them.

        Without a ``risk`` of the first request being too small, the least expected cost decides what to ask for.
        """
        return self._forecast(self._read(columns, rows), level=level, risk=risk)

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
            off_grid=self.encoder.off_grid(columns, rows),
            source=self.source._read(self._lent(columns, rows), rows) if self.source else None,
        )

    def _lent(self, columns: Columns, rows: int) -> Columns:
        """A question as the source reads it: what it lacks is as in this app's own runs, not as in the source's."""
        kinds = {field.name: float if field.levels is None else object for field in self.encoder.fields}
        usual = {field.name: np.full(rows, field.fill, dtype=kinds[field.name]) for field in self.encoder.fields}
        return {**usual, **columns}

    def _values(self, rows: "_Rows") -> dict[str, Floats]:
        """What each model says, in seconds or bytes."""
        values = {name: model.predict(rows.X) for name, model in self.models.items() if self._answers(name, rows)}
        units = {ELAPSED: self.units.of(rows.named, len(rows.X))}
        if self.source is not None and rows.source is not None:
            lent = self.source._points(rows.source)
            units |= {name: lent[name] for name in self.borrowed}
        return values | {
            name: values[name] * unit
            for quantity, unit in units.items()
            for name in (quantity, quantity + BETWEEN)
            if name in values
        }

    def _points(self, rows: "_Rows") -> dict[str, Floats]:
        values = self._settled(rows, self._values(rows))
        points = {name: values[name] for name in (ELAPSED, MEMORY) if name in values}
        if self.formula is not None:
            whole = self._whole(self.formula, rows.named, values)
            points[ELAPSED] = np.where(self._uses_custom(rows.off_grid), whole, points[ELAPSED])
        return points

    def _settled(self, rows: "_Rows", values: Mapping[str, Floats]) -> dict[str, Floats]:
        """Of each quantity what the model for such rows says: for values as measured, or in between."""
        return {name: _where(rows.off_grid, values.get(name + BETWEEN), value) for name, value in values.items()}

    def _forecast(self, rows: "_Rows", *, level: float, risk: float | None) -> Forecast:
        unit = self.units.of(rows.named, len(rows.X))
        values = self._values(rows)
        shift = _STRETCH * rows.stretch + _STRANGER * rows.strangers
        staying = _Doubt(shift=shift, level=level, risk=risk)
        moving = replace(staying, shift=staying.shift + self._other_machine(unit, rows))
        basic = self._bounds(ELAPSED, values, rows, moving)
        custom = None
        if self.formula is not None:
            whole = self._whole(self.formula, rows.named, self._settled(rows, values))
            custom = self._bounds(CUSTOM, {CUSTOM: whole, CUSTOM + BETWEEN: whole}, rows, moving)
        return Forecast(
            elapsed=basic if custom is None else _merge(self._uses_custom(rows.off_grid), custom, basic),
            basic=basic,
            custom=custom,
            memory=self._bounds(MEMORY, values, rows, staying) if MEMORY in values else None,
            stretch=rows.stretch + rows.strangers,
            carried=rows.carried,
            off_grid=rows.off_grid,
        )

    def _answers(self, name: str, rows: "_Rows") -> bool:
        """Whether a model has anything to say: those for values in between need rows in between."""
        return not name.endswith(DOUBT) and (not name.endswith(BETWEEN) or bool(rows.off_grid.any()))

    def _other_machine(self, unit: Floats, rows: "_Rows") -> Floats:
        """Where machines are known by how fast they are, less doubt is left than where they are not."""
        unknown = rows.carried & ~self.units.knows_machine(rows.named, len(unit))
        return np.asarray(np.maximum(_OTHER_MACHINE * unknown, self.units.doubt(unit)))

    def _widths(self, name: str, rows: "_Rows") -> Floats:
        fitted = self.models.get((ELAPSED if name == CUSTOM else name) + DOUBT)
        if fitted is None or not isinstance(fitted.model, ProcessRunRegressor):
            return 1 + rows.stretch + rows.strangers
        return np.asarray(fitted.model.spread(rows.X))

    def _bounds(self, name: str, values: Mapping[str, Floats], rows: "_Rows", doubt: "_Doubt") -> Bounds:
        widths, outlay = self._widths(name, rows), MEMORY_OUTLAY if name == MEMORY else TIME_OUTLAY
        on_grid = doubt.bounds(values[name], self.spreads[name], widths, outlay)
        between = name + BETWEEN
        if between not in values or between not in self.spreads:
            return on_grid
        return _merge(rows.off_grid, doubt.bounds(values[between], self.spreads[between], widths, outlay), on_grid)

    def _uses_custom(self, off_grid: NDArray[np.bool_]) -> NDArray[np.bool_]:
        in_between = self.card.uses_custom_between if ELAPSED + BETWEEN in self.spreads else self.card.uses_custom
        return np.where(off_grid, in_between, self.card.uses_custom)

    def predict(
        self,
        specs: Sequence[RunSpec],
        *,
        machines: Sequence[Machine] | None = None,
        level: float = DEFAULT_LEVEL,
        risk: float | None = None,
    ) -> list[Prediction]:
        """A prediction for each specification."""
        columns = self.tabulate(specs, machines)
        forecast = self.forecast(columns, len(specs), level=level, risk=risk)
        return self.explain(specs, columns, forecast, level=level)

    def tabulate(self, specs: Sequence[RunSpec], machines: Sequence[Machine] | None = None) -> Columns:
        """Specifications as the columns that :meth:`forecast` reads."""
        return build_columns(specs, machines)

    def explain(
        self, specs: Sequence[RunSpec], columns: Columns, forecast: Forecast, *, level: float
    ) -> list[Prediction]:
        """A forecast row by row, with its doubts in words."""
        return [self._prediction(spec, row, columns, forecast, level) for row, spec in enumerate(specs)]

    def measured_counts(self, resource: str) -> tuple[int, ...] | None:
        """The only count of a resource that runs had; ``None`` if it varied."""
        field = self._field(resource)
        return (int(field.low),) if field.constant else None

    def usual_counts(self) -> dict[str, int]:
        """What most runs had of each resource."""
        return {name: int(float(self._field(name).fill)) for name in ("cores", "gpus", "nodes")}

    def _field(self, name: str) -> Field:
        return next(field for field in self.encoder.fields if field.name == name)

    def risk(self, forecast: Forecast, *, walltime_s: Floats, memory: Floats) -> Floats:
        """The chance that these requests are too small, in time or in memory."""
        basic, custom = (self._exceeded(name, walltime_s, forecast.elapsed, forecast) for name in (ELAPSED, CUSTOM))
        fits = 1 - np.where(self._uses_custom(forecast.off_grid), custom, basic)
        if forecast.memory is not None:
            fits = fits * (1 - self._exceeded(MEMORY, memory, forecast.memory, forecast))
        return np.asarray(1 - fits)

    def _exceeded(self, name: str, request: Floats, bounds: Bounds, forecast: Forecast) -> Floats:
        """The reverse of :meth:`_Doubt.bounds`: from a bound to the chance of exceeding it."""
        log_ratio = (np.log(request / bounds.value) - bounds.shift) / bounds.width
        if name not in self.spreads:
            return np.zeros_like(log_ratio)
        on_grid, between = self.spreads[name], self.spreads.get(name + BETWEEN)
        chance = on_grid.exceeded(log_ratio)
        return chance if between is None else np.where(forecast.off_grid, between.exceeded(log_ratio), chance)

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
            return cls._restore(models, facts, card)
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise StoreError(
                f"the stored model lacks a part or has a foreign one ({exc!r}); run 'foretell build'"
            ) from exc

    @classmethod
    def _restore(cls, models: Mapping[str, RunRegressor], facts: Mapping[str, Any], card: ModelCard) -> Self:
        formula, source = facts["formula"], facts.get("source")
        lent = {name.removeprefix(SOURCE): model for name, model in models.items() if name.startswith(SOURCE)}
        factors = facts["factors"].items()
        return cls(
            encoder=from_record(Encoder, facts["encoder"]),
            models={name: FittedRecipe(model=models[name], factor=factor) for name, factor in factors},
            spreads={name: from_record(Spread, record) for name, record in facts["spreads"].items()},
            formula=None if formula is None else Formula.parse(formula).text,
            card=card,
            units=from_record(Units, facts["units"]),
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
            doubts=self._doubts(
                {name: column[row : row + 1] for name, column in columns.items()}, forecast.carried[row]
            ),
        )

    def _doubts(self, row: Columns, carried: bool) -> tuple[str, ...]:
        known = (*self._few(), *self.encoder.doubts(row))
        if not carried:
            return known
        cpu = str(row[MACHINE_CPU][0]) or "an unnamed CPU"
        if self.units.knows_machine(row, 1)[0]:
            return (*known, f"no run was made on {cpu}; the time is scaled by how fast it is, with wider bounds")
        return (*known, f"no run was made on {cpu}; the time is carried over, with wider bounds")

    def _few(self) -> tuple[str, ...]:
        borrowed = self.card.borrowed
        if borrowed is None or borrowed.alone is not None:
            return ()
        own, source = borrowed.configurations, borrowed.source
        return (f"only {own} configurations of its own were run; the rest is known from {source}, with wider bounds",)

    def _whole(self, formula: str, columns: Columns, values: Columns) -> Floats:
        with np.errstate(all="ignore"):
            whole = Formula(formula).evaluate({**columns, **values})
        return np.asarray(np.clip(np.nan_to_num(whole, nan=SMALLEST), SMALLEST, LARGEST))

    def _carried(self, columns: Columns, rows: int) -> NDArray[np.bool_]:
        asked = columns.get(MACHINE_CPU)
        measured = next((field.levels for field in self.encoder.fields if field.name == MACHINE_CPU), None)
        if asked is None or measured is None:
            return np.zeros(rows, dtype=bool)
        return ~np.isin(asked.astype(str), measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Questions as the models read them; ``named`` are the columns that the formula of phases reads."""

    X: Floats
    named: Columns
    stretch: Floats
    strangers: Floats
    carried: NDArray[np.bool_]
    off_grid: NDArray[np.bool_]
    source: "_Rows | None" = None

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
            off_grid=np.repeat(self.off_grid, along) | np.tile(other.off_grid, across),
        )


def _abridge(card: ModelCard) -> ModelCard:
    """A source's card without what only its own readers want."""
    short = {name: replace(judged, leaderboard=(), pairs=()) for name, judged in card.judgements.items()}
    return replace(card, judgements=short)


def _where(mask: NDArray[np.bool_], chosen: Floats | None, otherwise: Floats) -> Floats:
    return otherwise if chosen is None else np.where(mask, chosen, otherwise)


def _merge(mask: NDArray[np.bool_], chosen: Bounds, otherwise: Bounds) -> Bounds:
    if mask.all():
        return chosen
    if not mask.any():
        return otherwise
    fields = {
        name: np.where(mask if old.ndim == 1 else mask[:, None], new, old)
        for name in Bounds.__slots__
        for new, old in [(getattr(chosen, name), getattr(otherwise, name))]
    }
    return Bounds(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doubt:
    """What is asked of the bounds, and by how much they widen outside the runs or on another machine, in logs."""

    shift: Floats
    level: float
    risk: float | None

    def bounds(self, value: Floats, spread: Spread, widths: Floats, outlay: Outlay) -> Bounds:
        outside = (1 - self.level) / 2
        plan = plan_for_widths(spread, outlay, widths=widths, tries=_TRIES, risk=self.risk)
        with np.errstate(over="ignore"):
            high = value * np.exp(widths * spread.upper(outside) + self.shift)
            low = value * np.exp(widths * spread.lower(outside) - self.shift)
            asked = np.minimum((value * np.exp(self.shift))[:, None] * plan, LARGEST)
        return Bounds(
            value=value,
            low=np.minimum(low, value),
            high=np.maximum(high, value),
            request=asked[:, 0],
            retries=asked[:, 1:],
            width=widths,
            shift=self.shift,
        )
