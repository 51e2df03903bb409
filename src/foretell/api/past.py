"""Jobs of the history as runs that teach."""

from collections.abc import Collection
from dataclasses import dataclass

from foretell.apps.tables import Columns, read_runs
from foretell.entities.app import App
from foretell.entities.run import TEACHING, Run
from foretell.errors import NotFoundError
from foretell.history.frame import build_frame
from foretell.stores import RunStore
from foretell.stores.history import find_history

MOST_JOBS = 3000  # of an application: what ran last tells most of what will run next, and building stays quick
_COLUMNS = Columns(elapsed="elapsed_s", memory="peak_memory_bytes", state="state")


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the history teaches of an application: its newest jobs, of how many, and as what it describes itself."""

    runs: tuple[Run, ...] = ()
    jobs: int = 0
    app: App | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.runs:
            return ()
        newest = f"the newest {len(self.runs):,} of {self.jobs:,}" if self.jobs > len(self.runs) else f"{self.jobs:,}"
        return (f"learned from {newest} jobs of the cluster's history",)


def find_past(app: str | App, store: RunStore) -> Past:
    """The jobs that teach of an application; none if the history has none of that name."""
    name = app.name if isinstance(app, App) else app
    described = _find_described(app, store)
    history = find_history(store)
    rows = history.newest(name, states=TEACHING, most=MOST_JOBS) if history and history.has_app(name) else []
    if history is None or not rows:
        return Past()
    read = read_runs(build_frame(rows, described), app=name, columns=_COLUMNS)
    return Past(runs=read.runs, jobs=history.count(name, states=TEACHING), app=read.app)


def _find_described(app: str | App, store: RunStore) -> Collection[str] | None:
    """The parameters of an app with a command of its own: others would have no place in it."""
    try:
        known = app if isinstance(app, App) else store.get_app(app)
    except NotFoundError:
        return None
    return known.parameter_names() if known.command or known.shell is not None else None
