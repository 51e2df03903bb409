"""What building a model leaves behind for people to read and for the store to keep."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from foretell.core.warning import PredictionWarning


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How a candidate did on full-scale runs it never saw. In percent but for MAE and retry cost (docs/metrics.md)."""

    mae: float
    mape: float
    median_ape: float
    upp: float
    ov_mape: float
    wtm: float
    retry_cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow:
    """One line of the leaderboard."""

    candidate: str
    family: str
    mix: str
    adjustment: float | None
    scores: Scores
    fit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The outcome for one quantity.

    ``leaderboard`` is best first by the policy. ``expected`` is the error to expect of the winner, from rows that
    neither its fit nor its choice saw. ``pairs`` are (measured, predicted) for those rows. ``between`` is the error to
    expect where a question's values lie between those measured, by ``between_winner``, and ``beyond`` where they lie
    outside them, by ``beyond_winner``; ``None`` if that could not be judged.
    """

    quantity: str
    policy: str
    winner: str
    why: str
    leaderboard: tuple[LeaderboardRow, ...]
    expected: Scores
    pairs: tuple[tuple[float, float], ...]
    rows: int
    full_scale_rows: int
    censored_rows: int
    between: Scores | None = None
    between_winner: str = ""
    beyond: Scores | None = None
    beyond_winner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Borrowing:
    """What another app's runs brought, on the same unseen runs of this one.

    ``way`` is ``scaled`` (the source's predictions, times what its own runs say) or ``pooled`` (one model of both apps'
    runs). ``alone`` is ``None`` where there were too few ``configurations`` to learn from by themselves.
    """

    source: str
    way: str
    alone: Scores | None
    borrowed: Scores
    configurations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What a fitted predictor is and where it comes from."""

    app: str
    policy: str
    judgements: Mapping[str, Judgement]
    uses_custom: bool
    uses_custom_between: bool = False
    uses_custom_beyond: bool = False
    warnings: tuple[PredictionWarning, ...] = ()
    columns: tuple[str, ...] = ()
    borrowed: Borrowing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """A fitted predictor as bytes, with its card and the ids of the runs behind it."""

    app: str
    card: ModelCard
    blob: bytes
    run_ids: tuple[str, ...]
    created_at: datetime
    extra: Mapping[str, str] = field(default_factory=dict)
