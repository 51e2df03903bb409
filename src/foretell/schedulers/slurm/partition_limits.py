"""Checks requests against the limits of a cluster's partitions."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from foretell.core.errors import NotFoundError
from foretell.core.run import Allocation
from foretell.core.units import render_bytes, render_duration
from foretell.schedulers.slurm.cluster import Cluster, NodeGroup, Partition

_UNSET_MEMORY = 2**20


def choose_partition(cluster: Cluster, wanted: str | None) -> str | None:
    """Return a partition for a runner that submits nothing: the wanted one if it exists, else any."""
    known = [partition.name for partition in cluster.partitions]
    if wanted in known:
        return wanted
    return None if cluster.default_partition else next(iter(known), None)


class PartitionLimits:
    """The partitions of a cluster; requests without one go to ``partition``, or else to the default partition.

    Raises:
        NotFoundError: if there is no partition of that name, or no default.
    """

    def __init__(self, cluster: Cluster, partition: str | None) -> None:
        self._cluster = cluster
        self.partition = self._find_partition(partition).name

    @property
    def cores(self) -> int:
        """Cores of the partition's nodes that are up."""
        groups = self._find_partition(self.partition).node_groups
        return max(1, sum(group.up * group.cores for group in groups))

    def find_node(self, asked: Allocation) -> NodeGroup | None:
        """Return the most common type of node that it fits; ``None`` if there is none, or no such partition."""
        partition = self._cluster.find_partition(asked.partition or self.partition)
        if partition is None:
            return None
        return next(
            (group for group in partition.node_groups if _is_enough(_limit_to_partition(group, partition), asked)), None
        )

    def count_parallel(self, asked: Allocation, *, whole_nodes: bool = False) -> int:
        """Return how many such jobs the nodes that are up can run at once."""
        partition = self._find_partition(asked.partition or self.partition)
        alone = whole_nodes or partition.whole_node
        groups = [_limit_to_partition(group, partition) for group in partition.node_groups]
        slots = sum(
            group.up * (1 if alone else _count_on_one(group, asked)) for group in groups if _is_enough(group, asked)
        )
        return max(1, slots // asked.nodes)

    def find_obstacle(self, asked: Allocation) -> str | None:
        """Return why it can never run; ``None`` if it can."""
        partition = self._find_partition(asked.partition or self.partition)
        groups = [_limit_to_partition(group, partition) for group in partition.node_groups]
        if not groups:
            return "the partition has no nodes"
        nodes = min(partition.max_nodes or sys.maxsize, sum(group.count for group in groups))
        if asked.nodes > nodes:
            return f"it requests {asked.nodes} nodes; the limit is {nodes}"
        longest_s = partition.max_walltime_s
        if asked.walltime_s is not None and longest_s is not None and asked.walltime_s > longest_s:
            return f"it requests {render_duration(asked.walltime_s)}; the limit is {render_duration(longest_s)}"
        return None if any(_is_enough(group, asked) for group in groups) else _explain_misfit(asked, groups)

    def _find_partition(self, name: str | None) -> Partition:
        cluster = self._cluster
        known = [partition.name for partition in cluster.partitions]
        if name is None:
            if cluster.default_partition is None:
                raise NotFoundError("default partition", cluster.name, known=known, hint="Name one with --partition.")
            return cluster.default_partition
        found = cluster.find_partition(name)
        if found is None:
            raise NotFoundError(
                "partition", name, known=known, hint=f"These are the partitions of cluster {cluster.name}."
            )
        return found


def _limit_to_partition(group: NodeGroup, partition: Partition) -> NodeGroup:
    """Return the part of a node that a job of that partition may use."""
    cores, memory_bytes = partition.max_cores_per_node, partition.max_memory_per_node_bytes
    # Without RealMemory in its configuration, Slurm reports 1 MiB and does not limit memory.
    has = group.memory_bytes if group.memory_bytes > _UNSET_MEMORY else sys.maxsize
    return replace(
        group,
        cores=min(group.cores, cores or group.cores),
        memory_bytes=min(has, memory_bytes or has),
    )


def _is_enough(group: NodeGroup, asked: Allocation) -> bool:
    enough_memory = (asked.memory_bytes or 0) <= group.memory_bytes
    return asked.cores <= group.cores and asked.gpus <= group.gpus and enough_memory


def _count_on_one(group: NodeGroup, asked: Allocation) -> int:
    bounds = [group.cores // asked.cores]
    bounds += [group.gpus // asked.gpus] if asked.gpus else []
    bounds += [group.memory_bytes // asked.memory_bytes] if asked.memory_bytes else []
    return min(bounds)


def _explain_misfit(asked: Allocation, groups: Sequence[NodeGroup]) -> str:
    cores, gpus = max(group.cores for group in groups), max(group.gpus for group in groups)
    memory = max(group.memory_bytes for group in groups)
    if asked.cores > cores:
        return f"it requests {asked.cores} cores; a node has {cores}"
    if asked.gpus > gpus:
        return f"it requests {asked.gpus} GPUs; a node has {gpus}"
    if (asked.memory_bytes or 0) > memory:
        return f"it requests {render_bytes(asked.memory_bytes or 0)} of memory; a node has {render_bytes(memory)}"
    return "no single node has enough cores, memory and GPUs together"
