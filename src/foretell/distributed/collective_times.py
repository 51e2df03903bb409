"""The time in which GPUs exchange data: operations of NCCL and RCCL, by message size, within nodes and between them."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.model_files import load_model, read_positive
from foretell.core.topology import Group, Topology
from foretell.core.workload import Floats
from foretell.distributed.collective_curves import Evidence, MeasuredCurves
from foretell.distributed.collective_laws import NAMES, OPERATIONS, CollectiveLaw, Exchanges
from foretell.distributed.collective_networks import Crossing, find_network_seconds


class Collective(StrEnum):
    """What GPUs of a group do together."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND = "send"  # from one to the next


class CollectiveModel:
    """What is fitted: a law for all devices, curves of measured ones, and how far both are off."""

    kind: ClassVar[str] = "collectives"

    def __init__(
        self,
        law: CollectiveLaw | None = None,
        curves: MeasuredCurves | None = None,
        spreads: Mapping[str, float] | None = None,
    ) -> None:
        self.law = law or CollectiveLaw()
        self.curves = curves or MeasuredCurves()
        self.spreads = {name: (spreads or {}).get(name, _UNKNOWN) for name in SPREADS}

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What was fitted, as plain values and arrays."""
        curves, arrays = self.curves.to_state()
        law = dict(zip(NAMES, self.law.logs.tolist(), strict=True))
        return {"law": law, "spreads": self.spreads, "curves": curves}, arrays

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The model with this state.

        Raises:
            LookupError, TypeError, ValueError: The state is not valid.
        """
        logs = np.array([float(record["law"][name]) for name in NAMES])
        if not np.isfinite(logs).all():
            raise ValueError("the law of collectives is not finite")
        spreads = {name: read_positive(record["spreads"][name]) for name in SPREADS}
        return cls(CollectiveLaw(logs), MeasuredCurves.from_state(record["curves"], arrays), spreads)


class CollectiveTimes:
    """Times of operations, by the links of a topology, and by measurements where there are some.

    A longer message never takes less time. Beyond the measured sizes, times grow as the law does: by latencies for
    small messages, by the links' rate for large ones.
    """

    def __init__(self, model: CollectiveModel | None = None) -> None:
        self.model = model or load_shipped()
        self._curves: dict[tuple[str, Group, Topology], tuple[Floats, Evidence]] = {}

    def predict(self, operation: Collective, bytes_: float, group: Group, topology: Topology) -> float:
        """Seconds of one operation.

        ``bytes_`` are those of the whole tensor: of what each GPU has before an all-reduce, a reduce-scatter or an
        all-to-all, of what each has after an all-gather, and of the message that is sent.
        """
        if group.gpus < 2 or bytes_ <= 0:
            return 0.0
        logs, _ = self._find_curve(operation, group, topology)
        place = (np.log2(bytes_) - _SIZES[0]) * _EACH
        if place >= _LAST:
            return float(np.exp(logs[-1]) * bytes_ / 2 ** _SIZES[-1])
        return float(np.exp(np.interp(place, _PLACES, logs)))

    def find_evidence(self, operation: Collective, group: Group, topology: Topology) -> Evidence:
        """What the times are predicted by."""
        return self._find_curve(operation, group, topology)[1]

    def _find_curve(self, operation: str, group: Group, topology: Topology) -> tuple[Floats, Evidence]:
        key = (operation, group, topology)
        found = self._curves.get(key)
        if found is None:
            found = self._curves[key] = self._build_curve(str(operation), group, topology)
        return found

    def _build_curve(self, operation: str, group: Group, topology: Topology) -> tuple[Floats, Evidence]:
        """Logarithms of seconds at the sizes of the grid."""
        sizes = 2**_SIZES
        seconds = self.model.law.find_seconds(describe(operation, group.gpus, sizes, topology))
        shifts, evidence = np.zeros(len(sizes)), Evidence.FIGURES
        if topology.link_bytes in (0.0, topology.device.link_bytes):
            shifts, evidence = self.model.curves.find_shifts(topology.device, operation, group.gpus, _SIZES)
        seconds = seconds * np.exp(shifts)
        if group.nodes > 1:
            crossing = Crossing(gpus=group.gpus, nodes=group.nodes, rate=topology.network_bytes_per_s)
            seconds = np.maximum(seconds, find_network_seconds(operation, sizes, crossing))
            evidence = Evidence.NETWORK
        return np.log(np.maximum.accumulate(seconds)), evidence


def describe(operation: str, gpus: int, bytes_: Floats, topology: Topology) -> Exchanges:
    """Messages of these sizes, as if all GPUs were in one node."""
    ones = np.ones(len(bytes_))
    return Exchanges(
        operation=np.full(len(bytes_), OPERATIONS.index(operation)),
        gpus=float(gpus) * ones,
        bytes_=bytes_,
        rate=topology.find_link_rate(gpus) * ones,
        full_rate=topology.link_bytes_per_s * ones,
        pcie=float(topology.uses_pcie) * ones,
        multicast=float(topology.multicasts) * ones,
        slowness=_SLOWNESS.get(topology.device.vendor, 1.0) * ones,
    )


@cache
def load_shipped() -> CollectiveModel:
    """The model that ships."""
    model, _ = load_model(SHIPPED, [CollectiveModel], remedy="install Foretell again")
    return model


SHIPPED = Path(str(resources.files("foretell.distributed") / "weights" / "collectives.safetensors"))
LARGE = float(1 << 20)  # bytes; errors of smaller messages are larger
SPREADS = tuple(f"{evidence}{size}" for evidence in Evidence for size in ("", " small"))
_UNKNOWN = 0.4
# Latencies that RCCL assumes, over those of NCCL: (17 + 4.5) / (8.4 + 3.4) us, of a ring's kernel and step in
# https://github.com/ROCm/rccl/blob/develop/src/graph/tuning.cc and NCCL's file of the same name.
_SLOWNESS = {"AMD": 1.8}
_EACH = 4  # sizes in an octave
_SIZES: Floats = np.arange(0, 40 * _EACH + 1) / _EACH  # log2 of bytes, to 1 TiB
_PLACES: Floats = np.arange(len(_SIZES), dtype=np.float64)
_LAST = len(_SIZES) - 1
