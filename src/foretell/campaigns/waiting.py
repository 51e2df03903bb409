"""A store that may be away for a while: what long work asks of it is asked again until it answers."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from foretell.core.errors import StoreError
from foretell.core.run import Run, State
from foretell.core.units import render_duration
from foretell.measure.machine import current_load
from foretell.schedulers import Runner
from foretell.stores import RunStore

_BUSY_CORES = 0.3  # used by others, above which measured times suffer
_PAUSE_S = 1.5


def is_disturbed(run: Run, runner: Runner) -> bool:
    """Whether others used the machine during a run that has just completed, so that its time may be too long."""
    load = run.machine.load
    return run.state is State.COMPLETED and load is not None and load - runner.cores_used_elsewhere > _BUSY_CORES


def describe_load(run: Run) -> str:
    """What a user should know of such a run."""
    return f"others used {run.machine.load:.1f} cores during a run: measured times may be too long"


def find_load(runner: Runner) -> float:
    """Cores that others keep busy; ask before runs start. Those of other Foretell processes' runs do not count."""
    return max(0.0, current_load() - runner.cores_used_elsewhere)


def is_quiet(runner: Runner) -> bool:
    return find_load(runner) <= _BUSY_CORES


def wait_until_quiet(runner: Runner, *, most_s: float, tell: Callable[[str], None]) -> None:
    """Return when others leave the machine alone, or after so long."""
    until_s = time.monotonic() + most_s
    while time.monotonic() < until_s and (load := find_load(runner)) > _BUSY_CORES:
        tell(f"others use {load:.1f} cores of this machine: waiting up to {render_duration(most_s)} for a quiet one")
        time.sleep(min(_PAUSE_S, max(0.0, until_s - time.monotonic())))


_MIN_INTERVAL_S, _LONGEST_S = 0.5, 10.0


class Patience:
    """Passes on what is asked of a store; within :meth:`waiting`, failures that may pass are waited out."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._tell: Callable[[str], None] | None = None

    @property
    def store(self) -> RunStore:
        """The store, as patient as this is."""
        return cast("RunStore", self)

    @property
    def private(self) -> bool:
        """As the store's."""
        return self._store.private

    @contextmanager
    def waiting(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Be patient; ``tell`` is told of each outage once."""
        self._tell = tell
        try:
            yield
        finally:
            self._tell = None

    def __getattr__(self, name: str) -> Any:
        return partial(self._ask, getattr(self._store, name))

    def _ask(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        pause_s = _MIN_INTERVAL_S
        while True:
            try:
                return method(*arguments, **named)
            except StoreError as exc:
                if self._tell is None or not exc.transient:
                    raise
                if pause_s == _MIN_INTERVAL_S:
                    self._tell(f"{exc} Trying until it answers; runs under way are not affected.")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_S)
