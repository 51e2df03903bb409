"""Checks requests against the limits of partitions."""

import pytest

from foretell.core.run import Allocation
from foretell.schedulers.slurm.cluster import Cluster, NodeGroup, Partition
from foretell.schedulers.slurm.partition_limits import PartitionLimits, choose_partition

NODE = NodeGroup(count=2, up=1, cores=28, memory_bytes=100 << 30)
UNSAID = NodeGroup(count=1, up=1, cores=28, memory_bytes=1 << 20)


def build_limits(group: NodeGroup = NODE, **limits: int | float) -> PartitionLimits:
    partition = Partition(name="p", default=True, node_groups=(group,), **limits)  # type: ignore[arg-type]
    return PartitionLimits(build_cluster(partition), None)


def build_cluster(*partitions: Partition) -> Cluster:
    return Cluster(
        name="c",
        version="24.11",
        partitions=partitions,
        max_array_size=1001,
        max_array_tasks=1001,
        max_jobs=10000,
        min_job_age_s=300,
        accounting=True,
    )


@pytest.mark.parametrize(
    ("limits", "asked", "obstacle"),
    [
        (build_limits(), Allocation(cores=28, nodes=2, memory_bytes=100 << 30), None),
        (build_limits(), Allocation(cores=29), "it requests 29 cores; a node has 28"),
        (build_limits(), Allocation(nodes=3), "it requests 3 nodes; the limit is 2"),
        (build_limits(), Allocation(memory_bytes=101 << 30), "it requests 101 GB of memory; a node has 100 GB"),
        (build_limits(), Allocation(gpus=1), "it requests 1 GPUs; a node has 0"),
        (build_limits(max_cores_per_node=14), Allocation(cores=15), "it requests 15 cores; a node has 14"),
        (
            build_limits(max_memory_per_node_bytes=50 << 30),
            Allocation(memory_bytes=51 << 30),
            "it requests 51 GB of memory; a node has 50 GB",
        ),
        (
            build_limits(max_walltime_s=3600),
            Allocation(walltime_s=7200),
            "it requests 2 h 00 min; the limit is 1 h 00 min",
        ),
        (build_limits(UNSAID), Allocation(memory_bytes=4 << 40), None),
        (
            build_limits(UNSAID, max_memory_per_node_bytes=50 << 30),
            Allocation(memory_bytes=51 << 30),
            "it requests 51 GB of memory; a node has 50 GB",
        ),
    ],
)
def test_obstacles(limits: PartitionLimits, asked: Allocation, obstacle: str | None) -> None:
    assert limits.find_obstacle(asked) == obstacle


def test_the_node_is_not_changed_by_partition_limits() -> None:
    assert build_limits(max_cores_per_node=14).find_node(Allocation()) == NODE


def test_a_removed_partition_has_no_nodes() -> None:
    assert build_limits().find_node(Allocation(partition="nonesuch")) is None


@pytest.mark.parametrize(
    ("wanted", "default", "chosen"),
    [("b", True, "b"), ("nonesuch", True, None), (None, True, None), ("nonesuch", False, "a"), (None, False, "a")],
)
def test_a_read_only_runner_accepts_any_partition(wanted: str | None, default: bool, chosen: str | None) -> None:
    """``None`` selects the default partition."""
    cluster = build_cluster(Partition(name="a", default=default), Partition(name="b"))
    assert choose_partition(cluster, wanted) == chosen
