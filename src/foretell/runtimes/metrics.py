"""How good predictions were. Definitions in docs/metrics.md."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretell.core.errors import NotFoundError
from foretell.core.model_card import Scores

POLICIES: Mapping[str, Callable[[Scores], float]] = {
    "mape": lambda scores: scores.mape,
    "mae": lambda scores: scores.mae,
    "wtm": lambda scores: scores.wtm,
    "cost": lambda scores: scores.retry_cost,
}
DEFAULT_POLICY = "mape"


def get_policy(name: str) -> Callable[[Scores], float]:
    try:
        return POLICIES[name]
    except KeyError:
        raise NotFoundError("policy", name, known=POLICIES) from None


def score(actual: ArrayLike, predicted: ArrayLike) -> Scores:
    """HARP's metrics, and what requests of the predicted size would have cost."""
    a, p = np.asarray(actual, dtype=float), np.asarray(predicted, dtype=float)
    relative = 100 * np.abs(p - a) / a
    under = p < a
    upp = 100 * float(np.mean(under))
    ov_mape = float(np.mean(relative[~under])) if (~under).any() else 0.0
    return Scores(
        mae=float(np.mean(np.abs(p - a))),
        mape=float(np.mean(relative)),
        median_ape=float(np.median(relative)),
        upp=upp,
        ov_mape=ov_mape,
        wtm=upp + (1 - upp / 100) * ov_mape,
        retry_cost=float(np.sum(cost_with_doubling(p, a)) / np.sum(a)),
    )


def cost_with_doubling(request: ArrayLike, actual: ArrayLike) -> NDArray[np.float64]:
    """What is paid when a request that fails is doubled until it fits: failed tries in full, the last for what it took.

    HARP's example: a request of 180 s for a job of 685 s costs 180 + 360 + 685 = 1225 s.
    """
    p, a = np.asarray(request, dtype=float), np.asarray(actual, dtype=float)
    failures = np.ceil(np.maximum(np.log2(a / p), 0) - 1e-12)
    return np.asarray(p * (2**failures - 1) + a, dtype=float)


def nrmse(actual: ArrayLike, predicted: ArrayLike) -> float:
    """The root of the mean square error over the mean of what was measured, as a share."""
    a, p = np.asarray(actual, dtype=float), np.asarray(predicted, dtype=float)
    return float(np.sqrt(np.mean((p - a) ** 2)) / np.mean(a))
