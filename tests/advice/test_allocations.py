import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.advice.site_lookup import list_allocations
from foretell.advice.sites import get_site, list_sites
from foretell.core.prices import price_per_hour
from foretell.core.site import NodeType, Site

CPU = NodeType(name="cpu", partition="batch", cores=40, memory_bytes=2**37, max_nodes=4)
GPU = NodeType(name="gpu", partition="batch", cores=6, memory_bytes=2**37, gpus=3)


def site_of(node: NodeType, *, scheduler: str = "slurm") -> Site:
    return Site(name="mine", title="Mine", scheduler=scheduler, node_types=(node,))


def cores_of(node: NodeType, **restrictions: set[int]) -> list[int]:
    return [allocation.cores for _, allocation in list_allocations(site_of(node), **restrictions)]


def gpus_of(site: Site, **restrictions: set[int]) -> list[int]:
    return sorted({allocation.gpus for _, allocation in list_allocations(site, **restrictions)})


def test_cores_double_up_to_the_full_node() -> None:
    assert cores_of(CPU) == [1, 2, 4, 8, 16, 32, 40]


def test_a_full_node_of_a_power_of_two_comes_once() -> None:
    assert cores_of(dataclasses.replace(CPU, cores=4)) == [1, 2, 4]


def test_only_the_full_node_where_nodes_are_given_whole() -> None:
    whole = dataclasses.replace(GPU, whole_node=True)
    ((_, allocation),) = list_allocations(site_of(whole))
    assert (allocation.cores, allocation.gpus) == (6, 3)


def test_part_of_a_whole_node_may_stay_unused() -> None:
    assert cores_of(dataclasses.replace(CPU, whole_node=True), cores={2, 64}) == [2]


def test_counts_that_were_measured_and_fit() -> None:
    assert cores_of(CPU, cores={0, 3, 40, 41}) == [3, 40]


def test_a_gpu_partition_requires_a_gpu() -> None:
    assert gpus_of(site_of(GPU)) == [1, 2, 3]
    assert gpus_of(site_of(GPU), gpus={0}) == []
    assert gpus_of(site_of(GPU), gpus={0, 2, 8}) == [2]
    assert gpus_of(site_of(CPU), gpus={0, 1}) == [0]


def test_without_a_scheduler_gpus_may_stay_idle() -> None:
    assert gpus_of(site_of(GPU, scheduler="shell")) == [0, 1, 2, 3]


def test_several_nodes_only_when_asked_for() -> None:
    counts = {allocation.nodes for _, allocation in list_allocations(site_of(CPU))}
    asked = {allocation.nodes for _, allocation in list_allocations(site_of(CPU), nodes={1, 2, 4, 5})}
    assert (counts, asked) == ({1}, {1, 2, 4})


def test_several_nodes_come_whole_where_they_are_charged_so() -> None:
    assert cores_of(dataclasses.replace(CPU, whole_node_if_several=True), nodes={2}) == [40]


@pytest.mark.parametrize("site", [pytest.param(site, id=site.name) for site in list_sites()])
@given(
    cores=st.none() | st.sets(st.integers(-1, 300)),
    gpus=st.none() | st.sets(st.integers(-1, 10)),
    nodes=st.sets(st.integers(-1, 40), min_size=1),
)
def test_every_allocation_fits_its_node_type_and_leads_back_to_it(
    site: Site, cores: set[int] | None, gpus: set[int] | None, nodes: set[int]
) -> None:
    pairs = list_allocations(site, cores=cores, gpus=gpus, nodes=nodes)
    assert len({allocation for _, allocation in pairs}) == len(pairs)
    for node, allocation in pairs:
        assert site.find_node_type(allocation.node_type) is node
        assert allocation.partition == node.partition
        assert 1 <= allocation.cores <= node.cores
        assert allocation.gpus <= node.gpus
        assert 1 <= allocation.nodes <= node.max_nodes


def test_the_cheapest_gpu_job_at_osc_is_a_core_and_a_gpu() -> None:
    offers = [(node, allocation) for node, allocation in list_allocations(get_site("osc")) if allocation.gpus]
    _, cheapest = min(offers, key=lambda offer: price_per_hour(*offer))
    assert (cheapest.cores, cheapest.gpus) == (1, 1)
