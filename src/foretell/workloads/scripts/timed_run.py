"""Runs a user's command for some steps on this machine, and gives the time that they took."""

import json
import math
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foretell.core.errors import WorkloadError
from foretell.measure.machine import read_busy_s
from foretell.measure.other_load import OtherLoad
from foretell.workloads.scripts.script_command import CommandOutcome, run_command
from foretell.workloads.scripts.script_events import TimingRequest
from foretell.workloads.scripts.script_results import describe_command, explain_outcome
from foretell.workloads.scripts.written_files import list_files

STEPS, SECONDS, TIMEOUT_S = 50, 60.0, 600.0
_LEAST = 0.01  # of the time of a step, that is its own


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSteps:
    """Steps of a command as they ran on this machine; the first ones are not among them.

    For ``waited_s`` of the ``seconds``, the script waited for its loaders.
    """

    steps: int
    seconds: float
    waited_s: float = 0.0
    start_up_s: float  # from the start of the command to the first step
    device: str  # the name of the GPU by its driver, or cpu
    threads: int
    load: OtherLoad | None = None  # of other processes meanwhile
    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def step_s(self) -> float:
        """The mean time of a step."""
        return self.seconds / self.steps

    @property
    def compute_s(self) -> float:
        """The mean time of a step without the waiting for data."""
        return max(self.seconds - self.waited_s, _LEAST * self.seconds) / self.steps


def time_script(
    command: Sequence[str],
    *,
    steps: int = STEPS,
    seconds: float = SECONDS,
    timeout_s: float = TIMEOUT_S,
    on_progress: Callable[[str], None] | None = None,
) -> TimedSteps:
    """Run a command in this folder until so many of its steps, or steps of so many seconds, were timed, and end it.

    Raises:
        NotFoundError: Its program, its script or a file that it needs does not exist.
        WorkloadError: It takes too few steps, fails, asks for several processes, or takes longer than ``timeout_s``.
        MissingExtraError: Its Python has no PyTorch.
    """
    request = TimingRequest(steps=steps, seconds=seconds, began=time.time())
    began = _read_clocks()
    outcome = run_command(command, timeout_s=timeout_s, on_progress=on_progress, timing=request)
    clock, busy, own = (now - then for now, then in zip(_read_clocks(), began, strict=True))
    if outcome.result is None:
        raise explain_outcome(command, outcome, timeout_s=timeout_s)
    try:
        return _read(outcome, busy_cores=max(0.0, busy - own) / max(clock, 1e-3))
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as exc:
        raise WorkloadError(f"what the process of {describe_command(command)} wrote are no times of steps") from exc


def _read_clocks() -> tuple[float, float, float]:
    """Seconds, those in which cores of this machine were busy, and those of this process and of what it ran."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), read_busy_s(), time.process_time() + children.ru_utime + children.ru_stime


def _read(outcome: CommandOutcome, *, busy_cores: float) -> TimedSteps:
    record = json.loads(outcome.result or "")
    steps, seconds, first = int(record["steps"]), float(record["seconds"]), float(record["first_s"])
    waited = float(record["waited_s"])
    if steps < 1 or not 0 <= waited <= seconds or not 0 < seconds < math.inf or not 0 <= first < math.inf:
        raise ValueError("no steps")
    return TimedSteps(
        steps=steps,
        seconds=seconds,
        waited_s=waited,
        start_up_s=max(0.0, first - seconds / steps),
        device=str(record["device"]),
        threads=int(record["threads"]),
        load=OtherLoad(
            busy_cores=busy_cores, cores=len(os.sched_getaffinity(0)), threads=max(1, int(record["threads"]))
        ),
        **list_files(outcome.events),
    )
