"""What makes runs those of the same training."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from foretell.core.app import Value
from foretell.core.workload import Workload

_SAME_FLOPS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingIdentity:
    """What makes two runs those of the same training, apart from where and how long they run."""

    source: str  # the script, or the source of the model
    parameters: int  # of the network
    flops: float  # of an example
    precision: str

    @property
    def app(self) -> str:
        """The name of the app of its runs."""
        file, _, factory = self.source.partition(":")
        name = f"{PurePath(file).stem}-{factory}" if factory else PurePath(file).stem
        return f"advise-{name.replace('/', '-').strip('.-') or 'training'}"

    @property
    def network(self) -> str:
        """The size of the network, as stored runs have it."""
        return f"{self.parameters} parameters, {self.flops:.4g} FLOPs an example"

    def is_same(self, parameters: Mapping[str, Value]) -> bool:
        """Whether a stored run is one of this network in this precision."""
        words = str(parameters.get("network", "")).split()
        try:
            own, flops = int(words[0]), float(words[2])
        except (IndexError, ValueError):
            return False
        near = abs(flops - self.flops) <= _SAME_FLOPS * self.flops
        return own == self.parameters and near and parameters.get("precision") == self.precision


def identify(workload: Workload, *, batches: int = 1) -> TrainingIdentity:
    """The identity of a recorded training, whose step has so many batches."""
    return TrainingIdentity(
        source=workload.name,
        parameters=workload.parameters,
        flops=workload.flops / max(1, workload.batch * batches),
        precision=workload.settings.get("precision", "fp32"),
    )
