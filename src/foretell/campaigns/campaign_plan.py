"""What a campaign of runs will do, how it stands, and what other ways of getting runs brought."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from foretell.core.batch import BatchStatus
from foretell.core.run import Run, RunSpec, State


class Ending(enum.StrEnum):
    """Why an adaptive campaign needs no more runs."""

    NARROW_ENOUGH = "narrow_enough"
    NO_LONGER_PAYS = "no_longer_pays"
    NOTHING_LEFT = "nothing_left"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The runs a campaign will make, in order.

    ``stored`` runs need not be made again; ``failed`` ones are stored too and wait for ``--retry-failed``;
    ``left_out`` ones do not fit the budget; ``excluded`` ones do not meet the app's ``where``. ``expected_s`` is the
    likely duration with ``at_once`` runs side by side, ``None`` before any run of the app was measured; ``limit_s``
    is the most it can be, if runs have a limit. ``core_h`` is the expected cost in core-hours. Runs of a scheduler are
    made in ``partition``. ``obstacles`` say why runs can never be made there, and how many.

    An adaptive plan has only the next runs; ``undecided`` ones may follow, and ``expected_s`` and ``core_h`` are of
    all of them. ``width`` is the mean half-width of the answers' 90 % interval as a share of them, as the stored runs
    have it, and ``width_after`` what the next ones should make of it; ``ending`` says why no more are needed.
    """

    app: str
    specs: tuple[RunSpec, ...]
    stored: int
    failed: int
    running_elsewhere: int
    left_out: int
    at_once: int
    expected_s: float | None
    limit_s: float | None
    core_h: float | None
    excluded: int = 0
    busy_cores: float = 0.0
    partition: str | None = None
    undecided: int | None = None
    width: float | None = None
    width_after: float | None = None
    ending: Ending | None = None
    obstacles: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A campaign under way. ``last`` is the run that has just ended, if that is what happened.

    It has been so for ``used_s``; of those ``running``, ``queued`` wait for their turn. An adaptive one has the
    ``width`` of its answers before the runs under way, and what is expected of it after them.
    """

    total: int
    done: int
    failed: int
    running: tuple[RunSpec, ...]
    left_s: float | None
    last: Run | None = None
    note: str = ""
    used_s: float = 0.0
    queued: int = 0
    width: float | None = None
    width_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    """What a campaign did. ``completed`` and ``failed`` count this campaign's runs only.

    ``submitted`` ones are with the scheduler, as ``jobs``; ``held_back`` ones it would not take yet. Of those asked
    for, another process is making ``running_elsewhere`` ones; others made ``elsewhere_completed`` and
    ``elsewhere_failed`` ones meanwhile. ``left`` ones did not fit the budget, and should take ``left_s``.
    ``disturbed`` ones were measured while others used the machine, after ``repeated`` ones were measured again in
    quiet. ``remarks`` are what should be known of completed ones, such as a phase that could not be read, and of how
    many.

    An adaptive one says why it ended, and how wide the answers are then.
    """

    app: str
    completed: int
    failed: int
    recovered: int
    elapsed_s: float
    failures: tuple[Run, ...] = ()
    stopped: str = ""
    ending: Ending | None = None
    width: float | None = None
    submitted: int = 0
    held_back: int = 0
    jobs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    running_elsewhere: int = 0
    elsewhere_completed: int = 0
    elsewhere_failed: int = 0
    left: int = 0
    left_s: float | None = None
    disturbed: int = 0
    repeated: int = 0
    remarks: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        made = self.completed + self.failed + self.recovered + self.elsewhere_completed + self.elsewhere_failed
        with_others = self.submitted + self.held_back + self.running_elsewhere
        return not (made or with_others or self.left or self.stopped or self.ending)


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignStatus:
    """How an app's runs stand: what is stored by state, what is with the scheduler, what this look has brought."""

    app: str
    counts: Mapping[State, int]
    batches: tuple[BatchStatus, ...] = ()
    collected: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """What was cancelled: ``cancelled`` runs in ``jobs`` of the scheduler; ``collected`` ones had ended before."""

    app: str
    jobs: tuple[str, ...]
    cancelled: int
    collected: int
    notes: tuple[str, ...] = ()
