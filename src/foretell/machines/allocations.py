"""Which allocations a job could ask of a site."""

from collections.abc import Collection, Iterable

from foretell.entities.run import Allocation
from foretell.entities.site import NodeType, Site


def list_allocations(
    site: Site,
    *,
    cores: Collection[int] | None = None,
    gpus: Collection[int] | None = None,
    nodes: Collection[int] = (1,),
) -> list[tuple[NodeType, Allocation]]:
    """Every allocation a job could ask for, with its node type; cores and GPUs are per node.

    Without ``cores`` these are the powers of two and the full node, and likewise for ``gpus``; where a job gets whole
    nodes, the full node only. Otherwise they are those of the given counts that fit: a job may leave part of a node
    it gets whole unused. A node type with GPUs is offered for jobs that use one.
    """
    return [
        (node, _build_allocation(node, cores=core_count, gpus=gpu_count, nodes=node_count))
        for node in site.node_types
        for node_count in _list_fitting(nodes, least=1, most=node.max_nodes)
        for gpu_count in _list_counts(
            gpus, least=_least_gpus(site, node), most=node.gpus, whole=node.gives_whole_nodes(node_count)
        )
        for core_count in _list_counts(cores, least=1, most=node.cores, whole=node.gives_whole_nodes(node_count))
    ]


def _build_allocation(node: NodeType, *, cores: int, gpus: int, nodes: int) -> Allocation:
    return Allocation(cores=cores, gpus=gpus, nodes=nodes, partition=node.partition, node_type=node.name)


def _least_gpus(site: Site, node: NodeType) -> int:
    idle_gpus_allowed = site.scheduler == "shell" and not node.whole_node
    return 0 if idle_gpus_allowed else min(1, node.gpus)


def _list_counts(wanted: Collection[int] | None, *, least: int, most: int, whole: bool) -> list[int]:
    if wanted is not None:
        return _list_fitting(wanted, least=least, most=most)
    return [most] if whole else _list_fitting([0, *_powers_of_two(most), most], least=least, most=most)


def _list_fitting(counts: Iterable[int], *, least: int, most: int) -> list[int]:
    return sorted({count for count in counts if least <= count <= most})


def _powers_of_two(most: int) -> list[int]:
    return [2**exponent for exponent in range(most.bit_length())]
