"""From a table of runs to a predictor."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.app import App
from foretell.core.errors import NotEnoughRunsError
from foretell.core.formula import Formula
from foretell.core.intervals import Spread
from foretell.core.model_card import Judgement, ModelCard
from foretell.core.warning import PredictionWarning, build_warning
from foretell.runtimes.bounds import Marginal
from foretell.runtimes.encoding import BETWEEN, BEYOND, Encoder, Field, fit_encoder
from foretell.runtimes.extrapolation import select_elsewhere
from foretell.runtimes.metrics import DEFAULT_POLICY, get_policy
from foretell.runtimes.phase_formula import Custom, Part, find_remainder, judge_custom
from foretell.runtimes.predictor import CUSTOM, DEVIATION, ELAPSED, MEMORY, REMAINDER, Predictor
from foretell.runtimes.proportionality import FactorRecipe, Units, find_unit_warnings, find_units
from foretell.runtimes.recipes import DEFAULT, FittedRecipe, TrainingSet, list_recipes
from foretell.runtimes.run_table import MACHINE_PREFIX, RunTable
from foretell.runtimes.selection import select

Floats: TypeAlias = NDArray[np.float64]
Progress: TypeAlias = Callable[[str], None]

NEED = 5
NEED_TO_TRANSFER = 2  # configurations of the app itself: one to scale by and one to check that on
_MOST_ROWS = 20_000  # a sample of many runs gives the same model, and building stays quick


def fit_predictor(
    app: App,
    table: RunTable,
    *,
    policy: str = DEFAULT_POLICY,
    candidates: str = DEFAULT,
    seed: int = 0,
    progress: Progress = lambda _: None,
    source: Predictor | None = None,
    transferred: Sequence[str] = (ELAPSED, MEMORY),
) -> Predictor:
    """A predictor of time, memory and phases, each by the candidate that is best on unseen full-scale runs.

    With a ``source``, another app's predictor, ``transferred`` quantities are fitted in units of its predictions.

    Raises:
        NotEnoughRunsError: Fewer than five configurations completed.
        NotFoundError: The policy or the list of candidates is unknown.
    """
    get_policy(policy)
    table, warnings = _sampled(table, seed=seed)
    have = len(np.unique(table.group[~table.censored]))
    if have < NEED:
        raise NotEnoughRunsError(app.name, have=have, need=NEED, to_transfer=NEED_TO_TRANSFER)
    units = Units() if source else find_units(app.per, table.columns)
    warnings = (*warnings, *(() if source else find_unit_warnings(app.per, table.columns)))
    encoder = fit_encoder(table.columns, known=units.names)
    points = source.points(table.columns, len(table)) if source else {}
    points = {name: values for name, values in points.items() if name in transferred}
    encoder = transfer_ranges(encoder, source.encoder) if source and candidates == DEFAULT else encoder
    trainer = _Trainer(
        X=encoder.encode(table.columns, len(table)),
        table=table,
        policy=policy,
        candidates=candidates,
        seed=seed,
        progress=progress,
        with_source=bool(source),
    )
    elapsed = trainer.choose(ELAPSED, table.elapsed_s, points.get(ELAPSED, units.of(table.columns, len(table))))
    memory = trainer.find(MEMORY, table.peak_memory_bytes, points.get(MEMORY))
    phases = trainer.choose_phases(app)
    custom = judge_custom(app.estimate, table, elapsed, phases, policy=policy) if phases and app.estimate else None
    parts = {ELAPSED: elapsed, **({MEMORY: memory} if memory else {}), **phases}
    return Predictor(
        encoder=encoder,
        models=_gather_models(parts),
        spreads=_gather_spreads(parts, custom),
        formula=app.estimate if custom else None,
        units=units,
        marginals={name: part.marginal for name, part in parts.items()},
        source=source,
        transferred=tuple(name for name in points if name in parts),
        card=ModelCard(
            app=app.name,
            policy=policy,
            judgements=_gather_judgements(parts, custom),
            uses_custom=custom is not None and custom.wins,
            uses_custom_between=custom is not None and BETWEEN in custom.wins_elsewhere,
            uses_custom_beyond=custom is not None and BEYOND in custom.wins_elsewhere,
            warnings=(*encoder.warnings, *warnings),
            columns=encoder.names,
        ),
    )


def _gather_models(parts: Mapping[str, Part]) -> dict[str, FittedRecipe]:
    models = {name: part.selected.fitted for name, part in parts.items()}
    models |= {name + DEVIATION: part.selected.deviation for name, part in parts.items() if part.selected.deviation}
    return models | {
        name + regime: chosen.fitted for name, part in parts.items() for regime, chosen in part.elsewhere.items()
    }


def _gather_spreads(parts: Mapping[str, Part], custom: Custom | None) -> dict[str, Spread]:
    spreads = {name: part.selected.spread for name, part in parts.items()}
    spreads |= {
        name + regime: chosen.spread for name, part in parts.items() for regime, chosen in part.elsewhere.items()
    }
    if custom:
        spreads[CUSTOM] = custom.spread
        spreads |= {CUSTOM + regime: spread for regime, spread in custom.elsewhere.items()}
    return spreads


def _gather_judgements(parts: Mapping[str, Part], custom: Custom | None) -> dict[str, Judgement]:
    judgements = {name: _judgement(parts[name]) for name in (ELAPSED, MEMORY) if name in parts}
    if custom:
        known = judgements[ELAPSED]
        judgements[ELAPSED] = replace(
            custom.judgement,
            between=known.between,
            between_winner=known.between_winner,
            beyond=known.beyond,
            beyond_winner=known.beyond_winner,
        )
    return judgements


def transfer_ranges(encoder: Encoder, source: Encoder) -> Encoder:
    """What never varied in the app's own runs but in the source's is taken as measured over the source's range."""
    others = {field.name: field for field in source.fields if field.used and not field.constant}
    return replace(encoder, fields=tuple(_transfer_range(field, others.get(field.name)) for field in encoder.fields))


