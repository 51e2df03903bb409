"""Waits for an idle machine, and for a store that is temporarily unavailable."""

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

_BUSY_CORES = 0.3  # used by other processes, above which measured times suffer
_PAUSE_S = 1.5


def is_disturbed(run: Run, runner: Runner) -> bool:
    """Return whether other processes used the machine during a completed run, so that its time may be too long."""
    load = run.machine.load
    return run.state is State.COMPLETED and load is not None and load - runner.cores_used_elsewhere > _BUSY_CORES


def describe_load(run: Run) -> str:
    """Return a message about a disturbed run."""
    return f"other processes used {run.machine.load:.1f} cores during a run: measured times may be too long"


def find_load(runner: Runner) -> float:
    """Return the cores that other processes use, before runs start; without those of other Foretell runs."""
    return max(0.0, current_load() - runner.cores_used_elsewhere)


def is_idle(runner: Runner) -> bool:
    return find_load(runner) <= _BUSY_CORES


def wait_until_idle(runner: Runner, *, most_s: float, report: Callable[[str], None]) -> None:
    """Return when the machine is idle, or after so long."""
    until_s = time.monotonic() + most_s
    while time.monotonic() < until_s and (load := find_load(runner)) > _BUSY_CORES:
        longest = render_duration(most_s)
        report(f"other processes use {load:.1f} cores: waiting up to {longest} for an idle machine")
        time.sleep(min(_PAUSE_S, max(0.0, until_s - time.monotonic())))


_MIN_INTERVAL_S, _LONGEST_S = 0.5, 10.0


class RetryingStore:
    """A proxy of a store; within :meth:`waiting`, calls that fail temporarily are repeated."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._report: Callable[[str], None] | None = None

    @property
    def store(self) -> RunStore:
        """The store with repeated calls."""
        return cast("RunStore", self)

    @property
    def private(self) -> bool:
        """Whether only this user can write the store."""
        return self._store.private

    @contextmanager
    def waiting(self, report: Callable[[str], None]) -> Iterator[None]:
        """Repeat calls that fail temporarily; each outage is reported once."""
        self._report = report
        try:
            yield
        finally:
            self._report = None

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, getattr(self._store, name))

    def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        pause_s = _MIN_INTERVAL_S
        while True:
            try:
                return method(*arguments, **named)
            except StoreError as exc:
                if self._report is None or not exc.transient:
                    raise
                if pause_s == _MIN_INTERVAL_S:
                    self._report(f"{exc} Retrying until it responds; running jobs are not affected.")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_S)
