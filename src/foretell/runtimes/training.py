"""From stored runs to a stored model."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from foretell.apps.api import make_known
from foretell.apps.program_version import warn_of_changes
from foretell.apps.workspace import directory_of, resolve_app
from foretell.core.app import App
from foretell.core.errors import Mistake, NotEnoughRunsError, SpecError, StoreError
from foretell.core.model_card import ModelCard, ModelRecord
from foretell.core.run import FITTED_STATES
from foretell.core.work_folder import looks_like_a_file
from foretell.runtimes.evidence import count_evidence
from foretell.runtimes.fit import NEED, learn
from foretell.runtimes.history_runs import Past, find_past
from foretell.runtimes.predictor import Predictor
from foretell.runtimes.predictor_files import dump_predictor, read_predictor
from foretell.runtimes.run_table import RunTable, build_table
from foretell.runtimes.transfer import Lender, is_similar, learn_borrowing, shortlist
from foretell.stores import RunStore
from foretell.stores.opening import StoreLike, using_store


def train(
    app: App | str | Path,
    *,
    store: StoreLike,
    policy: str,
    candidates: str,
    seed: int,
    borrow: bool | Sequence[str],
    on_progress: Callable[[str], None],
) -> ModelCard:
    """See :func:`foretell.build`."""
    with using_store(store, directory_of(app)) as opened:
        past = _find_past(app, opened)
        known = resolve_app(app, opened)
        evidence = count_evidence(known, opened)
        runs = opened.runs(known.name, states=FITTED_STATES, version=known.version)
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
            extra={"version": str(known.version), **{name: str(n) for name, n in evidence.items()}},
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
    return build_table(store.runs(app.name, states=FITTED_STATES, version=app.version))
