"""Where the GPUs of a job are: in nodes with links between them, and a network between nodes."""

import math
from dataclasses import dataclass

from foretell.core.devices import Device
from foretell.core.layouts import Layout

_PCIE_BYTES = 16e9  # a second in each direction, of 16 lanes of PCIe 3, where the links of a device are unknown
_PCIE_MOST = 64e9  # of 16 lanes of PCIe 5
_NETWORK_BYTES = 12.5e9  # 100 Gb/s for each node, where the network is unknown
# GPUs whose switches join more than a node; NVIDIA GB200 NVL72 and GB300 NVL72 data sheets.
_DOMAINS = {"GB200": 72, "GB300": 72}
# Boards whose links go straight to the other seven, without a switch: all alike (AMD Instinct MI300X and Gaudi 3
# platforms), or more of them to some than to others (NVIDIA DGX-1 system architecture white paper, 2017).
_STRAIGHT = ("CDNA", "Gaudi")
_CUBE = ("Volta", "Pascal")
_MESH = 8
_MULTICAST = ("Hopper", "Blackwell")  # NVLink SHARP: switches of the third generation and later reduce and multicast


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Nodes with equal GPUs. Rates are those of one GPU in each direction; 0 for the device's own, or usual ones."""

    device: Device
    gpus_per_node: int = 8
    link_bytes: float = 0.0  # a second, to the other GPUs of the node
    network_bytes: float = 0.0  # a second, to other nodes
    domain: int = 0  # GPUs that links join, where that is more than a node; 0 for what is usual with the device

    @property
    def link_bytes_per_s(self) -> float:
        """Within a node, by all links of a GPU."""
        return self.link_bytes or self.device.link_bytes or _PCIE_BYTES

    @property
    def network_bytes_per_s(self) -> float:
        """Between nodes, for one GPU while all GPUs of its node send."""
        return self.network_bytes or self.device.network_bytes or _NETWORK_BYTES / self.gpus_per_node

    @property
    def linked_gpus(self) -> int:
        """GPUs that exchange data without the network: those of a node, or of several that switches join."""
        return max(self.gpus_per_node, self.domain or _DOMAINS.get(self.device.name, 0))

    @property
    def uses_pcie(self) -> bool:
        """Whether GPUs of a node have no other links than PCIe."""
        return self.link_bytes_per_s <= _PCIE_MOST

    @property
    def multicasts(self) -> bool:
        """Whether the switch of a node reduces and multicasts."""
        return self.device.architecture in _MULTICAST and not self.uses_pcie and self.gpus_per_node > _BRIDGED

    def find_link_rate(self, gpus: int) -> float:
        """Bytes a second in each direction, of a GPU to its group in a node; without a switch, some links are idle."""
        architecture = self.device.architecture
        if self.uses_pcie or gpus >= _MESH or self.gpus_per_node <= _BRIDGED:
            share = 1.0
        elif architecture.startswith(_STRAIGHT):
            share = (gpus - 1) / (min(self.gpus_per_node, _MESH) - 1)
        elif architecture.startswith(_CUBE):
            share = math.log2(gpus) / math.log2(_MESH)
        else:
            share = 1.0
        return min(1.0, share) * self.link_bytes_per_s

    def place(self, gpus: int, *, stride: int = 1) -> "Group":
        """The group of so many GPUs whose numbers are ``stride`` apart."""
        in_node = max(1, min(gpus, self.linked_gpus // stride))
        return Group(gpus=gpus, nodes=-(-gpus // in_node))


_BRIDGED = 2  # GPUs that a bridge joins, which is neither a switch nor a mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """GPUs that communicate with each other, spread evenly over nodes."""

    gpus: int
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutGroups:
    """The groups of a layout, as Megatron-LM numbers its GPUs."""

    tensor: Group
    context: Group
    sharding: Group  # among which the states of one copy of the model are divided, or its gradients are reduced
    replicas: Group  # of those, with hybrid sharding
    experts: Group
    expert_copies: Group  # among which the gradients of the same experts are reduced
    stages: Group  # neighbours in a pipeline

    @classmethod
    def place(cls, layout: Layout, topology: Topology) -> "LayoutGroups":
        """On the nodes of a topology."""
        tensor, context = layout.tensor_parallel, layout.context_parallel
        sharing, sharding = layout.copies * context, layout.sharding_gpus
        return cls(
            tensor=topology.place(tensor),
            context=topology.place(context, stride=tensor),
            sharding=topology.place(sharding, stride=tensor),
            replicas=topology.place(sharing // sharding, stride=tensor * sharding),
            experts=topology.place(layout.expert_parallel),
            expert_copies=_place_expert_copies(layout, topology),
            stages=topology.place(min(2, layout.pipeline_parallel), stride=tensor * sharing),
        )


def _place_expert_copies(layout: Layout, topology: Topology) -> Group:
    """Where experts are not shared by GPUs, tensor parallelism divides each of them, as it divides other layers."""
    tensor, experts = layout.tensor_parallel, layout.expert_parallel
    if experts == 1:
        return topology.place(layout.sharding_gpus, stride=tensor)
    return topology.place(layout.copies * layout.context_parallel * tensor // experts, stride=experts)
