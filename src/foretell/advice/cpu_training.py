"""Training steps on the cores of a CPU, from the model of one core."""

from dataclasses import dataclass
from pathlib import Path

from foretell.advice.training_nodes import CannotTrainError
from foretell.core.layouts import Layout
from foretell.core.prediction import Estimate
from foretell.core.site import NodeType
from foretell.core.topology import Topology
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import Workload
from foretell.distributed.layout_search import LayoutChoice
from foretell.distributed.parallel_results import ParallelStep
from foretell.steps.step_predictor import StepPredictor, find_step_predictor, list_step_predictors

_SHIPPED, _SHIPPED_FAMILY = "EPYC core", "EPYC"
# The share of a step that more cores make faster: for the lower bound, the value and the upper bound.
_PARALLEL = (1.0, 0.95, 0.75)
_OTHER_CPU = 1.5  # a CPU of the same family may be faster or slower by this factor


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuNodes:
    """A node type whose CPU has a model."""

    node: NodeType
    predictor: StepPredictor
    exact: bool  # whether it is a model of that CPU, not of one of its family

    def predict(self, workload: Workload, *, cores: int, level: float) -> LayoutChoice:
        """A step on so many cores, with an interval from no gain by more cores to a proportional one."""
        alone = self.predictor.predict(workload, level=level).iteration
        own = max(1, self.predictor.device.units)
        low, value, high = (_scale_time(share, cores / own) for share in _PARALLEL)
        other = 1.0 if self.exact else _OTHER_CPU
        step = Estimate(
            value=alone.value * value, low=alone.low * low / other, high=alone.high * high * other, level=level
        )
        parallel = ParallelStep(
            workload=workload,
            layout=Layout(),
            topology=Topology(device=self.predictor.device, gpus_per_node=1),
            step=step,
            parts={"compute": step.value},
            warnings=tuple(self._find_warnings(cores)),
        )
        return LayoutChoice(step=parallel)

    def _find_warnings(self, cores: int) -> list[PredictionWarning]:
        name = self.predictor.device.name
        text = f"The time on CPUs is scaled from the model {name!r}: how much more cores help is not known."
        return [build_warning("cpu-scaled", text, device=name, cores=cores)]


def _scale_time(share: float, ratio: float) -> float:
    """Of the time on as many cores as were measured, by Amdahl's law; fewer cores take longer in proportion."""
    return 1 - share + share / ratio if ratio >= 1 else 1 / ratio


def find_cpu_nodes(node: NodeType, *, learned: Path | None, device: str | None = None) -> CpuNodes:
    """The model of a node's CPU: one that was learned under its name, the shipped one of its family, or ``device``.

    Raises:
        CannotTrainError: There is none.
    """
    if device is not None:
        return CpuNodes(node=node, predictor=find_step_predictor(device, learned=learned), exact=True)
    for known in list_step_predictors(learned=learned):
        own = known.device.name.lower()
        if known.device.kind == "cpu" and node.cpu_model and own == node.cpu_model.lower():
            return CpuNodes(node=node, predictor=find_step_predictor(known.device.name, learned=learned), exact=True)
    if _SHIPPED_FAMILY in node.cpu_model:
        return CpuNodes(node=node, predictor=find_step_predictor(_SHIPPED, learned=learned), exact=False)
    hint = "'foretell device learn' makes one on such a node, and --cpu names it"
    raise CannotTrainError(f"there is no model of this CPU; {hint}")
