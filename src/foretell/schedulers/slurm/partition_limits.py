"""What can run on a cluster at all, by what it says of its partitions."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from foretell.core.errors import NotFoundError
from foretell.core.run import Allocation
from foretell.core.units import render_bytes, render_duration
from foretell.schedulers.slurm.cluster import Cluster, NodeGroup, Partition

_NOT_SAID = 2**20


def choose_partition(cluster: Cluster, wanted: str | None) -> str | None:
    """A partition for somebody who submits nothing: the one they want if it is there, else any."""
    known = [partition.name for partition in cluster.partitions]
    if wanted in known:
        return wanted
    return None if cluster.default_partition else next(iter(known), None)


class Room:
    """The partitions of a cluster; what names none is for ``partition``, or else the cluster's default one.

    Raises:
        NotFoundError: if there is no partition of that name, or no default.
    """

    def __init__(self, cluster: Cluster, partition: str | None) -> None:
        self._cluster = cluster
        self.partition = self._find_partition(partition).name

    @property
    def cores(self) -> int:
        """Those of the partition that can take jobs now."""
        groups = self._find_partition(self.partition).node_groups
        return max(1, sum(group.up * group.cores for group in groups))

    def find_node(self, asked: Allocation) -> NodeGroup | None:
        """The kind of node it would run on, the most common first; ``None`` if there is none, or no such partition."""
        partition = self._cluster.find_partition(asked.partition or self.partition)
        if partition is None:
            return None
        return next((group for group in partition.node_groups if _holds(_curb(group, partition), asked)), None)

    def fit_at_once(self, asked: Allocation, *, whole_nodes: bool = False) -> int:
        """How many such jobs fit side by side on the nodes that can take jobs now."""
        partition = self._find_partition(asked.partition or self.partition)
        alone = whole_nodes or partition.whole_node
        groups = [_curb(group, partition) for group in partition.node_groups]
        places = sum(
            group.up * (1 if alone else _count_on_one(group, asked)) for group in groups if _holds(group, asked)
        )
        return max(1, places // asked.nodes)

    def find_obstacle(self, asked: Allocation) -> str | None:
        """Why it can never run; ``None`` if it can."""
        partition = self._find_partition(asked.partition or self.partition)
        groups = [_curb(group, partition) for group in partition.node_groups]
        if not groups:
            return "there are no nodes behind it"
        nodes = min(partition.max_nodes or sys.maxsize, sum(group.count for group in groups))
        if asked.nodes > nodes:
            return f"it asks for {asked.nodes} nodes; at most {nodes} can be had"
        longest_s = partition.max_walltime_s
        if asked.walltime_s is not None and longest_s is not None and asked.walltime_s > longest_s:
            return f"it asks for {render_duration(asked.walltime_s)}; at most {render_duration(longest_s)} can be had"
        return None if any(_holds(group, asked) for group in groups) else _explain_misfit(asked, groups)

    def _find_partition(self, name: str | None) -> Partition:
        cluster = self._cluster
        known = [partition.name for partition in cluster.partitions]
        if name is None:
            if cluster.default_partition is None:
                raise NotFoundError("default partition", cluster.name, known=known, hint="Name one with --partition.")
            return cluster.default_partition
        found = cluster.find_partition(name)
        if found is None:
            raise NotFoundError("partition", name, known=known, hint=f"Those are what cluster {cluster.name} has.")
        return found


def _curb(group: NodeGroup, partition: Partition) -> NodeGroup:
    """Nodes as far as a job may have them in that partition."""
    cores, memory_bytes = partition.max_cores_per_node, partition.max_memory_per_node_bytes
    # Without RealMemory Slurm says 1 MiB, and takes no notice of memory.
    has = group.memory_bytes if group.memory_bytes > _NOT_SAID else sys.maxsize
    return replace(
        group,
        cores=min(group.cores, cores or group.cores),
        memory_bytes=min(has, memory_bytes or has),
    )


def _holds(group: NodeGroup, asked: Allocation) -> bool:
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
        return f"it asks for {asked.cores} cores; a node has {cores}"
    if asked.gpus > gpus:
        return f"it asks for {asked.gpus} GPUs; a node has {gpus}"
    if (asked.memory_bytes or 0) > memory:
        return f"it asks for {render_bytes(asked.memory_bytes or 0)} of memory; a node has {render_bytes(memory)}"
    return "no node has cores, memory and GPUs enough at once"
