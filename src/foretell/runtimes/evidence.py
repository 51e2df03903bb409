"""What is stored of an app besides its model: runs that are newer, and configurations that always failed."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from foretell.core.app import App, Value
from foretell.core.prediction import Prediction
from foretell.core.run import FITTED_STATES, Run, State
from foretell.core.warning import PredictionWarning, build_warning
from foretell.stores import RunReader

_NOUNS = {"runs": "run", "jobs": "job of the cluster's history"}
_MOST_DIGITS = 18
_PLURALS = {"runs": "runs", "jobs": "jobs of the cluster's history"}


def count_evidence(app: App, store: RunReader) -> dict[str, int]:
    """How many runs and jobs of the history there are to learn from; quick, however many there are."""
    counts = store.count_runs(app.name, version=app.version)
    return {
        "runs": sum(counts.get(state, 0) for state in FITTED_STATES),
        "jobs": store.count_received_jobs(app.name),
    }


def list_newer(app: App, store: RunReader, *, known: Mapping[str, str]) -> tuple[PredictionWarning, ...]:
    """A warning, if a model that was built from the ``known`` numbers of runs and jobs lacks some by now."""
    if known.get("version", "0") != str(app.version):
        text = f"the model was built from runs that were set aside; 'foretell build {app.name}' uses the others"
        return (build_warning("runs-set-aside", text, app=app.name),)
    newer = {name: count - _read_count(known.get(name, "0")) for name, count in count_evidence(app, store).items()}
    named = [f"{count:,} {(_NOUNS if count == 1 else _PLURALS)[name]}" for name, count in newer.items() if count > 0]
    if not named:
        return ()
    text = f"the model was built before {' and '.join(named)} came in; 'foretell build {app.name}' learns from them"
    return (build_warning("newer-runs", text, app=app.name, **newer),)


def _read_count(text: str) -> int:
    """A count as a model keeps it; 0 for what no count can be: a store holds what anybody wrote there."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0


_FAILURES = (State.FAILED, State.OUT_OF_MEMORY)


def add_failure_warnings(app: str, predictions: Sequence[Prediction], store: RunReader) -> list[Prediction]:
    """The predictions, with a warning where every stored run of those parameters failed."""
    warnings = find_failures(app, [prediction.parameters for prediction in predictions], store)
    return [
        replace(prediction, warnings=(*prediction.warnings, warnings[_key(prediction.parameters)]))
        if _key(prediction.parameters) in warnings
        else prediction
        for prediction in predictions
    ]


def find_failures(
    app: str, parameters: Iterable[Mapping[str, Value]], store: RunReader
) -> dict[str, PredictionWarning]:
    """A warning for each configuration of which every run failed."""
    asked = {_key(some): some for some in parameters}
    failed = defaultdict(list)
    for run in store.runs_with(app, list(asked.values()), states=_FAILURES):
        failed[_key(run.spec.parameters)].append(run)
    suspects = [asked[key] for key in failed if key in asked]
    done = {_key(run.spec.parameters) for run in store.runs_with(app, suspects, states=[State.COMPLETED])}
    return {key: _describe(runs) for key, runs in failed.items() if key not in done}


def _key(parameters: Mapping[str, Value]) -> str:
    return json.dumps(sorted(parameters.items()))


def _describe(runs: Sequence[Run]) -> PredictionWarning:
    times = "once" if len(runs) == 1 else f"{len(runs)} times"
    last = runs[-1]
    why = last.last_line or last.reason or last.state.value.replace("_", " ")
    text = f"this configuration failed {times} and never completed: {why}"
    return build_warning("always-failed", text, runs=len(runs), reason=why)
