"""Batches of runs submitted to a scheduler, their status, and jobs of its accounting."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from foretell.core.app import Submission
from foretell.core.run import Allocation, Owner, State, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Runs submitted to a scheduler together, as one array: element ``n`` is the run ``run_ids[n]``.

    ``job_id`` is empty until the scheduler's reply is stored. ``name`` is unique: a batch whose reply was lost is found
    again by it.
    """

    id: str
    app: str
    name: str
    directory: str
    submission: Submission
    run_ids: tuple[str, ...]
    submitter: Owner
    created_at: datetime
    job_id: str = ""

    def __post_init__(self) -> None:
        if self.created_at.tzinfo is None:  # so that times can always be compared
            object.__setattr__(self, "created_at", self.created_at.replace(tzinfo=UTC))

    @property
    def owner(self) -> Owner:
        """The owner of its runs: the batch itself, not a process."""
        return Owner(token=self.id, hostname="", boot_id="", pid=0, started_at=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """The status of a batch: of its ``unfinished`` runs some are ``queued`` (``why``), some ``running``.

    The rest has ended, and is not in the accounting yet.
    """

    batch: Batch
    unfinished: int
    queued: int
    running: int
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of the accounting, or one element of an array, with its steps merged.

    ``word`` is the scheduler's name of its ``state``, ``allocated`` what it was given, with its time limit.
    """

    id: str
    state: State
    word: str
    name: str = ""
    exit_code: int | None = None
    signal: int = 0
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    allocated: Allocation = field(default_factory=Allocation)
    usage: Usage | None = None
    node_list: str = ""
