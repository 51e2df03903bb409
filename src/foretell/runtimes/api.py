"""From stored runs to a stored model, and from a stored model to predictions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from foretell.apps.command import build_spec
from foretell.apps.workspace import directory_of, resolve_app, warn_of_changes
from foretell.core.app import App, ParameterType, Value
from foretell.core.errors import NotFoundError
from foretell.core.model_card import ModelCard, ModelRecord
from foretell.core.prediction import Prediction
from foretell.core.run import Allocation, Machine, RunSpec
from foretell.runtimes.evidence import add_failure_warnings, list_newer
from foretell.runtimes.metrics import DEFAULT_POLICY
from foretell.runtimes.predictor import DEFAULT_LEVEL, Predictor
from foretell.runtimes.predictor_files import read_predictor
from foretell.runtimes.recipes import DEFAULT
from foretell.stores import RunReader
from foretell.stores.opening import StoreLike, reading_store

if TYPE_CHECKING:
    import pandas as pd

    from foretell.core.table_files import Table
    from foretell.runtimes.explanation import Explanation

Configuration: TypeAlias = Mapping[str, str | Value]
Configurations: TypeAlias = "Configuration | Sequence[Configuration] | Table | pd.DataFrame"


def build(
    app: App | str | Path,
    *,
    store: StoreLike = None,
    policy: str = DEFAULT_POLICY,
    candidates: str = DEFAULT,
    seed: int = 0,
    transfer: bool | Sequence[str] = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> ModelCard:
    """Fit and judge the candidates on the app's stored runs, and store the winner.

    ``candidates`` are ``default``, or ``harp`` or ``harp-pca`` for HARP's recipes as a baseline. ``transfer`` names
    apps in the store to transfer from where that helps; ``True``: any that is similar.

    Raises:
        NotFoundError: The app, the policy or the list of candidates is unknown.
        NotEnoughRunsError: Too few configurations completed.
        SpecError: The app is named as its own source of transfer.
    """
    from foretell.runtimes.training import train  # predicting does not need it

    return train(
        app,
        store=store,
        policy=policy,
        candidates=candidates,
        seed=seed,
        transfer=transfer,
        on_progress=on_progress,
    )


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
        _check_where(known, specs, single=isinstance(configurations, Mapping))
        predictions = predictor.predict(specs, level=level, risk=risk, retry_cost=retry_cost) if specs else []
        return add_failure_warnings(known.name, predictions, opened)


def _check_where(app: App, specs: Sequence[RunSpec], *, single: bool) -> None:
    """Refuse configurations that the app's conditions exclude; those of a table are named by their rows.

    Raises:
        SpecError: There are some.
    """
    if not app.where:
        return
    from foretell.apps.where import Where

    where = Where(app)
    (where.check if single else where.check_rows)(specs)


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
) -> "Explanation":
    """What drives the time and memory of a configuration, and where their uncertainty comes from.

    Parameters that are not given take a usual value: from the middle of those measured.

    Raises:
        NotFoundError: if there is no such app, or no model of it yet.
        SpecError: if the configuration has an unknown parameter, or a value of the wrong type.
    """
    with reading_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        predictor = load_predictor(known, opened)
    from foretell.runtimes import explain as explaining

    settings = {**_find_usual(known, explaining.find_usual_values(predictor)), **configuration}
    spec = build_spec(known, settings, allocation=usual_allocation(predictor, resources))
    if configuration:  # the usual values alone are nobody's question
        _check_where(known, [spec], single=True)
    return explaining.explain(predictor, spec, machine=machine, level=level)


def _find_usual(app: App, usual: Mapping[str, Value]) -> dict[str, Value]:
    return {
        parameter.name: bool(usual[parameter.name])
        if parameter.type is ParameterType.BOOLEAN
        else usual[parameter.name]
        for parameter in app.parameters
        if parameter.name in usual
    }
