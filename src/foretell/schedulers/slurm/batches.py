"""What submitting and following share: the batches under way, and what users should know of them."""

import abc
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from foretell.core.app import Submission
from foretell.core.batch import Batch
from foretell.core.run import RunSpec, State
from foretell.schedulers.slurm.cluster import Cluster
from foretell.schedulers.slurm.finished_runs import Task
from foretell.schedulers.slurm.job_array import ENDED, LOGS, find_first, has_elements
from foretell.schedulers.slurm.queue import Place


class Ledger(abc.ABC):
    """Keeps batches. What it was told outlives this process, as far as its kind can."""

    @abc.abstractmethod
    def open(self, batch: Batch, specs: Sequence[RunSpec]) -> Batch:
        """Write a batch down before it is submitted; it comes back with those runs that are its own to make."""

    @abc.abstractmethod
    def find(self, batch: Batch) -> Batch | None:
        """The batch as it is written down now; ``None`` if nobody waits for any of its runs any more."""

    @abc.abstractmethod
    def keep_job_id(self, batch: Batch, job_id: str) -> None:
        """Write down what the scheduler called it."""

    @abc.abstractmethod
    def forget(self, batch: Batch) -> None:
        """Forget a batch that will not be submitted: its runs are anybody's."""


class Unwritten(Ledger):
    """Keeps nothing: batches are known to this process only."""

    def open(self, batch: Batch, specs: Sequence[RunSpec]) -> Batch:
        return replace(batch, run_ids=tuple(spec.id for spec in specs))

    def find(self, batch: Batch) -> Batch | None:
        return batch

    def keep_job_id(self, batch: Batch, job_id: str) -> None:
        pass

    def forget(self, batch: Batch) -> None:
        pass


@dataclass(slots=True)
class Followed:
    """A batch under way: what is left of it by index, since when that is known to have ended, and Slurm's last word.

    ``may_submit``: if it never reached Slurm, it may be submitted again.
    """

    batch: Batch
    tasks: dict[int, Task]
    may_submit: bool = True
    gone_at: dict[int, float] = field(default_factory=dict)
    last_places: dict[int, Place] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return Path(self.batch.directory)

    def element(self, index: int) -> str:
        """What Slurm calls one of its runs."""
        return f"{self.batch.job_id}_{index}" if has_elements(self.batch.submission) else self.batch.job_id

    def log(self, index: int) -> Path:
        return self.directory / LOGS / f"{index}.log"

    def may_have_waited(self, index: int) -> bool:
        """Whether it may never have started, by what the queue said last."""
        place = self.last_places.get(index)
        return place is None or place.state is State.CANCELLED

    def find_first(self) -> str | None:
        """The job that does the batch's work, once it has started: if it was submitted twice, only one does."""
        return find_first(self.directory)

    def count_stamps(self) -> int:
        """Elements that said they have ended and are still to be kept."""
        with suppress(OSError):
            return sum(int(path.name) in self.tasks for path in (self.directory / ENDED).iterdir())
        return 0


@dataclass(slots=True, kw_only=True)
class Desk:
    """Batches under way by their ids, where they are written down, and notes for the user."""

    submission: Submission
    cluster: Cluster
    ledger: Ledger
    followed: dict[str, Followed] = field(default_factory=dict)
    notes: dict[str, bool] = field(default_factory=dict)

    @property
    def under_way(self) -> int:
        """How many runs Slurm has, as far as we know."""
        return sum(len(followed.tasks) for followed in self.followed.values())

    def has(self, run_id: str) -> bool:
        """Whether Slurm has that run, as far as we know."""
        return any(
            followed.batch.run_ids[index] == run_id for followed in self.followed.values() for index in followed.tasks
        )

    @property
    def submitted(self) -> Iterable[Followed]:
        """Batches whose job ids are known."""
        return [followed for followed in self.followed.values() if followed.batch.job_id]

    def note(self, sentence: str) -> None:
        """Have the user told, once."""
        self.notes.setdefault(sentence, False)

    def take_notes(self) -> list[str]:
        fresh = [note for note, told in self.notes.items() if not told]
        self.notes |= dict.fromkeys(fresh, True)
        return fresh
