"""One pricing rule: columns and single allocations agree, and both agree with the rule as it is written down."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.core.prices import Tariff, charge, price_per_hour
from foretell.core.run import Allocation
from foretell.core.site import Billing, NodeType

_GIB = 2**30
_prices = st.decimals(0, 100, places=4)
_nodes = st.builds(
    NodeType,
    name=st.just("node"),
    partition=st.just("batch"),
    cores=st.integers(1, 256),
    memory_bytes=st.integers(1, 4096).map(lambda size: size * _GIB),
    gpus=st.integers(0, 8),
    whole_node=st.booleans(),
    whole_node_if_several=st.booleans(),
    billing=st.sampled_from(Billing),
    price_per_core_h=_prices,
    price_per_gpu_h=_prices,
    price_per_node_h=_prices,
    memory_per_core_bytes=st.none() | st.integers(1, 64 * _GIB),
    # not part of the rule
    cluster=st.none(),
    gpu_model=st.none(),
    gpu_memory_bytes=st.none(),
    cpu_mhz=st.none(),
    architecture=st.none(),
    max_walltime_s=st.none(),
)
_allocations = st.builds(
    Allocation,
    cores=st.integers(1, 512),
    memory_bytes=st.none() | st.integers(1, 8192 * _GIB),
    gpus=st.integers(0, 16),
    nodes=st.integers(1, 64),
    partition=st.none(),
    walltime_s=st.none(),
    node_type=st.none(),
)


def _follow_the_rule(node: NodeType, asked: Allocation) -> Decimal:
    """As docs/sites.md has it."""
    if node.billing is Billing.FREE:
        return Decimal(0)
    if node.billing is Billing.NODE_HOURS:
        return asked.nodes * node.price_per_node_h
    if node.gives_whole_nodes(asked.nodes):
        return asked.nodes * (node.cores * node.price_per_core_h + node.gpus * node.price_per_gpu_h)
    owning = 0
    if node.memory_per_core_bytes and asked.memory_bytes:
        owning = min(node.cores, math.ceil(asked.memory_bytes / node.memory_per_core_bytes))
    return asked.nodes * (max(asked.cores, owning) * node.price_per_core_h + asked.gpus * node.price_per_gpu_h)


@given(node=_nodes, asked=_allocations)
def test_one_allocation_is_priced_by_the_rule(node: NodeType, asked: Allocation) -> None:
    assert price_per_hour(node, asked) == _follow_the_rule(node, asked)


@given(rows=st.lists(st.tuples(_nodes, _allocations), min_size=1, max_size=6), seconds=st.floats(0, 1e7))
def test_columns_agree_with_the_exact_price_of_each(rows: list[tuple[NodeType, Allocation]], seconds: float) -> None:
    columns = Tariff.of([node for node, _ in rows]).price_per_hour(
        nodes=[asked.nodes for _, asked in rows],
        cores=[asked.cores for _, asked in rows],
        gpus=[asked.gpus for _, asked in rows],
        memory_bytes=[asked.memory_bytes or 0 for _, asked in rows],
    )
    exact = [charge(node, asked, seconds) for node, asked in rows]
    assert columns * seconds / 3600 == pytest.approx(np.array(exact, dtype=float), rel=1e-12, abs=1e-8)


@given(node=_nodes, asked=_allocations)
def test_an_hour_costs_the_price_of_an_hour(node: NodeType, asked: Allocation) -> None:
    assert charge(node, asked, 3600.0) == price_per_hour(node, asked)
