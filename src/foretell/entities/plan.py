"""What a campaign of runs will do, and how it stands."""

from dataclasses import dataclass

from foretell.entities.run import Run, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The runs a campaign will make, in order.

    ``stored`` runs need not be made again; ``failed`` ones are stored too and wait for ``--retry-failed``;
    ``left_out`` ones do not fit the budget. ``expected_s`` is the likely duration with ``at_once`` runs side by side,
    ``None`` before any run of the app was measured; ``limit_s`` is the most it can be, if runs have a limit.
    ``core_h`` is the expected cost in core-hours.
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
    busy_cores: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A campaign under way. ``last`` is the run that has just ended, if that is what happened."""

    total: int
    done: int
    failed: int
    running: tuple[RunSpec, ...]
    left_s: float | None
    last: Run | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    """What a campaign did. ``completed`` and ``failed`` count this campaign's runs only."""

    app: str
    completed: int
    failed: int
    recovered: int
    elapsed_s: float
    failures: tuple[Run, ...] = ()
    stopped: str = ""
