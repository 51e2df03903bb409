"""From stored runs to a stored model, and from a stored model to predictions."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from foretell.apps.api import make_known
from foretell.apps.command import build_spec
from foretell.apps.program_version import warn_of_changes
from foretell.apps.where import Where
from foretell.apps.workspace import StoreLike, directory_of, looks_like_a_file, reading_store, resolve_app, using_store
from foretell.core.app import App, ParameterType, Value
from foretell.core.errors import Mistake, NotEnoughRunsError, NotFoundError, SpecError, StoreError
from foretell.core.model_card import ModelCard, ModelRecord
from foretell.core.prediction import Prediction
from foretell.core.run import TEACHING, Allocation, Machine, RunSpec
from foretell.runtimes import explain as explaining
from foretell.runtimes.evidence import Past, add_failure_warnings, count_evidence, find_past, list_newer
from foretell.runtimes.explanation import Explanation
from foretell.runtimes.fit import NEED, learn
from foretell.runtimes.predictor import DEFAULT_LEVEL, Predictor
from foretell.runtimes.predictor_files import dump_predictor, read_predictor
from foretell.runtimes.recipes import DEFAULT
from foretell.runtimes.run_table import RunTable, build_table
from foretell.runtimes.selection import DEFAULT_POLICY
from foretell.runtimes.transfer import Lender, is_similar, learn_borrowing, shortlist
from foretell.stores import RunReader, RunStore

if TYPE_CHECKING:
    import pandas as pd

    from foretell.apps.table_files import Table

Configuration: TypeAlias = Mapping[str, str | Value]
Configurations: TypeAlias = "Configuration | Sequence[Configuration] | Table | pd.DataFrame"

_FORMAT = "2"


def build(
    app: App | str | Path,
    *,
    store: StoreLike = None,
    policy: str = DEFAULT_POLICY,
    candidates: str = DEFAULT,
    seed: int = 0,
    borrow: bool | Sequence[str] = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> ModelCard:
    """Fit and judge the candidates on the app's stored runs, and store the winner.

    ``candidates`` are ``default``, or ``harp`` or ``harp-pca`` for HARP's recipes as a baseline. ``borrow`` names other
    apps in the store that the app may borrow from where that helps; ``True``: any that is similar.

    Raises:
        NotFoundError: if there is no such app, policy or list of candidates.
        NotEnoughRunsError: if too few configurations ran to their end.
        SpecError: if the app should borrow from itself.
    """
    with using_store(store, directory_of(app)) as opened:
        past = _find_past(app, opened)
        known = resolve_app(app, opened)
        evidence = count_evidence(known, opened)
        runs = opened.runs(known.name, states=TEACHING, version=known.version)
        table = _stand_alone(build_table([*runs, *past.runs])) if past.runs else build_table(runs)
        how = _How(policy=policy, candidates=candidates, seed=seed, progress=on_progress)
        predictor = how.borrow(known, table, borrow, opened) if borrow else how.learn(known, table)
        record = ModelRecord(
            app=known.name,
            card=replace(
                predictor.card, warnings=(*warn_of_changes(known, opened), *past.warnings, *predictor.card.warnings)
            ),
            blob=dump_predictor(predictor),
            run_ids=table.run_ids,
            created_at=datetime.now(UTC),
            extra={"format": _FORMAT, "version": str(known.version), **{name: str(n) for name, n in evidence.items()}},
        )
        opened.save_model(record)
        return record.card


def _find_past(app: App | str | Path, store: RunStore) -> Past:
    """What the history teaches; an app that only the history knows is known from now on."""
    if isinstance(app, App) or looks_like_a_file(app):
        return find_past(resolve_app(app, store), store)
    past = find_past(str(app), store)
    if past.app is not None:
        make_known(past.app, store)
    return past


def _stand_alone(table: RunTable) -> RunTable:
    """Jobs of few configurations differ by what accounting does not tell: then each is judged by itself."""
    few = len(np.unique(table.group[~table.censored])) < NEED
    return replace(table, group=np.arange(len(table))) if few else table


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """What learning is told beside the runs."""

    policy: str
    candidates: str
    seed: int
    progress: Callable[[str], None]

    def learn(self, app: App, table: RunTable) -> Predictor:
        return learn(app, table, policy=self.policy, candidates=self.candidates, seed=self.seed, progress=self.progress)

    def borrow(self, app: App, table: RunTable, wanted: bool | Sequence[str], store: RunStore) -> Predictor:
        if isinstance(wanted, bool):
            lenders = shortlist(table, list(self._find_lenders(app, table, store)))
        else:
            lenders = [self._get_lender(name, app, store) for name in dict.fromkeys(wanted)]
        return learn_borrowing(
            app, table, lenders, policy=self.policy, candidates=self.candidates, seed=self.seed, progress=self.progress
        )

    def _find_lenders(self, app: App, table: RunTable, store: RunStore) -> Iterator[Lender]:
        """Every other app with something in common, and runs enough to learn from."""
        for name in store.app_names():
            other = store.get_app(name)
            runs = _build_own_table(other, store) if name != app.name else None
            if runs is not None and is_similar(table, runs):
                with contextlib.suppress(NotEnoughRunsError):
                    yield self._build_lender(other, runs, store)

    def _get_lender(self, name: str, app: App, store: RunStore) -> Lender:
        if name == app.name:
            expected = "another app in the store than the one that is built"
            raise SpecError("options", [Mistake(place="borrow", found=repr(name), expected=expected)])
        other = resolve_app(name, store)
        return self._build_lender(other, _build_own_table(other, store), store)

    def _build_lender(self, app: App, table: RunTable, store: RunStore) -> Lender:
        self.progress(f"what is known of {app.name}")
        return Lender(name=app.name, predictor=self._find_own(app, store) or self.learn(app, table), table=table)

    def _find_own(self, app: App, store: RunStore) -> Predictor | None:
        """The stored model, if it can be read and is of the app's own runs: what is borrowed is not lent on."""
        record = store.find_model(app.name)
        if record is None or record.card.borrowed is not None:
            return None
        try:
            return read_predictor(record.blob, record.card)
        except StoreError:
            return None


