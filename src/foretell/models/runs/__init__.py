"""Models that learn from runs, by name."""

from foretell.models.runs._base import LARGEST, SMALLEST, RunRegressor
from foretell.models.runs.blend import BlendRunRegressor, build_blend, weigh_by_error, weigh_members
from foretell.models.runs.boosting import BoostingRunRegressor
from foretell.models.runs.constant import ConstantRunRegressor
from foretell.models.runs.law import ScalingLawRegressor
from foretell.models.runs.linear import LinearRunRegressor
from foretell.models.runs.neural import NeuralRunRegressor
from foretell.models.runs.piecewise import PiecewiseLawRegressor
from foretell.models.runs.power import PowerRunRegressor
from foretell.models.runs.process import ProcessRunRegressor
from foretell.models.runs.reduced import ReducedLinearRunRegressor, ReducedNeuralRunRegressor, ReducedTreeRunRegressor
from foretell.models.runs.tree import TreeRunRegressor
from foretell.models.runs.trend import TrendRunRegressor

__all__ = [
    "LARGEST",
    "REGRESSORS",
    "SMALLEST",
    "BlendRunRegressor",
    "ConstantRunRegressor",
    "ProcessRunRegressor",
    "RunRegressor",
    "build_blend",
    "weigh_by_error",
    "weigh_members",
]

REGRESSORS: dict[str, type[RunRegressor]] = {
    "linear": LinearRunRegressor,
    "tree": TreeRunRegressor,
    "neural": NeuralRunRegressor,
    "linear PCA": ReducedLinearRunRegressor,
    "tree PCA": ReducedTreeRunRegressor,
    "neural PCA": ReducedNeuralRunRegressor,
    "constant": ConstantRunRegressor,
    "power": PowerRunRegressor,
    "boosting": BoostingRunRegressor,
    "law": ScalingLawRegressor,
    "laws": PiecewiseLawRegressor,
    "law+trees": TrendRunRegressor,
    "process": ProcessRunRegressor,
    "blend": BlendRunRegressor,
}
