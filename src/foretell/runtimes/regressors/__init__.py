"""Models that learn from runs, by name."""

from foretell.runtimes.regressors._base import LARGEST, SMALLEST, RunRegressor, State
from foretell.runtimes.regressors.blend import BlendRunRegressor, build_blend, weigh_by_error, weigh_members
from foretell.runtimes.regressors.boosting import BoostingRunRegressor
from foretell.runtimes.regressors.constant import ConstantRunRegressor
from foretell.runtimes.regressors.gaussian_process import GaussianProcessRunRegressor
from foretell.runtimes.regressors.harp import (
    LinearRunRegressor,
    NeuralRunRegressor,
    ReducedLinearRunRegressor,
    ReducedNeuralRunRegressor,
    ReducedTreeRunRegressor,
    TreeRunRegressor,
)
from foretell.runtimes.regressors.piecewise_law import PiecewiseLawRegressor
from foretell.runtimes.regressors.power_law import PowerRunRegressor
from foretell.runtimes.regressors.scaling_law import ScalingLawRegressor
from foretell.runtimes.regressors.trend import TrendRunRegressor

__all__ = [
    "LARGEST",
    "REGRESSORS",
    "SMALLEST",
    "BlendRunRegressor",
    "ConstantRunRegressor",
    "GaussianProcessRunRegressor",
    "RunRegressor",
    "State",
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
    "piecewise law": PiecewiseLawRegressor,
    "law+trees": TrendRunRegressor,
    "gaussian process": GaussianProcessRunRegressor,
    "blend": BlendRunRegressor,
}
