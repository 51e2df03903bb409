"""Whether others use the machine so much that measurements suffer, and waiting until they do not."""

import time
from collections.abc import Callable

from foretell.entities.run import Run, State
from foretell.entities.units import render_duration
from foretell.probes.machine import current_load
from foretell.runners import Runner

_BUSY_CORES = 0.3  # used by others, above which measured times suffer
_PAUSE_S = 1.5


def is_disturbed(run: Run, runner: Runner) -> bool:
    """Whether others used the machine during a run that has just completed, so that its time may be too long."""
    load = run.machine.load
    return run.state is State.COMPLETED and load is not None and load - runner.cores_elsewhere > _BUSY_CORES


def describe_load(run: Run) -> str:
    """What a user should know of such a run."""
    return f"others used {run.machine.load:.1f} cores during a run: measured times may be too long"


def find_load(runner: Runner) -> float:
    """Cores that others keep busy; ask before runs start. Those of other Foretell processes' runs do not count."""
    return max(0.0, current_load() - runner.cores_elsewhere)


def is_quiet(runner: Runner) -> bool:
    return find_load(runner) <= _BUSY_CORES


def wait_until_quiet(runner: Runner, *, most_s: float, tell: Callable[[str], None]) -> None:
    """Return when others leave the machine alone, or after so long."""
    until_s = time.monotonic() + most_s
    while time.monotonic() < until_s and (load := find_load(runner)) > _BUSY_CORES:
        tell(f"others use {load:.1f} cores of this machine: waiting up to {render_duration(most_s)} for a quiet one")
        time.sleep(min(_PAUSE_S, max(0.0, until_s - time.monotonic())))
