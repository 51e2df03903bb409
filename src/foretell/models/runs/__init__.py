"""Models that learn from runs, by name."""

from foretell.models.runs._base import LARGEST, SMALLEST, RunRegressor
from foretell.models.runs.boosting import BoostingRunRegressor
from foretell.models.runs.law import ScalingLawRegressor
from foretell.models.runs.linear import LinearRunRegressor
from foretell.models.runs.neural import NeuralRunRegressor
from foretell.models.runs.tree import TreeRunRegressor

__all__ = ["LARGEST", "REGRESSORS", "SMALLEST", "RunRegressor"]

REGRESSORS: dict[str, type[RunRegressor]] = {
    "linear": LinearRunRegressor,
    "tree": TreeRunRegressor,
    "neural": NeuralRunRegressor,
    "boosting": BoostingRunRegressor,
    "law": ScalingLawRegressor,
}
