"""What training jobs can request of a site: GPUs of its node types, with the links between them, or cores."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from foretell.advice.training_job import TrainingJob
from foretell.core.devices import Device, check_precision, find_device
from foretell.core.errors import SpecError
from foretell.core.prediction import Estimate
from foretell.core.run import Allocation
from foretell.core.site import NodeType
from foretell.core.topology import Topology
from foretell.core.units import render_link
from foretell.core.warning import PredictionWarning, build_warning

_ALL_UP_TO = 4  # nodes; of more, only some counts are tried
_MEBIBYTE = 2**20  # schedulers count memory in these
_USUAL_NETWORK = 12.5e9  # bytes a second of a node: 100 Gb/s


class CannotTrainError(Exception):
    """A node type on which a training cannot be predicted; its text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNodes:
    """A node type with GPUs whose figures are known."""

    node: NodeType
    topology: Topology

    @property
    def device(self) -> Device:
        return self.topology.device

    def list_counts(self) -> list[tuple[int, int]]:
        """Nodes and GPUs of each: every number of GPUs of one node, then whole nodes."""
        one = [(1, gpus) for gpus in range(1, self.node.gpus + 1)]
        return [*one, *((nodes, self.node.gpus) for nodes in _list_nodes(self.node.max_nodes))]

    def find_warnings(self, *, nodes: int, gpus: int) -> Iterator[PredictionWarning]:
        """What the site does not say of the links that a job uses."""
        if nodes > 1 and self.node.network_bytes is None:
            rate = render_link(_USUAL_NETWORK)
            text = f"The network of {self.node.name} is not in the site file; {rate} a node are assumed (key network)."
            yield build_warning("interconnect-unknown", text, node_type=self.node.name)
        if gpus > 1 and not self.topology.link_bytes and not self.device.link_bytes:
            text = f"The links between the GPUs of {self.node.name} are unknown; PCIe is assumed (key gpu_link)."
            yield build_warning("interconnect-unknown", text, node_type=self.node.name)


def find_gpu_nodes(node: NodeType, *, precision: str) -> GpuNodes:
    """The GPUs of a node type, with their links.

    Raises:
        CannotTrainError: Their figures are not known, or they lack the precision.
    """
    device = _find_gpu(node)
    try:
        check_precision(device, precision)
    except SpecError as exc:
        raise CannotTrainError(f"its GPUs have no {precision.removeprefix('pure-')}") from exc
    network = node.network_bytes if node.network_bytes is not None else _USUAL_NETWORK
    topology = Topology(
        device=device,
        gpus_per_node=node.gpus,
        link_bytes=node.gpu_link_bytes or 0.0,
        network_bytes=network / node.gpus,
    )
    return GpuNodes(node=node, topology=topology)


def _find_gpu(node: NodeType) -> Device:
    """The device with the memory that the site gives it; boards of one model may have more than one size."""
    model, memory = node.gpu_model or "", node.gpu_memory_bytes
    named = find_device(f"{model} {math.ceil(memory / 2**30)}GB") if memory and model else None
    device = named or (find_device(model) if model else None)
    if device is None:
        hint = "'foretell device list' names the known ones"
        raise CannotTrainError(f"the figures of {model or 'its GPUs'} are unknown; {hint}")
    if memory is None or abs(memory - device.memory_bytes) < 0.02 * memory:
        return device
    return replace(device, memory_bytes=memory, usable_memory=0)


def _list_nodes(most: int) -> list[int]:
    """Whole nodes: every count at first, then powers of two, those half as large again, and the most."""
    powers = (2**exponent for exponent in range(2, max(2, most).bit_length()))
    counts = {*range(2, _ALL_UP_TO + 1), *(count for power in powers for count in (power, power * 3 // 2)), most}
    return sorted(count for count in counts if 2 <= count <= most)


def build_allocation(node: NodeType, job: TrainingJob, *, nodes: int, gpus: int) -> Allocation:
    """GPUs with a core for each process that uses one and for each of its loaders, as far as the node has them."""
    whole = node.gives_whole_nodes(nodes)
    cores = node.cores if whole else min(node.cores, gpus * (job.workers + 1))
    return Allocation(cores=cores, gpus=gpus, nodes=nodes, partition=node.partition, node_type=node.name)


def list_core_allocations(node: NodeType) -> list[Allocation]:
    """Powers of two of cores, and the full node; only the full node if jobs get whole ones."""
    counts = {2**exponent for exponent in range(node.cores.bit_length()) if 2**exponent < node.cores}
    wanted = [node.cores] if node.whole_node else sorted({*counts, node.cores})
    return [Allocation(cores=cores, partition=node.partition, node_type=node.name) for cores in wanted]


def count_loaders(allocation: Allocation, job: TrainingJob) -> int:
    """Processes that load data and have a core of their own, for each process that computes."""
    if not allocation.gpus:
        return job.workers
    return max(1, min(job.workers, allocation.cores // allocation.gpus - 1))


def request_memory(node: NodeType, allocation: Allocation, needed: Estimate) -> int:
    """Bytes of each node: what is needed at most, or what the job pays for in any case if that is more."""
    whole = node.memory_bytes // _MEBIBYTE * _MEBIBYTE
    if node.gives_whole_nodes(allocation.nodes):
        return whole
    share = allocation.cores / node.cores
    owned = allocation.cores * node.memory_per_core_bytes if node.memory_per_core_bytes else share * node.memory_bytes
    return min(whole, max(int(needed.high), int(owned)))


def scale_host(job: TrainingJob, allocation: Allocation) -> Estimate:
    """Bytes of the host on each node."""
    processes = max(1, allocation.gpus)
    host = job.host
    return Estimate(
        value=processes * host.value, low=processes * host.low, high=processes * host.high, level=host.level
    )
