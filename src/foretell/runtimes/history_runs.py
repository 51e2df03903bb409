"""Jobs of the cluster's history as runs to fit models to."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foretell.apps.imported_runs import Columns, read_runs
from foretell.core.app import App
from foretell.core.errors import NotFoundError
from foretell.core.run import FITTED_STATES, RESOURCE_COLUMNS, USAGE_COLUMNS, Run
from foretell.core.table_files import Table
from foretell.core.warning import PredictionWarning, build_warning
from foretell.stores import RunStore
from foretell.stores.job_history import find_history

_TAKEN = frozenset({*RESOURCE_COLUMNS, *USAGE_COLUMNS, "state"} - {"partition"})
_FEW_TEXTS = 20
_LIKE_IDS = 0.5  # texts of which more than this share of the jobs have one of their own say nothing of the next job


def build_job_table(rows: Sequence[Mapping[str, Any]], described: Collection[str] | None) -> Table:
    """A job a row, with the resources of one of its nodes; of an app that is described, only its own parameters."""
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
        if _is_informative(values)
    }


def _is_informative(values: Sequence[Any]) -> bool:
    """Whether values differ, and are not texts that nearly every job has of its own."""
    distinct = len(Counter(map(repr, values)))
    is_text = any(isinstance(value, str) for value in values)
    return distinct > 1 and not (is_text and distinct > max(_FEW_TEXTS, _LIKE_IDS * len(values)))


MOST_JOBS = 3000  # of an application: recent jobs are most like the next ones, and building stays quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The newest jobs of an application as runs, how many jobs there are, and the application they describe."""

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
    """The jobs of an application that models are fitted to; none if the history has none of that name."""
    name = app.name if isinstance(app, App) else app
    described = _find_described(app, store)
    history = find_history(store)
    rows = history.newest(name, states=FITTED_STATES, most=MOST_JOBS) if history and history.has_app(name) else []
    if history is None or not rows:
        return Past()
    columns = Columns(elapsed="elapsed_s", memory="peak_memory_bytes", state="state")
    read = read_runs(build_job_table(rows, described), app=name, columns=columns)
    return Past(runs=read.runs, jobs=history.count(name, states=FITTED_STATES), app=read.app)


def _find_described(app: str | App, store: RunStore) -> Collection[str] | None:
    """The parameters of an app with a command of its own: others would have no place in it."""
    try:
        known = app if isinstance(app, App) else store.get_app(app)
    except NotFoundError:
        return None
    return known.parameter_names() if known.command or known.shell is not None else None
