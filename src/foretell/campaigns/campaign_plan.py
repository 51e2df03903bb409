"""The plan, progress and result of a campaign."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from foretell.core.batch import BatchStatus
from foretell.core.run import Run, RunSpec, State


class Ending(enum.StrEnum):
    """Why an adaptive campaign ended."""

    NARROW_ENOUGH = "narrow_enough"
    NO_LONGER_PAYS = "no_longer_pays"
    NOTHING_LEFT = "nothing_left"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The runs that a campaign will make, in order.

    ``stored`` runs are not made again; ``failed`` ones are stored too and made again with ``--retry-failed``;
    ``left_out`` ones do not fit the budget; ``excluded`` ones do not meet the app's ``where``. ``expected_s`` is the
    expected duration with ``at_once`` parallel runs, ``None`` before any run of the app was measured; ``limit_s``
    is the longest possible duration if runs have a time limit. ``core_h`` is the expected cost in core-hours. Runs of
    a scheduler are made in ``partition``. ``obstacles`` count runs that can never be made there, by reason.

    An adaptive plan contains only the next runs; ``undecided`` ones may follow, and ``expected_s`` and ``core_h`` are
    for all of them. ``width`` is the mean half-width of the predictions' 90 % intervals as a share of the predictions
    with the stored runs, and ``width_after`` that expected after the next runs; ``ending`` is why no more are needed.
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
    """The progress of a campaign after ``used_s``. ``last`` is the run that has just ended, if one has.

    Of those ``running``, ``queued`` wait in the queue. An adaptive campaign has the ``width`` of intervals before the
    current runs, and the expected one after them.
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
    """The result of a campaign. ``completed`` and ``failed`` count the runs of this campaign only.

    ``submitted`` runs are in the scheduler's ``jobs``; ``held_back`` ones could not be submitted yet. Other processes
    are making ``running_elsewhere`` runs, and have made ``elsewhere_completed`` and ``elsewhere_failed`` ones
    meanwhile. ``left`` runs did not fit the budget, and are expected to take ``left_s``. ``disturbed`` runs were
    measured while other processes used the machine; ``repeated`` ones were measured again on the idle machine.
    ``remarks`` count completed runs by remark, such as a phase that could not be read. ``log`` is the log file.

    An adaptive campaign has an ``ending``, and the ``width`` of intervals at that time.
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
    log: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        made = self.completed + self.failed + self.recovered + self.elsewhere_completed + self.elsewhere_failed
        with_others = self.submitted + self.held_back + self.running_elsewhere
        return not (made or with_others or self.left or self.stopped or self.ending)


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignStatus:
    """The state of an app's runs: stored runs by state, submitted batches, and how many were collected now."""

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
