"""Where the GPUs of a job are: in nodes with links between them, and a network between nodes."""

from dataclasses import dataclass

from foretell.core.devices import Device
from foretell.core.layouts import Layout

_PCIE_BYTES = 12e9  # a second in each direction, where the links of a device are unknown
_NETWORK_BYTES = 12.5e9  # 100 Gb/s for each node, where the network is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Nodes with equal GPUs. Rates are those of one GPU in each direction; 0 for the device's own, or usual ones."""

    device: Device
    gpus_per_node: int = 8
    link_bytes: float = 0.0  # a second, to the other GPUs of the node
    network_bytes: float = 0.0  # a second, to other nodes

    @property
    def link_bytes_per_s(self) -> float:
        """Within a node."""
        return self.link_bytes or self.device.link_bytes or _PCIE_BYTES

    @property
    def network_bytes_per_s(self) -> float:
        """Between nodes, for one GPU while all GPUs of its node send."""
        return self.network_bytes or self.device.network_bytes or _NETWORK_BYTES / self.gpus_per_node

    def place(self, gpus: int, *, stride: int = 1) -> "Group":
        """The group of so many GPUs whose numbers are ``stride`` apart."""
        in_node = max(1, min(gpus, self.gpus_per_node // stride))
        return Group(gpus=gpus, nodes=-(-gpus // in_node))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """GPUs that communicate with each other, spread evenly over nodes."""

    gpus: int
    nodes: int = 1

    @property
    def gpus_in_node(self) -> int:
        """Those of one node."""
        return -(-self.gpus // self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutGroups:
    """The groups of a layout, as Megatron-LM numbers its GPUs."""

    tensor: Group
    context: Group
    sharding: Group  # among which the states of one copy of the model are divided, or its gradients are reduced
    replicas: Group  # of those, with hybrid sharding
    experts: Group
    stages: Group  # neighbours in a pipeline

    @classmethod
    def place(cls, layout: Layout, topology: Topology) -> "LayoutGroups":
        """On the nodes of a topology."""
        tensor, context = layout.tensor_parallel, layout.context_parallel
        sharing = layout.copies * context
        sharding = layout.sharding.group or sharing
        return cls(
            tensor=topology.place(tensor),
            context=topology.place(context, stride=tensor),
            sharding=topology.place(sharding, stride=tensor),
            replicas=topology.place(sharing // sharding, stride=tensor * sharding),
            experts=topology.place(layout.expert_parallel),
            stages=topology.place(min(2, layout.pipeline_parallel), stride=tensor * sharing),
        )