def _transfer_range(field: Field, other: Field | None) -> Field:
    alike = other is not None and (field.levels is None) == (other.levels is None)
    if other is None or not alike or not field.constant or field.name.startswith(MACHINE_PREFIX):
        return field
    if field.levels is not None:
        return replace(field, levels=tuple(dict.fromkeys((*field.levels, *(other.levels or ())))), used=True)
    grid = tuple(sorted({*field.grid, *other.grid})) if other.grid else ()
    return replace(field, low=min(field.low, other.low), high=max(field.high, other.high), grid=grid, used=True)


def _judgement(part: Part) -> Judgement:
    between, beyond = part.elsewhere.get(BETWEEN), part.elsewhere.get(BEYOND)
    return replace(
        part.selected.judgement,
        between=between.expected if between else None,
        between_winner=between.winner if between else "",
        beyond=beyond.expected if beyond else None,
        beyond_winner=beyond.winner if beyond else "",
    )


def _sampled(table: RunTable, *, seed: int) -> tuple[RunTable, tuple[PredictionWarning, ...]]:
    if len(table) <= _MOST_ROWS:
        return table, ()
    draw = np.random.default_rng(seed)
    full, small = np.flatnonzero(table.full_scale), np.flatnonzero(~table.full_scale)
    kept = draw.permutation(full)[: max(_MOST_ROWS // 2, _MOST_ROWS - len(small))]
    rows = np.sort(np.concatenate([kept, draw.permutation(small)[: _MOST_ROWS - len(kept)]]))
    text = f"learned from a sample of {len(rows):,} of {len(table):,} runs"
    return table.take(rows), (build_warning("sampled-runs", text, used=len(rows), runs=len(table)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trainer:
    X: Floats
    table: RunTable
    policy: str
    candidates: str
    seed: int
    progress: Progress
    with_source: bool

    def choose(self, quantity: str, y: Floats, unit: Floats | None = None) -> Part:
        known = np.isfinite(y) & (y > 0)
        table = self.table
        whole = TrainingSet(
            X=self.X,
            y=y,
            unit=np.ones(len(y)) if unit is None else unit,
            full_scale=table.full_scale,
            censored=table.censored,
            group=table.group,
            load=None if quantity == MEMORY else table.load,
        )
        data, rows = whole.take(known), np.flatnonzero(known)
        recipes = list_recipes(
            self.candidates,
            mixed=bool(data.full_scale.any() and not data.full_scale.all()),
            configurations=len(np.unique(data.group)),
        )
        selected = select(
            data,
            (FactorRecipe(), *recipes) if self.with_source and unit is not None else recipes,
            quantity=quantity,
            policy=self.policy,
            blended=self.candidates == DEFAULT,
            seed=self.seed,
            progress=self.progress,
        )
        self.progress(f"{quantity}: between and beyond the values measured")
        found = select_elsewhere(data, selected.whole, policy=self.policy)
        return Part(
            selected=replace(selected, judged=rows[selected.judged]),
            elsewhere={regime: replace(one, rows=rows[one.rows]) for regime, one in found.items()},
            marginal=Marginal.learn(data.y[~data.censored]),
        )

    def find(self, quantity: str, y: Floats, unit: Floats | None = None) -> Part | None:
        """Nothing where too few runs measured it."""
        known = np.isfinite(y) & (y > 0) & ~self.table.censored
        return self.choose(quantity, y, unit) if len(np.unique(self.table.group[known])) >= NEED else None

    def choose_phases(self, app: App) -> dict[str, Part]:
        """A model for each phase of the app's formula; none if one of them was not measured often enough."""
        if app.estimate is None:
            return {}
        names = Formula(app.estimate).names
        phases = sorted(names & {phase.name for phase in app.phases})
        if not self._has_numbers(names - set(phases)):
            return {}
        whole = np.where(self.table.censored, np.nan, 1.0)  # what a stopped run printed is no phase of a whole one
        unknown = np.full(len(self.table), np.nan)
        found = {name: self.find(name, self.table.phases.get(name, unknown) * whole) for name in phases}
        if not all(found.values()):
            return {}
        found[REMAINDER] = self.find(REMAINDER, find_remainder(app.estimate, self.table))
        return {name: part for name, part in found.items() if part}

    def _has_numbers(self, names: Iterable[str]) -> bool:
        columns = self.table.columns
        return all(name in columns and columns[name].dtype != object for name in names)
