"""Times the steps of a script in its own process, as they run on this machine, and ends the process after some."""

import atexit
import os
import time
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from foretell.workloads.scripts import script_events
from foretell.workloads.scripts.process_end import end_process
from foretell.workloads.scripts.script_events import TimingRequest

WARM_UP = 3  # updates before the first one that is timed: states are created, kernels chosen


def begin(request: TimingRequest) -> None:
    """Count the updates of this process, and end it after those that were asked for."""
    clock = _StepClock(request)
    os.register_at_fork(after_in_child=clock.stop)
    register_optimizer_step_post_hook(lambda optimizer, *_: clock.note(optimizer))
    atexit.register(clock.finish)
    _watch_loaders(clock)
    script_events.report("torch", version=torch.__version__)


def _watch_loaders(clock: "_StepClock") -> None:
    """Note how long the script waits for batches."""
    base: Any = dataloader._BaseDataLoaderIter
    fetch = base.__next__

    def give(self: Any) -> Any:
        begin = time.perf_counter()
        try:
            return fetch(self)
        finally:
            clock.waited_s += time.perf_counter() - begin

    base.__next__ = give


class _StepClock:
    """When updates ended. With several optimizers, a step ends with that of the first one."""

    def __init__(self, request: TimingRequest) -> None:
        self._request = request
        self._first: torch.optim.Optimizer | None = None
        self._counting = True
        self._steps = 0
        self.waited_s = 0.0  # for data, since the warm-up
        self._start_s = self._first_s = 0.0
        self._last_s = self._written_s = 0.0

    def stop(self) -> None:
        """Count no more, in a forked process."""
        self._counting = False

    def note(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has updated its parameters."""
        self._first = self._first or optimizer
        if not self._counting or optimizer is not self._first:
            return
        self._steps += 1
        if self._steps == 1:
            _wait_for_gpu()
            self._first_s = time.time() - self._request.began
        if self._steps <= WARM_UP:
            _wait_for_gpu()
            self._start_s = time.perf_counter()
            self.waited_s = 0.0
            return
        now = self._last_s = time.perf_counter()
        if self._steps - WARM_UP >= self._request.steps or now - self._start_s >= self._request.seconds:
            _wait_for_gpu()
            self._last_s = time.perf_counter()
            self.finish()
            end_process()
        elif now - self._written_s >= 1.0:
            self._written_s = now
            script_events.write_again(script_events.PARTIAL_RESULT, self._build_record(now))

    def finish(self) -> None:
        """Write what is known: the steps that were asked for, or those that the script took until it ended."""
        if self._counting and self._steps > WARM_UP:
            self.stop()
            script_events.write_once(script_events.RESULT, self._build_record(self._last_s))

    def _build_record(self, now: float) -> dict[str, Any]:
        return {
            "steps": self._steps - WARM_UP,
            "seconds": now - self._start_s,
            "waited_s": self.waited_s,
            "first_s": self._first_s,
            "device": torch.cuda.get_device_name() if _uses_gpu() else "cpu",
            "threads": torch.get_num_threads(),
        }


def _uses_gpu() -> bool:
    initialized: Any = torch.cuda.is_initialized
    return bool(torch.cuda.is_available() and initialized())


def _wait_for_gpu() -> None:
    if _uses_gpu():
        torch.cuda.synchronize()
