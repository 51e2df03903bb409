"""A cluster (or this machine) as its users see it: node types, limits and prices."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from foretell.core.run import BENCH_FIGURES


class Billing(enum.StrEnum):
    """What is charged, per hour of used walltime.

    CORE_HOURS: cores x price, or the cores that own the requested memory if those are more; plus GPUs x price.
    NODE_HOURS: whole nodes x price.
    FREE: nothing is charged.
    """

    CORE_HOURS = "core-hours"
    NODE_HOURS = "node-hours"
    FREE = "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """One kind of node behind one partition, with its limits and prices (per hour).

    ``whole_node``: a job gets whole nodes, and is charged for them. ``whole_node_if_several``: it does if it requests
    more than one. The figures of ``foretell machine bench`` on such a node, if known, scale times to it.
    ``network_bytes`` is what a node sends to others in a second, ``gpu_link_bytes`` what a GPU sends to those of its
    node, in each direction.
    """

    name: str
    partition: str
    cluster: str | None = None
    cores: int
    memory_bytes: int
    gpus: int = 0
    gpu_model: str | None = None
    gpu_memory_bytes: int | None = None
    cpu_model: str = ""
    cpu_mhz: float | None = None
    architecture: str | None = None  # as `uname -m` prints it
    network_bytes: float | None = None
    gpu_link_bytes: float | None = None
    max_nodes: int = 1
    max_walltime_s: float | None = None
    whole_node: bool = False
    whole_node_if_several: bool = False
    billing: Billing = Billing.FREE
    price_per_core_h: Decimal = Decimal(0)
    price_per_gpu_h: Decimal = Decimal(0)
    price_per_node_h: Decimal = Decimal(0)
    memory_per_core_bytes: int | None = None
    bench_version: int | None = None
    bench_s: float | None = None
    bench_core_s: float | None = None
    bench_cores_s: float | None = None
    bench_memory_s: float | None = None
    bench_disk_s: float | None = None

    @property
    def bench(self) -> dict[str, float]:
        """Its benchmark, as facts of a machine; empty if unknown."""
        names = ("bench_version", *BENCH_FIGURES)
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def gives_whole_nodes(self, nodes: int) -> bool:
        return self.whole_node or (self.whole_node_if_several and nodes > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where jobs can run. ``as_of`` and ``source`` are the date and source of its figures.

    ``script`` are scheduler options every job script gets (``{cluster}`` in one stands for the node type's cluster);
    ``refuses`` are those its scheduler does not accept.
    """

    name: str
    title: str
    scheduler: str
    node_types: tuple[NodeType, ...]
    currency: str = "USD"
    as_of: str = ""
    source: str = ""
    notes: str = ""
    script: Mapping[str, str] = field(default_factory=dict)
    refuses: tuple[str, ...] = ()

    @property
    def has_prices(self) -> bool:
        """Whether any node type charges for jobs."""
        return any(node.billing is not Billing.FREE for node in self.node_types)

    def find_node_type(self, name: str | None) -> NodeType | None:
        """The node type of that name, or else the first one behind a partition of that name."""
        named = (node for node in self.node_types if node.name == name)
        behind = (node for node in self.node_types if node.partition == name)
        return next(named, None) or next(behind, None)
