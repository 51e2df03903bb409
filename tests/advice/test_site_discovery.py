"""A cluster becomes a site file that reads back as the same site."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.advice.site_discovery import build_site, clean_name, list_unknown_memory, render_site_file
from foretell.advice.sites import list_sites, parse_sites
from foretell.core.errors import SchedulerError
from foretell.core.site import Billing, NodeType, Site
from foretell.schedulers.slurm.cluster import Cluster, NodeGroup, Partition

GIGABYTE = 2**30
TODAY = date(2026, 1, 15)
THIN = NodeGroup(count=40, up=39, cores=48, memory_bytes=180 * GIGABYTE, features=("ib",))
FAT = NodeGroup(count=2, up=2, cores=48, memory_bytes=720 * GIGABYTE)
GPU = NodeGroup(count=4, up=4, cores=32, memory_bytes=250 * GIGABYTE, gpus=2, gpu_model="v100")


def make_cluster(*partitions: Partition, name: str = "fern") -> Cluster:
    return Cluster(
        name=name,
        version="24.11.5",
        partitions=partitions,
        max_array_size=1001,
        max_array_tasks=1001,
        max_jobs=10000,
        min_job_age_s=300,
        accounting=True,
    )


def make_node(**about: object) -> NodeType:
    partition = Partition(name="p", **{"node_groups": (THIN,), **about})  # type: ignore[arg-type]
    (node,) = build_site(make_cluster(partition), as_of=TODAY).node_types
    return node


class TestSite:
    def test_what_is_known_of_a_site(self) -> None:
        site = build_site(make_cluster(Partition(name="thin", node_groups=(THIN,))), as_of=TODAY)
        assert (site.name, site.scheduler, site.as_of) == ("fern", "slurm", "2026-01-15")
        assert site.source == "sinfo and scontrol of fern, Slurm 24.11.5"
        assert site.script == {}
        assert site.notes == ""

    def test_a_partition_is_a_node_type(self) -> None:
        node = make_node(
            node_groups=(GPU,),
            max_nodes=2,
            max_walltime_s=86400.0,
            whole_node=True,
            default_memory_per_core_bytes=7 * GIGABYTE,
        )
        assert node == NodeType(
            name="p",
            partition="p",
            cores=32,
            memory_bytes=250 * GIGABYTE,
            gpus=2,
            gpu_model="v100",
            max_nodes=2,
            max_walltime_s=86400.0,
            whole_node=True,
            memory_per_core_bytes=7 * GIGABYTE,
        )

    def test_a_job_may_have_every_node_if_nothing_else_is_said(self) -> None:
        assert make_node().max_nodes == 40

    def test_what_a_partition_keeps_back_of_a_node(self) -> None:
        node = make_node(max_cores_per_node=44, max_memory_per_node_bytes=100 * GIGABYTE)
        assert (node.cores, node.memory_bytes) == (44, 100 * GIGABYTE)

    def test_a_limit_of_years_is_none(self) -> None:
        assert make_node(max_walltime_s=3 * 366 * 86400.0).max_walltime_s is None

    def test_a_mixed_partition_is_the_most_common_kind(self) -> None:
        small = NodeGroup(count=5, up=5, cores=8, memory_bytes=32 * GIGABYTE)
        site = build_site(make_cluster(Partition(name="all", node_groups=(FAT, small, THIN))), as_of=TODAY)
        (node,) = site.node_types
        assert (node.cores, node.memory_bytes, node.gpus) == (48, 180 * GIGABYTE, 0)
        assert node.max_nodes == 42  # those with more memory can stand in, those with fewer cores cannot
        assert "Also in all: 5 nodes with 8 cores, 32 GB, 2 nodes with 48 cores, 720 GB." in site.notes

    def test_nodes_with_gpus_and_without_are_two_node_types(self) -> None:
        other = replace(GPU, count=1, gpu_model="p100")
        mixed = Partition(name="all", node_groups=(THIN, GPU, other), max_nodes=3)
        taken = Partition(name="all-gpu", node_groups=(GPU,))
        site = build_site(make_cluster(mixed, taken), as_of=TODAY)
        assert [(node.name, node.partition, node.gpus, node.max_nodes) for node in site.node_types] == [
            ("all", "all", 0, 3), ("all-gpu-2", "all", 2, 3), ("all-gpu", "all-gpu", 2, 4),
        ]  # fmt: skip
        assert "Also in all: 1 node with 32 cores, 250 GB and 2 x p100." in site.notes

    def test_nodes_that_differ_in_features_alone_are_one_kind(self) -> None:
        others = NodeGroup(count=3, up=0, cores=48, memory_bytes=180 * GIGABYTE, features=("rack2",))
        site = build_site(make_cluster(Partition(name="p", node_groups=(THIN, others))), as_of=TODAY)
        assert site.node_types[0].max_nodes == 43
        assert "too" not in site.notes

    def test_closed_partitions_are_left_out_and_named(self) -> None:
        site = build_site(
            make_cluster(
                Partition(name="thin", node_groups=(THIN,)),
                Partition(name="old", up=False, node_groups=(THIN,)),
                Partition(name="empty"),
                Partition(name="odd name", node_groups=(THIN,)),
            ),
            as_of=TODAY,
        )
        assert [node.name for node in site.node_types] == ["thin"]
        assert "old (closed), empty (without nodes), odd name (with a name that site files do not allow)" in site.notes

    def test_hardware_threads_are_noted(self) -> None:
        threads = NodeGroup(count=1, up=1, cores=96, memory_bytes=GIGABYTE, threads_per_core=2)
        site = build_site(make_cluster(Partition(name="smt", node_groups=(threads,))), as_of=TODAY)
        assert "Cores of smt are hardware threads, 2 of each core." in site.notes

    def test_memory_that_slurm_does_not_know(self) -> None:
        bare = NodeGroup(count=1, up=1, cores=56, memory_bytes=2**20)
        cluster = make_cluster(Partition(name="small", node_groups=(bare,)), Partition(name="p", node_groups=(THIN,)))
        assert list_unknown_memory(build_site(cluster, as_of=TODAY)) == ["small"]

    def test_another_cluster_is_named_in_every_script(self) -> None:
        site = build_site(make_cluster(Partition(name="p", node_groups=(THIN,))), as_of=TODAY, elsewhere=True)
        assert site.script == {"clusters": "fern"}

    def test_a_cluster_with_nothing_open(self) -> None:
        with pytest.raises(SchedulerError, match="'fern' has no partition that is open"):
            build_site(make_cluster(Partition(name="p", up=False, node_groups=(THIN,))), as_of=TODAY)

    @pytest.mark.parametrize(
        ("name", "cleaned"), [("fern", "fern"), ("My Cluster!", "My-Cluster-"), ("_x", "x"), ("ü", "cluster")]
    )
    def test_names(self, name: str, cleaned: str) -> None:
        assert clean_name(name) == cleaned


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(
    lambda text: text.strip() == text and text.isprintable()
)
GROUPS = st.builds(
    NodeGroup,
    count=st.integers(1, 5000),
    up=st.just(0),
    cores=st.integers(1, 512),
    memory_bytes=st.integers(1, 2**22).map(lambda megabytes: megabytes * 2**20),
    threads_per_core=st.integers(1, 4),
    gpus=st.integers(0, 16),
    gpu_model=st.none() | WORDS,
)
PARTITIONS = st.builds(
    Partition,
    name=NAMES | WORDS,
    up=st.booleans(),
    max_walltime_s=st.none() | st.integers(1, 10**6).map(lambda minutes: minutes * 60.0),
    max_nodes=st.none() | st.integers(0, 5000),
    max_cores_per_node=st.none() | st.integers(1, 512),
    max_memory_per_node_bytes=st.none() | st.integers(1, 2**42),
    default_memory_per_core_bytes=st.none() | st.integers(1, 2**40),
    whole_node=st.booleans(),
    node_groups=st.lists(GROUPS, max_size=3).map(tuple),
)


class TestFile:
    @given(
        partitions=st.lists(PARTITIONS, max_size=4, unique_by=lambda partition: partition.name),
        name=WORDS,
        elsewhere=st.booleans(),
    )
    def test_what_is_written_reads_back_equal(self, partitions: list[Partition], name: str, elsewhere: bool) -> None:
        usable = Partition(name="surely-open", node_groups=(THIN,))
        site = build_site(make_cluster(*partitions, usable, name=name), as_of=TODAY, elsewhere=elsewhere)
        assert parse_sites(render_site_file(site), source="written") == (site,)

    @pytest.mark.parametrize("site", [pytest.param(site, id=site.name) for site in list_sites()])
    def test_so_does_every_shipped_site(self, site: Site) -> None:
        assert parse_sites(render_site_file(site), source="written") == (site,)

    def test_prices_are_to_be_filled_in(self) -> None:
        text = render_site_file(build_site(make_cluster(Partition(name="p", node_groups=(THIN,))), as_of=TODAY))
        filled = text.replace('# billing = "core-hours"', 'billing = "core-hours"').replace(
            "# price_per_core_h", "price_per_core_h"
        )
        (site,) = parse_sites(filled, source="filled in")
        assert (site.node_types[0].billing, site.node_types[0].price_per_core_h) == (
            Billing.CORE_HOURS,
            Decimal("0.003"),
        )

    def test_where_something_is_charged_they_are_not(self) -> None:
        assert "fill in" not in render_site_file(list_sites()[0])
