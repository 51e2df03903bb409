"""The report of a fitted model, and the model as it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from foretell.core.warning import PredictionWarning


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Errors of a candidate on unseen full-scale runs. In percent except MAE and retry cost (docs/metrics.md)."""

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
    """The selected model of one quantity.

    ``leaderboard`` is best first by the policy. ``expected`` are the errors to expect of the winner, from rows that
    were used neither for its fit nor for its selection. ``pairs`` are (measured, predicted) of those rows. ``between``
    are the errors between the measured values, by ``between_winner``, and ``beyond`` those outside them, by
    ``beyond_winner``; ``None`` if they could not be estimated.
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
class Transfer:
    """What another app's runs brought, judged on the same unseen runs of this one.

    ``method`` is ``scaled`` (the source's predictions, scaled) or ``pooled`` (one model of both apps' runs). ``alone``
    and ``with_source`` are the errors without and with the transfer; ``alone`` is ``None`` where the app has too few
    ``configurations`` to fit a model to.
    """

    source: str
    method: str
    alone: Scores | None
    with_source: Scores
    configurations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A fitted predictor: its selected models, columns and warnings."""

    app: str
    policy: str
    judgements: Mapping[str, Judgement]
    uses_custom: bool
    uses_custom_between: bool = False
    uses_custom_beyond: bool = False
    warnings: tuple[PredictionWarning, ...] = ()
    columns: tuple[str, ...] = ()
    transfer: Transfer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """A fitted predictor as bytes, with its card and the ids of the runs it was fitted to."""

    app: str
    card: ModelCard
    blob: bytes
    run_ids: tuple[str, ...]
    created_at: datetime
    extra: Mapping[str, str] = field(default_factory=dict)
