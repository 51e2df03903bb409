"""What every runner promises."""

import abc
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from foretell.core.app import Phase
from foretell.core.run import Launch, Run, RunSpec


class Runner(abc.ABC):
    """Starts runs somewhere and tells what came of them.

    **Room.** What :meth:`fits` refuses can never run here. What fits may have to wait until :meth:`has_room`; room is
    made by :meth:`poll`, never behind the caller's back.
    **Alone.** Each run has the cores, the GPUs and the run directory it asked for to itself. What :meth:`has_room` has
    found is kept for the next :meth:`start`, until :meth:`poll`.
    **Once.** Every run that was started is given by exactly one :meth:`poll`, in a final state, unless :meth:`stop`
    came first.
    **Files.** What a run prints is in ``stdout.log`` and ``stderr.log`` of its run directory, which is created.
    **The run's fault.** A command that does not exist, fails or exceeds its limits is a run in that state with its
    reason, not an error. An error means that the runner itself could not do its work.
    **Nothing stays.** When a run is final no process of it is left; after :meth:`stop` none of any run is.
    **What lasts.** Runs of a runner that is :attr:`lasting` go on when it is closed, and can be followed again later.
    **Where.** Runs that name no partition run in :attr:`partition`, where there are any.
    """

    lasting = False
    partition: str | None = None

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """How many one-core runs fit side by side."""

    @property
    @abc.abstractmethod
    def running(self) -> tuple[RunSpec, ...]:
        """Runs that were started and not yet given by :meth:`poll`."""

    @property
    def cores_elsewhere(self) -> int:
        """How many cores of this machine runs of other Foretell processes have, where that matters."""
        return 0

    @property
    def queued(self) -> int:
        """How many of the running ones wait for their turn."""
        return 0

    @property
    def held_back(self) -> int:
        """How many of the running ones could not be handed over yet."""
        return 0

    @abc.abstractmethod
    def find_obstacle(self, spec: RunSpec, *, time_limit_s: float | None = None) -> str | None:
        """Why it could never run here, held to that limit of its own; ``None`` if it could."""

    def fits(self, spec: RunSpec, *, time_limit_s: float | None = None) -> bool:
        """Whether it could ever run here."""
        return self.find_obstacle(spec, time_limit_s=time_limit_s) is None

    @abc.abstractmethod
    def fit_at_once(self, spec: RunSpec) -> int:
        """How many runs of this size fit side by side if nobody else is there; at least one."""

    @abc.abstractmethod
    def has_room(self, spec: RunSpec) -> bool:
        """Whether it can start right now."""

    @abc.abstractmethod
    def start(self, spec: RunSpec, launch: Launch, *, phases: Sequence[Phase] = ()) -> None:
        """Start a run and return at once; it begins with the next :meth:`poll` at the latest.

        Raises:
            RunnerError: if it does not fit, there is no room now, or its run directory cannot be written.
            RunTakenError: if another process on this machine makes a run in that directory.
        """

    @abc.abstractmethod
    def poll(self, timeout_s: float) -> list[Run]:
        """Runs that became final since the last poll; waits up to ``timeout_s`` for one if any is running.

        Raises:
            RunnerError: if a run could not be started, or followed to its end.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Kill what still runs and forget it. Calling it again does nothing."""

    def close(self) -> None:
        """Leave: what does not last is stopped."""
        if not self.lasting:
            self.stop()

    def take_notes(self) -> list[str]:
        """What a user should know, in plain sentences, since this was last asked."""
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