def _build_own_table(app: App, store: RunStore) -> RunTable:
    return build_table(store.runs(app.name, states=TEACHING, version=app.version))


def predict(
    app: App | str | Path,
    configurations: Configurations,
    *,
    store: StoreLike | RunReader = None,
    resources: Mapping[str, int] = MappingProxyType({}),
    level: float = DEFAULT_LEVEL,
    risk: float | None = None,
    retry_cost: float | None = None,
) -> list[Prediction]:
    """Time and memory of configurations, none of which need have been run.

    ``resources`` are cores, gpus and nodes where they are not as in most runs. ``risk`` is the chance that a first
    request is too small, in time or in memory; without it, at most 10 %. ``retry_cost`` is what a failed try costs in
    addition to its request, in multiples of the prediction (1 if not given).

    Raises:
        NotFoundError: if there is no such app, or no model of it yet.
        SpecError: if a configuration lacks a parameter, has an unknown one, a value of the wrong type, or is one that
            the app excludes.
    """
    with reading_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        predictor = load_predictor(known, opened)
        specs = specify(known, configurations, allocation=usual_allocation(predictor, resources))
        where = Where(known)
        check = where.check if isinstance(configurations, Mapping) else where.check_rows
        check(specs)
        predictions = predictor.predict(specs, level=level, risk=risk, retry_cost=retry_cost) if specs else []
        return add_failure_warnings(known.name, predictions, opened)


def specify(app: App, configurations: Configurations, *, allocation: Allocation) -> list[RunSpec]:
    """Configurations as specifications, checked against the app's parameters."""
    if not isinstance(configurations, Mapping | Sequence):
        from foretell.apps.imported_runs import build_specs  # with what reads tables, which a single one does not need

        return build_specs(app, configurations, allocation=allocation)
    single = isinstance(configurations, Mapping)
    rows: Sequence[Configuration] = [configurations] if single else configurations  # type: ignore[list-item,assignment]
    return [build_spec(app, row, allocation=allocation) for row in rows]


def load_predictor(app: App, store: RunReader) -> Predictor:
    """The predictor built last; its predictions say if there is more to learn from by now.

    Raises:
        NotFoundError: if none was built.
    """
    record = find_record(app, store)
    warnings = (*warn_of_changes(app, store), *list_newer(app, store, known=record.extra))
    return replace(read_predictor(record.blob, record.card), warnings=warnings)


def find_record(app: App, store: RunReader) -> ModelRecord:
    """The stored model.

    Raises:
        NotFoundError: if none was built.
    """
    record = store.find_model(app.name)
    if record is None:
        raise NotFoundError("model for app", app.name, hint="Run 'foretell build' first.")
    return record


def usual_allocation(predictor: Predictor, resources: Mapping[str, int] = MappingProxyType({})) -> Allocation:
    """What most runs had, but for what is said."""
    counts = {**predictor.usual_counts(), **resources}
    return Allocation(cores=counts["cores"], gpus=counts["gpus"], nodes=counts["nodes"])


def explain(
    app: App | str | Path,
    configuration: Configuration = MappingProxyType({}),
    *,
    store: StoreLike | RunReader = None,
    resources: Mapping[str, int] = MappingProxyType({}),
    machine: Machine | None = None,
    level: float = DEFAULT_LEVEL,
) -> Explanation:
    """What drives the time and memory of a configuration, and where their uncertainty comes from.

    Parameters that are not given take a usual value: from the middle of those measured.

    Raises:
        NotFoundError: if there is no such app, or no model of it yet.
        SpecError: if the configuration has an unknown parameter, or a value of the wrong type.
    """
    with reading_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        predictor = load_predictor(known, opened)
    settings = {**_find_usual(known, predictor), **configuration}
    spec = build_spec(known, settings, allocation=usual_allocation(predictor, resources))
    if configuration:  # the usual values alone are nobody's question
        Where(known).check([spec])
    return explaining.explain(predictor, spec, machine=machine, level=level)


def _find_usual(app: App, predictor: Predictor) -> dict[str, Value]:
    usual = explaining.find_usual_values(predictor)
    return {
        parameter.name: bool(usual[parameter.name])
        if parameter.type is ParameterType.BOOLEAN
        else usual[parameter.name]
        for parameter in app.parameters
        if parameter.name in usual
    }
