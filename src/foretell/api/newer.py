"""What there is to learn of an app, and how much of it a stored model was built without."""

from collections.abc import Mapping

from foretell.entities.app import App
from foretell.entities.run import TEACHING
from foretell.stores import RunStore
from foretell.stores.history import find_history

_NOUNS = {"runs": "run", "jobs": "job of the cluster's history"}
_MOST_DIGITS = 18
_PLURALS = {"runs": "runs", "jobs": "jobs of the cluster's history"}


def count_evidence(app: App, store: RunStore) -> dict[str, int]:
    """How many runs and jobs of the history there are to learn from; quick, however many there are."""
    counts = store.count_runs(app.name, version=app.version)
    history = find_history(store)
    return {
        "runs": sum(counts.get(state, 0) for state in TEACHING),
        "jobs": history.received(app.name) if history else 0,
    }


def list_newer(app: App, store: RunStore, *, known: Mapping[str, str]) -> tuple[str, ...]:
    """A warning, if a model that was built from the ``known`` numbers of runs and jobs lacks some by now."""
    if known.get("version", "0") != str(app.version):
        return (f"the model was built from runs that were set aside; 'foretell build {app.name}' uses the others",)
    newer = {name: count - _read_count(known.get(name, "0")) for name, count in count_evidence(app, store).items()}
    named = [f"{count:,} {(_NOUNS if count == 1 else _PLURALS)[name]}" for name, count in newer.items() if count > 0]
    if not named:
        return ()
    return (f"the model was built before {' and '.join(named)} came in; 'foretell build {app.name}' learns from them",)


def _read_count(text: str) -> int:
    """A count as a model keeps it; 0 for what no count can be: a store holds what anybody wrote there."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0
