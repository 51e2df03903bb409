"""From stored runs to a stored model, and from a stored model to predictions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import pandas as pd

from foretell.api.workspace import StoreLike, directory_of, resolve_app, using_store
from foretell.apps.command import build_spec
from foretell.apps.tables import build_specs
from foretell.entities.app import App, Value
from foretell.entities.learned import ModelCard, ModelRecord
from foretell.entities.prediction import Prediction
from foretell.entities.run import Allocation, RunSpec, State
from foretell.errors import NotFoundError
from foretell.features.table import build_table
from foretell.models.recipes import DEFAULT
from foretell.models.selection import DEFAULT_POLICY
from foretell.predictor.learn import learn
from foretell.predictor.predictor import DEFAULT_LEVEL, Predictor
from foretell.stores import RunStore

Configuration: TypeAlias = Mapping[str, str | Value]
Configurations: TypeAlias = Configuration | Sequence[Configuration] | pd.DataFrame

_TEACHING = (State.COMPLETED, State.TIMED_OUT, State.OUT_OF_MEMORY)
_FORMAT = "2"


def build(
    app: App | str | Path,
    *,
    store: StoreLike = None,
    policy: str = DEFAULT_POLICY,
    candidates: str = DEFAULT,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda _: None,
) -> ModelCard:
    """Fit and judge the candidates on the app's stored runs, and store the winner.

    ``candidates`` are ``default``, or ``harp`` for HARP's own recipes as a baseline.

    Raises:
        NotFoundError: if there is no such app, policy or list of candidates.
        NotEnoughRunsError: if too few configurations ran to their end.
    """
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        table = build_table(opened.runs(known.name, states=_TEACHING))
        predictor = learn(known, table, policy=policy, candidates=candidates, seed=seed, progress=on_progress)
        record = ModelRecord(
            app=known.name,
            card=predictor.card,
            blob=predictor.dump(),
            run_ids=table.run_ids,
            created_at=datetime.now(UTC),
            extra={"format": _FORMAT, "runs": str(len(table))},
        )
        opened.save_model(record)
        return predictor.card


def predict(
    app: App | str | Path,
    configurations: Configurations,
    *,
    store: StoreLike = None,
    resources: Mapping[str, int] = MappingProxyType({}),
    level: float = DEFAULT_LEVEL,
    risk: float | None = None,
) -> list[Prediction]:
    """Time and memory of configurations, none of which need have been run.

    ``resources`` are cores, gpus and nodes where they are not as in most runs. ``risk`` fixes the chance that a first
    request is too small; without it the least expected cost decides.

    Raises:
        NotFoundError: if there is no such app, or no model of it yet.
        SpecError: if a configuration lacks a parameter, has an unknown one, or a value of the wrong type.
    """
    answer = ask(app, configurations, store=store, resources=resources, level=level, risk=risk)
    return list(answer.predictions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Predictions, and how many runs have come in since their model was built."""

    predictions: tuple[Prediction, ...]
    new_runs: int


def ask(
    app: App | str | Path,
    configurations: Configurations,
    *,
    store: StoreLike = None,
    resources: Mapping[str, int] = MappingProxyType({}),
    level: float = DEFAULT_LEVEL,
    risk: float | None = None,
) -> Answer:
    """As :func:`predict`, with word of runs the model does not know."""
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        record = find_record(known, opened)
        counts = opened.count_runs(known.name)
    predictor = Predictor.load(record.blob, record.card)
    specs = specify(known, configurations, allocation=usual_allocation(predictor, resources))
    new = sum(counts.get(state, 0) for state in _TEACHING) - int(record.extra["runs"])
    predictions = predictor.predict(specs, level=level, risk=risk) if specs else ()
    return Answer(predictions=tuple(predictions), new_runs=new)


def specify(app: App, configurations: Configurations, *, allocation: Allocation) -> list[RunSpec]:
    """Configurations as specifications, checked against the app's parameters."""
    if isinstance(configurations, pd.DataFrame):
        return build_specs(app, configurations, allocation=allocation)
    single = isinstance(configurations, Mapping)
    rows: Sequence[Configuration] = [configurations] if single else configurations  # type: ignore[list-item,assignment]
    return [build_spec(app, row, allocation=allocation) for row in rows]


def load_predictor(app: App, store: RunStore) -> Predictor:
    """The predictor built last.

    Raises:
        NotFoundError: if none was built.
    """
    record = find_record(app, store)
    return Predictor.load(record.blob, record.card)


def find_record(app: App, store: RunStore) -> ModelRecord:
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
