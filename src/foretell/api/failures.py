"""Warnings about configurations that never succeeded: a prediction of them would hide it."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from foretell.entities.app import Value
from foretell.entities.prediction import Prediction
from foretell.entities.run import Run, State
from foretell.stores import RunStore

_FAILURES = (State.FAILED, State.OUT_OF_MEMORY)


def add_failure_warnings(app: str, predictions: Sequence[Prediction], store: RunStore) -> list[Prediction]:
    """The predictions, with a warning where every stored run of those parameters failed."""
    warnings = find_failures(app, [prediction.parameters for prediction in predictions], store)
    return [
        replace(prediction, doubts=(*prediction.doubts, warnings[_key(prediction.parameters)]))
        if _key(prediction.parameters) in warnings
        else prediction
        for prediction in predictions
    ]


def find_failures(app: str, parameters: Iterable[Mapping[str, Value]], store: RunStore) -> dict[str, str]:
    """A sentence for each configuration of which every run failed."""
    asked = {_key(some): some for some in parameters}
    failed = defaultdict(list)
    for run in store.runs_with(app, list(asked.values()), states=_FAILURES):
        failed[_key(run.spec.parameters)].append(run)
    suspects = [asked[key] for key in failed if key in asked]
    done = {_key(run.spec.parameters) for run in store.runs_with(app, suspects, states=[State.COMPLETED])}
    return {key: _describe(runs) for key, runs in failed.items() if key not in done}


def _key(parameters: Mapping[str, Value]) -> str:
    return json.dumps(sorted(parameters.items()))


def _describe(runs: Sequence[Run]) -> str:
    times = "once" if len(runs) == 1 else f"{len(runs)} times"
    last = runs[-1]
    why = last.last_line or last.reason or last.state.value.replace("_", " ")
    return f"this configuration failed {times} and never completed: {why}"
