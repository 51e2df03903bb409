"""Jobs of the history as runs that teach."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from foretell.core.app import App, Value
from foretell.core.errors import NotFoundError
from foretell.core.prediction import Prediction
from foretell.core.run import RESOURCE_COLUMNS, TEACHING, USAGE_COLUMNS, Run, State
from foretell.core.warning import PredictionWarning, build_warning
from foretell.stores import RunReader, RunStore

if TYPE_CHECKING:
    from foretell.apps.table_files import Table

_TAKEN = frozenset({*RESOURCE_COLUMNS, *USAGE_COLUMNS, "state"} - {"partition"})
_FEW_TEXTS = 20
_LIKE_IDS = 0.5  # texts of which more than this share of the jobs have one of their own say nothing of the next job


def build_job_table(rows: Sequence[Mapping[str, Any]], described: Collection[str] | None) -> "Table":
    """A job a row, with the resources of one of its nodes; of an app that is described, only its own parameters."""
    from foretell.apps.table_files import Table

    nodes = [max(row["nodes"], 1) for row in rows]
    columns: dict[str, list[Any]] = {
        "elapsed_s": [row["elapsed_s"] for row in rows],
        "peak_memory_bytes": [row["peak_memory_bytes"] for row in rows],
        "state": [row["state"] for row in rows],
        "cores": [-(-row["cores"] // count) for row, count in zip(rows, nodes, strict=True)],
        "gpus": [-(-row["gpus"] // count) for row, count in zip(rows, nodes, strict=True)],
        "nodes": nodes,
    }
    for name, values in _list_parameters(rows).items():
        if described is None or name in described:
            columns[name] = values
    return Table(columns)


def _list_parameters(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row["parameters"])
    found = {name: [row["parameters"].get(name) for row in rows] for name in names}
    columns = {f"option_{name}" if name in _TAKEN else name: values for name, values in found.items()}
    return {
        name: values
        for name, values in {"partition": [row["partition"] for row in rows], **columns}.items()
        if _tells(values)
    }


def _tells(values: Sequence[Any]) -> bool:
    """Whether values differ, and are not names that nearly every job has of its own."""
    distinct = len(Counter(map(repr, values)))
    is_text = any(isinstance(value, str) for value in values)
    return distinct > 1 and not (is_text and distinct > max(_FEW_TEXTS, _LIKE_IDS * len(values)))


MOST_JOBS = 3000  # of an application: what ran last tells most of what will run next, and building stays quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the history teaches of an application: its newest jobs, of how many, and as what it describes itself."""

    runs: tuple[Run, ...] = ()
    jobs: int = 0
    app: App | None = None

    @property
    def warnings(self) -> tuple[PredictionWarning, ...]:
        if not self.runs:
            return ()
        newest = f"the newest {len(self.runs):,} of {self.jobs:,}" if self.jobs > len(self.runs) else f"{self.jobs:,}"
        text = f"learned from {newest} jobs of the cluster's history"
        return (build_warning("built-from-history", text, used=len(self.runs), jobs=self.jobs),)


def find_past(app: str | App, store: RunStore) -> Past:
    """The jobs that teach of an application; none if the history has none of that name."""
    # Imported here: predicting needs neither tables nor SQLAlchemy.
    from foretell.apps.imported_runs import Columns, read_runs
    from foretell.stores.job_history import find_history

    name = app.name if isinstance(app, App) else app
    described = _find_described(app, store)
    history = find_history(store)
    rows = history.newest(name, states=TEACHING, most=MOST_JOBS) if history and history.has_app(name) else []
    if history is None or not rows:
        return Past()
    columns = Columns(elapsed="elapsed_s", memory="peak_memory_bytes", state="state")
    read = read_runs(build_job_table(rows, described), app=name, columns=columns)
    return Past(runs=read.runs, jobs=history.count(name, states=TEACHING), app=read.app)


def _find_described(app: str | App, store: RunStore) -> Collection[str] | None:
    """The parameters of an app with a command of its own: others would have no place in it."""
    try:
        known = app if isinstance(app, App) else store.get_app(app)
    except NotFoundError:
        return None
    return known.parameter_names() if known.command or known.shell is not None else None


_NOUNS = {"runs": "run", "jobs": "job of the cluster's history"}
_MOST_DIGITS = 18
_PLURALS = {"runs": "runs", "jobs": "jobs of the cluster's history"}


def count_evidence(app: App, store: RunReader) -> dict[str, int]:
    """How many runs and jobs of the history there are to learn from; quick, however many there are."""
    counts = store.count_runs(app.name, version=app.version)
    return {
        "runs": sum(counts.get(state, 0) for state in TEACHING),
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
