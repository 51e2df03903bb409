"""What a cluster can run at all."""

import pytest

from foretell.core.run import Allocation
from foretell.schedulers.slurm.cluster import Cluster, NodeGroup, Partition
from foretell.schedulers.slurm.partition_limits import Room, choose_partition

NODE = NodeGroup(count=2, up=1, cores=28, memory_bytes=100 << 30)
UNSAID = NodeGroup(count=1, up=1, cores=28, memory_bytes=1 << 20)


def build_room(group: NodeGroup = NODE, **limits: int | float) -> Room:
    partition = Partition(name="p", default=True, node_groups=(group,), **limits)  # type: ignore[arg-type]
    return Room(build_cluster(partition), None)


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
    ("room", "asked", "obstacle"),
    [
        (build_room(), Allocation(cores=28, nodes=2, memory_bytes=100 << 30), None),
        (build_room(), Allocation(cores=29), "it asks for 29 cores; a node has 28"),
        (build_room(), Allocation(nodes=3), "it asks for 3 nodes; at most 2 can be had"),
        (build_room(), Allocation(memory_bytes=101 << 30), "it asks for 101 GB of memory; a node has 100 GB"),
        (build_room(), Allocation(gpus=1), "it asks for 1 GPUs; a node has 0"),
        (build_room(max_cores_per_node=14), Allocation(cores=15), "it asks for 15 cores; a node has 14"),
        (
            build_room(max_memory_per_node_bytes=50 << 30),
            Allocation(memory_bytes=51 << 30),
            "it asks for 51 GB of memory; a node has 50 GB",
        ),
        (
            build_room(max_walltime_s=3600),
            Allocation(walltime_s=7200),
            "it asks for 2 h 00 min; at most 1 h 00 min can be had",
        ),
        (build_room(UNSAID), Allocation(memory_bytes=4 << 40), None),
        (
            build_room(UNSAID, max_memory_per_node_bytes=50 << 30),
            Allocation(memory_bytes=51 << 30),
            "it asks for 51 GB of memory; a node has 50 GB",
        ),
    ],
)
def test_what_stands_in_the_way(room: Room, asked: Allocation, obstacle: str | None) -> None:
    assert room.find_obstacle(asked) == obstacle


def test_the_node_itself_is_as_it_is() -> None:
    assert build_room(max_cores_per_node=14).find_node(Allocation()) == NODE


def test_a_partition_that_is_gone_has_no_nodes() -> None:
    assert build_room().find_node(Allocation(partition="nonesuch")) is None


@pytest.mark.parametrize(
    ("wanted", "default", "chosen"),
    [("b", True, "b"), ("nonesuch", True, None), (None, True, None), ("nonesuch", False, "a"), (None, False, "a")],
)
def test_who_submits_nothing_needs_no_certain_partition(wanted: str | None, default: bool, chosen: str | None) -> None:
    """``None`` is the default one."""
    cluster = build_cluster(Partition(name="a", default=default), Partition(name="b"))
    assert choose_partition(cluster, wanted) == chosen
