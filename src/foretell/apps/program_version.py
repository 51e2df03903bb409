"""Checks whether stored runs were made by the program of the app file, and which of them are used."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from foretell.core.app import App
from foretell.core.errors import Mistake, NotFoundError, ProgramChangedError, SpecError
from foretell.core.run import State
from foretell.core.warning import PredictionWarning, build_warning
from foretell.stores import RunReader, RunStore

# What determines the time of a run in addition to its parameters and resources.
_PROGRAM = ("command", "shell", "setup", "environment", "working_directory")
_COUNTING = (State.COMPLETED, State.TIMED_OUT, State.OUT_OF_MEMORY, State.RUNNING)


def resolve_version(app: App, store: RunStore, *, keep_runs: bool = False, start_over: bool = False) -> App:
    """Return the app in the version whose runs are used.

    If the program has changed, ``keep_runs`` uses the stored runs and ``start_over`` sets them aside.

    Raises:
        SpecError: if both are asked for.
        ProgramChangedError: if the program has changed since its runs were made, and neither is asked for.
    """
    if keep_runs and start_over:
        mistake = Mistake(place="--keep-runs", found="together with --start-over", expected="one of the two")
        raise SpecError("options", [mistake])
    if start_over:
        return replace(app, version=app.version + bool(store.count_runs(app.name, version=app.version)))
    if not keep_runs:
        check_unchanged(app, store)
    return app


def check_unchanged(app: App, store: RunStore) -> None:
    """Refuse to mix runs of a changed program with stored ones.

    Raises:
        ProgramChangedError: if the program has changed since the stored runs were made.
    """
    changes = find_changes(app, store)
    if changes:
        raise ProgramChangedError(app.name, changes=changes, runs=_count(app, store))


def find_changes(app: App, store: RunReader) -> tuple[str, ...]:
    """Return how the program differs from that of the stored runs; nothing if there are none."""
    try:
        stored = store.get_app(app.name)
    except NotFoundError:
        return ()
    if not (stored.command or stored.shell):  # imported runs: their program is unknown
        return ()
    changes = tuple(_compare(stored, app))
    return changes if changes and _count(app, store) else ()


def warn_of_changes(app: App, store: RunReader) -> tuple[PredictionWarning, ...]:
    """Return the same as a warning for users of the stored runs."""
    changes = find_changes(app, store)
    if not changes:
        return ()
    text = (
        f"the program has changed since the stored runs were made ({'; '.join(changes)}): "
        "'foretell generate --keep-runs' keeps using them, '--start-over' sets them aside"
    )
    return (build_warning("program-changed", text, app=app.name, changes=list(changes)),)


def _count(app: App, store: RunReader) -> int:
    counts = store.count_runs(app.name, version=app.version)
    return sum(counts.get(state, 0) for state in _COUNTING)


def _compare(before: App, after: App) -> Iterator[str]:
    for name in _PROGRAM:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield f"{name} was {_render(old)}, is {_render(new)}"


def _render(value: object) -> str:
    if not value:
        return "nothing"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={word!r}" for name, word in value.items())
    if isinstance(value, tuple):
        steps = [value] if isinstance(value[0], str) else value
        return "; ".join(repr(shlex.join(words)) for words in steps)
    return repr(value)
