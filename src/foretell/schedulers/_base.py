"""The base class of runners."""

import abc
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from foretell.core.app import Phase
from foretell.core.run import Launch, Run, RunSpec


class Runner(abc.ABC):
    """Starts runs and reports their results.

    **Capacity.** A run that :meth:`fits` refuses can never run here. Other runs may have to wait for
    :meth:`has_capacity`. Only :meth:`poll` frees capacity.
    **Isolation.** Each run has its own cores, GPUs and run directory. Capacity found by :meth:`has_capacity` stays
    reserved for the next :meth:`start`, until :meth:`poll`.
    **Exactly once.** Every started run is returned by exactly one :meth:`poll`, in a final state, unless :meth:`stop`
    was called before.
    **Files.** The output of a run is in ``stdout.log`` and ``stderr.log`` of its run directory, which is created.
    **Failed runs.** A command that does not exist, fails or exceeds its limits gives a run in that state with a
    reason, not an error. An error means that the runner itself failed.
    **No leftovers.** When a run is final, none of its processes is left; after :meth:`stop`, none of any run.
    **Exit.** Where :attr:`survives_exit` is set, runs continue after the runner is closed and can be tracked later.
    **Partition.** Runs without a partition run in :attr:`partition`, if the scheduler has partitions.
    """

    survives_exit = False
    partition: str | None = None

    @property
    @abc.abstractmethod
    def max_parallel(self) -> int:
        """How many one-core runs can run at once."""

    @property
    @abc.abstractmethod
    def running(self) -> tuple[RunSpec, ...]:
        """Runs that were started and not yet returned by :meth:`poll`."""

    @property
    def cores_used_elsewhere(self) -> int:
        """Cores of this machine that runs of other Foretell processes use; 0 on a cluster."""
        return 0

    @property
    def queued(self) -> int:
        """How many of the started runs wait in the queue."""
        return 0

    @property
    def held_back(self) -> int:
        """How many of the started runs could not be submitted yet."""
        return 0

    @abc.abstractmethod
    def find_obstacle(self, spec: RunSpec, *, time_limit_s: float | None = None) -> str | None:
        """Return why the run could never run here with that time limit; ``None`` if it could."""

    def fits(self, spec: RunSpec, *, time_limit_s: float | None = None) -> bool:
        """Return whether the run could ever run here."""
        return self.find_obstacle(spec, time_limit_s=time_limit_s) is None

    @abc.abstractmethod
    def count_parallel(self, spec: RunSpec) -> int:
        """Return how many runs of this size an idle machine or partition runs at once; at least one."""

    @abc.abstractmethod
    def has_capacity(self, spec: RunSpec) -> bool:
        """Return whether the run can start now."""

    @abc.abstractmethod
    def start(self, spec: RunSpec, launch: Launch, *, phases: Sequence[Phase] = ()) -> None:
        """Start a run and return at once; it begins with the next :meth:`poll` at the latest.

        Raises:
            RunnerError: if it does not fit, there is no capacity now, or its run directory cannot be written.
            RunTakenError: if another process on this machine uses that directory.
        """

    @abc.abstractmethod
    def poll(self, timeout_s: float) -> list[Run]:
        """Return runs that became final since the last poll; wait up to ``timeout_s`` for one if any is running.

        Raises:
            RunnerError: if a run could not be started or tracked.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Kill all runs and forget them. Calling it again does nothing."""

    def close(self) -> None:
        """Release the runner; runs that do not survive the exit are stopped."""
        if not self.survives_exit:
            self.stop()

    def take_notes(self) -> list[str]:
        """Return messages for the user since the last call."""
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
