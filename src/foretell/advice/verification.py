"""Compares predictions with runs, and gathers what a report of an app shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from foretell.advice.api import recommend
from foretell.apps.where import Where
from foretell.apps.workspace import check_unchanged, directory_of, resolve_app, resolve_own_app
from foretell.campaigns.api import make_run
from foretell.core.app import App
from foretell.core.errors import InfeasibleError, NotFoundError
from foretell.core.model_card import ModelCard
from foretell.core.prediction import Recommendation, Verification
from foretell.core.run import Run, State, find_repetition
from foretell.core.site import Site
from foretell.runtimes.api import Configuration, find_record, load_predictor, specify, usual_allocation
from foretell.stores import RunStore
from foretell.stores.opening import StoreLike, using_store

_MOST_RUNS = 500


def verify(
    app: App | str | Path, configuration: Configuration, *, store: StoreLike = None, cores: int | None = None
) -> Verification:
    """Predict a configuration, run it on this machine, and store the run.

    Raises:
        NotFoundError: if there is no such app, or no model of it yet.
        ProgramChangedError: if the program has changed since the stored runs were made.
        SpecError: if the configuration does not fit the app, or the app has no command.
        RunnerError: if it cannot run here.
    """
    with using_store(store, directory_of(app)) as opened:
        known = resolve_own_app(app, opened)
        check_unchanged(known, opened)
        predictor = load_predictor(known, opened)
        allocation = usual_allocation(predictor, {"cores": cores} if cores is not None else {})
        (spec,) = specify(known, configuration, allocation=allocation)
        Where(known).check([spec])
        taken = opened.known_ids(known.name)
        spec = find_repetition(spec, taken.__contains__)
        (prediction,) = predictor.predict([spec])
        return Verification(prediction=prediction, run=make_run(known, spec, opened))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The contents of the report of an app."""

    app: App
    card: ModelCard
    runs: tuple[Run, ...]
    counts: Mapping[State, int]
    recommendation: Recommendation | None
    created_at: datetime


def summarise(app: App | str | Path, configuration: Configuration, *, site: Site, store: StoreLike = None) -> Summary:
    """The contents of a report; without a configuration, offers are for the last full-scale one that was run."""
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        record = find_record(known, opened)
        runs = opened.runs(known.name, limit=_MOST_RUNS, newest_first=True, version=known.version)
        asked = configuration or _last_full_scale(known, runs)
        return Summary(
            app=known,
            card=record.card,
            runs=tuple(runs),
            counts=opened.count_runs(known.name, version=known.version),
            recommendation=_try_recommend(known, asked, site, opened) if asked else None,
            created_at=datetime.now(UTC),
        )


def _last_full_scale(app: App, runs: list[Run]) -> Configuration:
    full = (run.spec for run in runs if run.spec.scale == "FS" and run.state is State.COMPLETED)
    spec = next(full, None)
    return spec.parameters if spec is not None and set(spec.parameters) == set(app.parameter_names()) else {}


def _try_recommend(app: App, configuration: Configuration, site: Site, store: RunStore) -> Recommendation | None:
    try:
        return recommend(app, configuration, site=site, store=store)
    except (InfeasibleError, NotFoundError):
        return None
