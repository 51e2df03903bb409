"""What a scheduler was given together, how that stands, and what its accounting says came of it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from foretell.core.app import Submission
from foretell.core.run import Allocation, Owner, State, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Runs handed to a scheduler together, as one array: element ``n`` is the run ``run_ids[n]``.

    ``job_id`` is empty until the scheduler's answer was kept. The scheduler knows a batch by its ``name``, too, which
    no other has: so one whose answer was lost is found again.
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
        if self.created_at.tzinfo is None:  # so that moments can always be compared
            object.__setattr__(self, "created_at", self.created_at.replace(tzinfo=UTC))

    @property
    def owner(self) -> Owner:
        """Who has its runs: no process, the batch itself."""
        return Owner(token=self.id, hostname="", boot_id="", pid=0, started_at=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """How a batch stands: of its ``unfinished`` runs some are ``queued`` (``why`` they wait), some ``running``.

    The rest has ended, and accounting is still to say how.
    """

    batch: Batch
    unfinished: int
    queued: int
    running: int
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What accounting says of a job, or of one element of an array, its steps folded in.

    ``word`` is the scheduler's own for its ``state``, ``allocated`` what it was given, with the time limit in force.
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
