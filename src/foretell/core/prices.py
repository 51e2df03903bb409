"""What an allocation costs for a time: the one pricing rule, on columns of allocations as well as for one.

What is charged for is counted on arrays (:meth:`Tariff.count_billed`). Many allocations are priced in floating point,
one exactly, as :class:`~decimal.Decimal`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretell.core.run import Allocation
from foretell.core.site import Billing, NodeType

Floats: TypeAlias = NDArray[np.float64]

SECONDS_PER_HOUR = 3600
_SMALLEST_AMOUNT = Decimal("0.000000001")


class Billed(NamedTuple):
    """What is charged for, on all nodes of each allocation."""

    cores: Floats
    gpus: Floats
    nodes: Floats


class Rates(NamedTuple):
    """What an hour of each costs; 0 for what is not charged."""

    core: Decimal
    gpu: Decimal
    node: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """How allocations are charged: for each of them, what its node has and what an hour costs."""

    node_cores: Floats
    node_gpus: Floats
    memory_per_core: Floats  # infinite where memory is not charged
    whole_node: NDArray[np.bool_]
    whole_node_if_several: NDArray[np.bool_]
    per_core_h: Floats
    per_gpu_h: Floats
    per_node_h: Floats

    @classmethod
    def of(cls, nodes: Sequence[NodeType]) -> "Tariff":
        """The columns of these node types."""
        rates = [find_rates(node) for node in nodes]
        return cls(
            node_cores=np.array([node.cores for node in nodes], dtype=float),
            node_gpus=np.array([node.gpus for node in nodes], dtype=float),
            memory_per_core=np.array([node.memory_per_core_bytes or np.inf for node in nodes], dtype=float),
            whole_node=np.array([node.whole_node for node in nodes], dtype=bool),
            whole_node_if_several=np.array([node.whole_node_if_several for node in nodes], dtype=bool),
            per_core_h=np.array([float(rate.core) for rate in rates]),
            per_gpu_h=np.array([float(rate.gpu) for rate in rates]),
            per_node_h=np.array([float(rate.node) for rate in rates]),
        )

    def count_billed(self, *, nodes: ArrayLike, cores: ArrayLike, gpus: ArrayLike, memory_bytes: ArrayLike) -> Billed:
        """What is charged for; ``cores``, ``gpus`` and ``memory_bytes`` are those of one node.

        Whole nodes are charged with all their cores and GPUs. Otherwise it is the cores, or as many as own the memory
        if those are more.
        """
        nodes = np.asarray(nodes, dtype=float)
        whole = self.whole_node | (self.whole_node_if_several & (nodes > 1))
        owning = np.minimum(self.node_cores, np.ceil(np.asarray(memory_bytes, dtype=float) / self.memory_per_core))
        charged = np.maximum(np.where(whole, self.node_cores, cores), owning)
        return Billed(cores=charged * nodes, gpus=np.where(whole, self.node_gpus, gpus) * nodes, nodes=nodes)

    def price_per_hour(self, *, nodes: ArrayLike, cores: ArrayLike, gpus: ArrayLike, memory_bytes: ArrayLike) -> Floats:
        """What an hour of each allocation costs."""
        billed = self.count_billed(nodes=nodes, cores=cores, gpus=gpus, memory_bytes=memory_bytes)
        fixed = billed.gpus * self.per_gpu_h + billed.nodes * self.per_node_h
        return np.asarray(billed.cores * self.per_core_h + fixed)


def find_rates(node: NodeType) -> Rates:
    """The prices of a node type that its billing counts."""
    none = Decimal(0)
    if node.billing is Billing.CORE_HOURS:
        return Rates(core=node.price_per_core_h, gpu=node.price_per_gpu_h, node=none)
    return Rates(core=none, gpu=none, node=node.price_per_node_h if node.billing is Billing.NODE_HOURS else none)


def price_per_hour(node: NodeType, allocation: Allocation) -> Decimal:
    """What an hour of one allocation costs, exactly."""
    billed = Tariff.of([node]).count_billed(
        nodes=allocation.nodes,
        cores=allocation.cores,
        gpus=allocation.gpus,
        memory_bytes=allocation.memory_bytes or 0,
    )
    counts = [Decimal(int(count.item())) for count in billed]
    return sum((count * rate for count, rate in zip(counts, find_rates(node), strict=True)), Decimal(0))


def charge(node: NodeType, allocation: Allocation, seconds: float) -> Decimal:
    """What one allocation costs for so long, exactly."""
    cost = price_per_hour(node, allocation) * Decimal(repr(float(seconds))) / SECONDS_PER_HOUR
    return cost.quantize(_SMALLEST_AMOUNT)
