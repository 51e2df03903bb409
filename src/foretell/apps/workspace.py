"""Finds apps by name or file, and the folders of their runs, batches and logs."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from foretell.core.app import App
from foretell.core.errors import (
    Mistake,
    NotFoundError,
    OutputError,
    ProgramChangedError,
    RunnerError,
    SpecError,
    StoreError,
)
from foretell.core.private_files import (
    APP_FILE,
    WORK_DIR,
    looks_like_a_file,
    make_own_folder,
    make_top_folder,
    work_folder,
)
from foretell.core.run import State
from foretell.core.warning import PredictionWarning, build_warning
from foretell.stores import RunReader, RunStore

_NAME = re.compile(r"(?!\.)[^/\0]{1,200}")  # of a folder: an imported app may have a name with spaces


def make_work_folder(app: App) -> None:
    """Check that the work folder can be written before any run is made.

    Raises:
        RunnerError: if it cannot be written.
        SpecError: if the app's name is not valid for a folder.
    """
    folder = run_directory(app, "").parent.parent
    try:
        make_top_folder(folder)
        writable = os.access(folder, os.W_OK | os.X_OK, effective_ids=True)
        cause = None if writable else "not writable"
    except OutputError as exc:
        raise RunnerError(str(exc)) from exc
    except OSError as exc:
        cause = exc.strerror
    if cause:
        raise RunnerError(
            f"{folder}: runs cannot be stored there ({cause}); set {WORK_DIR} to a folder that you can write to"
        )


def directory_of(app: App | str | Path) -> Path:
    """Return the folder of an app: its store is there by default."""
    if isinstance(app, App):
        return Path(app.directory)
    return Path(app).parent if looks_like_a_file(app) else Path()


def resolve_app(app: App | str | Path, store: RunReader) -> App:
    """Return an app object, the app of a file, or the app of a name in the store; in the version of the store.

    Raises:
        NotFoundError: if it is neither a file nor a name in the store.
        SpecError: if the file has mistakes.
    """
    if isinstance(app, App):
        return _adopt_version(app, store)
    if looks_like_a_file(app):
        from foretell.apps.app_file import load_app  # with PyYAML, which an app in the store does not need

        return _adopt_version(load_app(Path(app)), store)
    try:
        return store.get_app(str(app))
    except NotFoundError as exc:
        hint = "'foretell runs import' or 'foretell generate' adds an app."
        raise NotFoundError("app", str(app), known=exc.known, hint=hint) from None


def resolve_own_app(app: App | str | Path, store: RunStore) -> App:
    """Return an app as :func:`resolve_app` for running it: by name only if no other user can write the store.

    Raises:
        NotFoundError: if it is neither a file nor a name in the store.
        SpecError: if the file has mistakes.
        StoreError: if it is a name, and other users can write the store.
    """
    known = resolve_app(app, store)
    if not may_run(app, store):
        raise StoreError(
            f"{known.name!r} is an app in a store that other users can write, so its command is not trusted; "
            f"pass the app file to run it, as in 'foretell generate {known.name}/{APP_FILE}'."
        )
    return known


def may_run(app: App | str | Path, store: RunReader) -> bool:
    """Return whether an app may be run: it comes from a file, or from a store that only this user can write."""
    return isinstance(app, App) or looks_like_a_file(app) or store.private


def _adopt_version(app: App, store: RunReader) -> App:
    try:
        return replace(app, version=store.get_app(app.name).version)
    except NotFoundError:
        return app


def run_directory(app: App, run_id: str) -> Path:
    """Return the folder of a run."""
    return _folder_of(app, "runs") / run_id


def batch_directory(app: App) -> Path:
    """Return the folder of scripts for a scheduler."""
    return _folder_of(app, "batches")


def make_log_file(app: App) -> Path:
    """Return the path of the app's campaign log, in a folder that is created.

    Raises:
        OutputError: if the folder is a symbolic link, or belongs to another user.
        OSError: if it cannot be created.
    """
    folder = _folder_of(app, "logs")
    make_own_folder(folder, top=folder.parent.parent)
    return folder / "campaign.log"


def _folder_of(app: App, kind: str) -> Path:
    if not _NAME.fullmatch(app.name):
        raise SpecError(
            "app", [Mistake(place="name", found=repr(app.name), expected="letters, digits, '.', '_' and '-'")]
        )
    return work_folder(Path(app.directory)) / kind / app.name


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
