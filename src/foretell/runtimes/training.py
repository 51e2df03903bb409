"""From stored runs to a stored model."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from foretell.apps.api import make_known
from foretell.apps.workspace import directory_of, resolve_app, warn_of_changes
from foretell.core.app import App
from foretell.core.errors import Mistake, NotEnoughRunsError, SpecError, StoreError
from foretell.core.model_card import ModelCard, ModelRecord
from foretell.core.private_files import looks_like_a_file
from foretell.core.run import FITTED_STATES
from foretell.runtimes.evidence import count_evidence
from foretell.runtimes.fit import NEED, fit_predictor
from foretell.runtimes.history_runs import Past, find_past
from foretell.runtimes.predictor import Predictor
from foretell.runtimes.predictor_files import dump_predictor, read_predictor
from foretell.runtimes.run_table import RunTable, build_table
from foretell.runtimes.transfer import SourceApp, fit_with_transfer, is_similar, rank_sources
from foretell.stores import RunStore
from foretell.stores.opening import StoreLike, using_store


def train(
    app: App | str | Path,
    *,
    store: StoreLike,
    policy: str,
    candidates: str,
    seed: int,
    transfer: bool | Sequence[str],
    on_progress: Callable[[str], None],
) -> ModelCard:
    """See :func:`foretell.build`."""
    with using_store(store, directory_of(app)) as opened:
        past = _find_past(app, opened)
        known = resolve_app(app, opened)
        evidence = count_evidence(known, opened)
        runs = opened.runs(known.name, states=FITTED_STATES, version=known.version)
        table = _separate_jobs(build_table([*runs, *past.runs])) if past.runs else build_table(runs)
        training = _Training(policy=policy, candidates=candidates, seed=seed, progress=on_progress)
        predictor = training.transfer(known, table, transfer, opened) if transfer else training.fit(known, table)
        record = ModelRecord(
            app=known.name,
            card=replace(
                predictor.card, warnings=(*warn_of_changes(known, opened), *past.warnings, *predictor.card.warnings)
            ),
            blob=dump_predictor(predictor),
            run_ids=table.run_ids,
            created_at=datetime.now(UTC),
            extra={"version": str(known.version), **{name: str(n) for name, n in evidence.items()}},
        )
        opened.save_model(record)
        return record.card


def _find_past(app: App | str | Path, store: RunStore) -> Past:
    """The jobs of the history to fit to; an app that only the history has is added to the store."""
    if isinstance(app, App) or looks_like_a_file(app):
        return find_past(resolve_app(app, store), store)
    past = find_past(str(app), store)
    if past.app is not None:
        make_known(past.app, store)
    return past


def _separate_jobs(table: RunTable) -> RunTable:
    """Jobs of few configurations differ by what accounting does not record: then each is judged by itself."""
    few = len(np.unique(table.group[~table.censored])) < NEED
    return replace(table, group=np.arange(len(table))) if few else table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Training:
    """How models are fitted, whatever the runs."""

    policy: str
    candidates: str
    seed: int
    progress: Callable[[str], None]

    def fit(self, app: App, table: RunTable) -> Predictor:
        return fit_predictor(
            app, table, policy=self.policy, candidates=self.candidates, seed=self.seed, progress=self.progress
        )

    def transfer(self, app: App, table: RunTable, wanted: bool | Sequence[str], store: RunStore) -> Predictor:
        if isinstance(wanted, bool):
            sources = rank_sources(table, list(self._find_sources(app, table, store)))
        else:
            sources = [self._get_source(name, app, store) for name in dict.fromkeys(wanted)]
        return fit_with_transfer(
            app, table, sources, policy=self.policy, candidates=self.candidates, seed=self.seed, progress=self.progress
        )

    def _find_sources(self, app: App, table: RunTable, store: RunStore) -> Iterator[SourceApp]:
        """Every other app with a column in common that varies, and enough runs to fit a model to."""
        for name in store.app_names():
            other = store.get_app(name)
            runs = _build_own_table(other, store) if name != app.name else None
            if runs is not None and is_similar(table, runs):
                with contextlib.suppress(NotEnoughRunsError):
                    yield self._build_source(other, runs, store)

    def _get_source(self, name: str, app: App, store: RunStore) -> SourceApp:
        if name == app.name:
            expected = "an app in the store other than the one that is built"
            raise SpecError("options", [Mistake(place="transfer-from", found=repr(name), expected=expected)])
        other = resolve_app(name, store)
        return self._build_source(other, _build_own_table(other, store), store)

    def _build_source(self, app: App, table: RunTable, store: RunStore) -> SourceApp:
        self.progress(f"the model of {app.name}")
        return SourceApp(name=app.name, predictor=self._find_own(app, store) or self.fit(app, table), table=table)

    def _find_own(self, app: App, store: RunStore) -> Predictor | None:
        """The stored model, if it can be read and is of the app's own runs: transfers are not passed on."""
        record = store.find_model(app.name)
        if record is None or record.card.transfer is not None:
            return None
        try:
            return read_predictor(record.blob, record.card)
        except StoreError:
            return None


def _build_own_table(app: App, store: RunStore) -> RunTable:
    return build_table(store.runs(app.name, states=FITTED_STATES, version=app.version))
