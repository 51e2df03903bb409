"""What drives a prediction."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from foretell.api.learning import Configuration, load_predictor, usual_allocation
from foretell.api.workspace import StoreLike, directory_of, resolve_app, using_store
from foretell.apps.command import build_spec
from foretell.apps.where import Where
from foretell.entities.app import App, ParameterType, Value
from foretell.entities.explanation import Explanation
from foretell.entities.run import Machine
from foretell.predictor import explain as explaining
from foretell.predictor.predictor import DEFAULT_LEVEL, Predictor


def explain(
    app: App | str | Path,
    configuration: Configuration = MappingProxyType({}),
    *,
    store: StoreLike = None,
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
    with using_store(store, directory_of(app)) as opened:
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
