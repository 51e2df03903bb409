from decimal import Decimal

import pytest

from foretell.advice.sites import get_site
from foretell.core.prices import price_per_hour
from foretell.core.run import Allocation
from foretell.core.site import NodeType

MB = 2**20


def node_type(site: str, name: str) -> NodeType:
    found = get_site(site).find_node_type(name)
    assert found is not None
    return found


def test_ten_hours_of_28_cores_and_a_gpu_at_osc() -> None:
    # HARP's example; its paper prints $1.6, the rule gives 10 x (28 x 0.003 + 0.09).
    price = price_per_hour(node_type("owens", "owens-gpu"), Allocation(cores=28, gpus=1))
    assert 10 * price == Decimal("1.74")


@pytest.mark.parametrize(
    ("cores", "memory_mb", "charged"),
    [(1, None, 1), (1, 4556, 1), (1, 4557, 2), (1, 14283, 4), (5, 14283, 5), (1, 182240, 40), (1, 10**6, 40)],
)
def test_memory_is_charged_as_the_cores_that_own_it(cores: int, memory_mb: int | None, charged: int) -> None:
    # 1 core with 14283 MB is OSC's own example: 4 cores.
    allocation = Allocation(cores=cores, memory_bytes=memory_mb * MB if memory_mb else None)
    assert price_per_hour(node_type("osc", "pitzer-cpu"), allocation) == charged * Decimal("0.003")


def test_several_nodes_at_osc_are_charged_whole() -> None:
    # OSC's own example: 10 nodes of 40 cores with one core used on each are charged as 400 cores.
    price = price_per_hour(node_type("osc", "pitzer-cpu"), Allocation(cores=1, nodes=10))
    assert price == 400 * Decimal("0.003")


@pytest.mark.parametrize(("cores", "nodes"), [(1, 1), (80, 1), (80, 3)])
def test_node_hours_do_not_count_cores(cores: int, nodes: int) -> None:
    price = price_per_hour(node_type("tacc", "stampede3-icx"), Allocation(cores=cores, nodes=nodes))
    assert price == nodes * Decimal("1.5")


def test_an_instance_costs_what_it_is_listed_for() -> None:
    assert price_per_hour(node_type("aws", "g5.12xlarge"), Allocation(cores=1, gpus=1)) == Decimal("5.672")
