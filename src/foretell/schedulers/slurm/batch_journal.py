"""Records submitted batches, and checks those of a store before they are trusted."""

import abc
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from foretell.core.app import Submission
from foretell.core.batch import Batch
from foretell.core.errors import RunnerError
from foretell.core.private_files import check_own_folder
from foretell.core.run import RunSpec, State
from foretell.schedulers.slurm.cluster import Cluster
from foretell.schedulers.slurm.finished_runs import Task
from foretell.schedulers.slurm.job_array import ENDED, LOGS, find_first, has_elements, name_batch
from foretell.schedulers.slurm.job_status import QueueEntry

_ID = re.compile(r"[0-9a-f]{16}")
_RUN_ID = re.compile(r"[0-9a-f]{16}-[0-9]{1,18}")
_JOB_ID = re.compile(r"[1-9][0-9]{0,9}")
_MAX_JOB_ID = 2**31  # squeue lists nothing at all if one of the requested ids is larger
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)  # older than Foretell
_CLOCK_SKEW = timedelta(hours=1)  # between the machines that share a store


class ForeignBatchError(RunnerError):
    """A batch of the store is ignored; the message says why."""

    def __init__(self, batch: Batch, why: str) -> None:
        super().__init__(f"batch {batch.id!r} in the store is ignored: {why}")


def check_batch(batch: Batch, *, app: str, directory: Path) -> Batch:
    """Return the batch with its folder below ``directory``, from where this user submits batches of that app.

    Others may have written to the store, so nothing in it is trusted.

    Raises:
        ForeignBatchError: if it was submitted from elsewhere, or Foretell cannot have written it.
    """
    for name, is_usual in _list_checks(batch, app):
        if not is_usual:
            raise ForeignBatchError(batch, f"its {name} was not written by Foretell; the store was changed")
    folder = directory.absolute() / batch.id
    if os.path.realpath(batch.directory) != os.path.realpath(folder):
        raise ForeignBatchError(
            batch,
            f"it was submitted from {batch.directory!r}, not from below {str(directory)!r}. "
            f"to store its {len(batch.run_ids)} runs, call 'foretell status' as the same user with the same app file",
        )
    try:
        check_own_folder(folder, top=folder.parent.parent)
    except FileNotFoundError:
        pass  # never written
    except OSError as exc:
        raise ForeignBatchError(batch, str(exc)) from exc
    return replace(batch, directory=str(folder))


def is_job_id(text: object) -> bool:
    """Return whether the text can be the id of a Slurm job."""
    return isinstance(text, str) and _JOB_ID.fullmatch(text) is not None and int(text) < _MAX_JOB_ID


def _list_checks(batch: Batch, app: str) -> list[tuple[str, bool]]:
    cluster = batch.submission.cluster
    has_id = _ID.fullmatch(batch.id) is not None
    return [
        ("id", has_id),
        ("app", batch.app == app),
        ("name", has_id and batch.name == name_batch(app, batch.id)),
        ("job id", batch.job_id == "" or is_job_id(batch.job_id)),
        ("cluster", cluster is None or _CLUSTER.fullmatch(cluster) is not None),
        ("list of runs", all(_RUN_ID.fullmatch(run_id) for run_id in batch.run_ids)),
        ("time", _EARLIEST <= batch.created_at <= datetime.now(UTC) + _CLOCK_SKEW),
        ("folder", _is_path(batch.directory)),
    ]


def _is_path(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # half a character
        return False


class BatchJournal(abc.ABC):
    """Records batches before they are submitted, so that another process can continue to track them."""

    @abc.abstractmethod
    def open(self, batch: Batch, specs: Sequence[RunSpec]) -> Batch:
        """Record a batch before it is submitted; return it with those runs that no other process makes."""

    @abc.abstractmethod
    def find(self, batch: Batch) -> Batch | None:
        """Return the batch as recorded now; ``None`` if none of its runs is awaited any more."""

    @abc.abstractmethod
    def keep_job_id(self, batch: Batch, job_id: str) -> None:
        """Record the job id of a batch."""

    @abc.abstractmethod
    def forget(self, batch: Batch) -> None:
        """Remove a batch that will not be submitted; other processes may make its runs."""


class MemoryJournal(BatchJournal):
    """Records nothing: only this process knows the batches."""

    def open(self, batch: Batch, specs: Sequence[RunSpec]) -> Batch:
        return replace(batch, run_ids=tuple(spec.id for spec in specs))

    def find(self, batch: Batch) -> Batch | None:
        return batch

    def keep_job_id(self, batch: Batch, job_id: str) -> None:
        pass

    def forget(self, batch: Batch) -> None:
        pass


@dataclass(slots=True)
class TrackedBatch:
    """A submitted batch: its unfinished tasks by index, when each left the queue, and its last queue entry.

    ``may_submit``: it may be submitted again if it never reached Slurm.
    """

    batch: Batch
    tasks: dict[int, Task]
    may_submit: bool = True
    gone_at: dict[int, float] = field(default_factory=dict)
    last_entries: dict[int, QueueEntry] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return Path(self.batch.directory)

    def element(self, index: int) -> str:
        """Return the job id of one of its runs."""
        return f"{self.batch.job_id}_{index}" if has_elements(self.batch.submission) else self.batch.job_id

    def log(self, index: int) -> Path:
        return self.directory / LOGS / f"{index}.log"

    def may_have_waited(self, index: int) -> bool:
        """Return whether the run may never have started, by its last queue entry."""
        entry = self.last_entries.get(index)
        return entry is None or entry.state is State.CANCELLED

    def find_first(self) -> str | None:
        """Return the job that started first: if the batch was submitted twice, only that one makes the runs."""
        return find_first(self.directory)

    def count_ended(self) -> int:
        """Return how many unfinished elements have written that they ended."""
        with suppress(OSError):
            return sum(int(path.name) in self.tasks for path in (self.directory / ENDED).iterdir())
        return 0


@dataclass(slots=True, kw_only=True)
class ActiveBatches:
    """Submitted batches by id, their journal, and messages for the user."""

    submission: Submission
    cluster: Cluster
    journal: BatchJournal
    by_id: dict[str, TrackedBatch] = field(default_factory=dict)
    notes: dict[str, bool] = field(default_factory=dict)

    @property
    def run_count(self) -> int:
        """Runs that are submitted and not collected."""
        return sum(len(tracked.tasks) for tracked in self.by_id.values())

    def has(self, run_id: str) -> bool:
        """Return whether that run is submitted and not collected."""
        return any(tracked.batch.run_ids[index] == run_id for tracked in self.by_id.values() for index in tracked.tasks)

    @property
    def submitted(self) -> Iterable[TrackedBatch]:
        """Batches whose job ids are known."""
        return [tracked for tracked in self.by_id.values() if tracked.batch.job_id]

    def note(self, sentence: str) -> None:
        """Add a message for the user; each is shown once."""
        self.notes.setdefault(sentence, False)

    def take_notes(self) -> list[str]:
        fresh = [note for note, taken in self.notes.items() if not taken]
        self.notes |= dict.fromkeys(fresh, True)
        return fresh
