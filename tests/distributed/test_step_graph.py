"""Steps as graphs: nothing is lost when operators are grouped."""

import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw
from tests.contracts.consumption import build_workload

from foretell.core.errors import MissingExtraError
from foretell.core.workload import StepPhase
from foretell.distributed.step_graph import (
    StepGraph,
    build_graph,
    count_kinds,
    find_groups,
    find_sizes,
    group_by_size,
    group_uniform,
)

networkx = pytest.importorskip("networkx")


def sum_up(graph: StepGraph) -> tuple[float, float, int, Counter[str]]:
    nodes = graph.nodes
    return (
        sum(each.bytes_ for each in nodes),
        sum(each.flops for each in nodes),
        sum(each.size for each in nodes),
        count_kinds([graph]),
    )


def test_a_step_has_a_node_for_each_operator_and_an_edge_for_each_source() -> None:
    workload = build_workload(layers=2, width=8, batch=4)
    graph = build_graph(workload)
    assert len(graph.nodes) == len(workload.operators)
    assert set(graph.edges) == {(each, place) for place, sources in enumerate(workload.sources) for each in sources}
    first = graph.nodes[0]
    assert (first.kinds, first.bytes_, first.phase) == ((("linear forward", 1),), 4 * 8 * 4, StepPhase.FORWARD)


def test_a_backward_operators_result_is_the_gradient_of_what_it_was_given() -> None:
    workload = build_workload(layers=2, width=8, batch=4)
    backward = [node for node in build_graph(workload).nodes if node.kinds[0][0] == "linear backward"]
    assert [node.bytes_ for node in backward] == [4 * (4 * 8 + 8 * 8), 4 * 8 * 8]  # the input needs none


def test_without_sources_operators_follow_each_other() -> None:
    workload = replace(build_workload(layers=2, width=8, batch=4), sources=())
    assert build_graph(workload).edges[:2] == ((0, 1), (1, 2))


@settings(deadline=None, max_examples=25)
@given(layers=draw.integers(1, 12), size=draw.integers(1, 40), seed=draw.integers(0, 3))
def test_groups_keep_all_operators_and_have_the_requested_number(layers: int, size: int, seed: int) -> None:
    graph = build_graph(build_workload(layers=layers, width=8, batch=4))
    grouped = group_uniform(graph, size, seed)
    assert len(grouped.nodes) == min(size, len(graph.nodes))
    assert sum_up(grouped) == sum_up(graph)
    assert grouped == group_uniform(graph, size, seed)
    assert all(begin != end for begin, end in grouped.edges) or grouped is graph


def test_groups_hang_together() -> None:
    graph = build_graph(build_workload(layers=10, width=8, batch=4))
    grouped = group_uniform(graph, 6)
    assert networkx.is_connected(networkx.Graph(grouped.edges))


def test_parts_without_an_edge_between_them_are_grouped_too() -> None:
    one = build_graph(build_workload(layers=6, width=8, batch=4))
    count = len(one.nodes)
    edges = (*one.edges, *((begin + count, end + count) for begin, end in one.edges))
    two = StepGraph(nodes=one.nodes * 2, edges=edges)
    assert len(group_uniform(two, 5).nodes) == 5


def test_groups_grow_with_the_graphs_of_a_batch() -> None:
    graphs = [build_graph(build_workload(layers=layers, width=8, batch=4)) for layers in (40, 4, 38, 5)]
    found = find_sizes(graphs, batch=2)
    grouped = [group_by_size(graph, found) for graph in graphs]
    sizes = [len(graph.nodes) for graph in grouped]
    assert sizes[0] == sizes[2] > sizes[1] == sizes[3]
    assert [sum_up(graph) for graph in grouped] == [sum_up(graph) for graph in graphs]
    assert sizes[0] == find_groups((len(graphs[0].nodes) + len(graphs[2].nodes)) / 2)


def test_another_graph_is_grouped_as_the_batch_it_belongs_to() -> None:
    small, large, huge = (build_graph(build_workload(layers=layers, width=8, batch=4)) for layers in (10, 30, 60))
    sizes = find_sizes([small, large], batch=1)
    middle = build_graph(build_workload(layers=12, width=8, batch=4))
    assert len(group_by_size(middle, sizes).nodes) == len(group_by_size(large, sizes).nodes) == sizes[1][1]
    assert len(group_by_size(huge, sizes).nodes) == sizes[1][1]
    assert len(group_by_size(small, sizes).nodes) == sizes[0][1] < sizes[1][1]


def test_a_thousand_operators_are_thirty_groups() -> None:
    assert (find_groups(1000), find_groups(100), find_groups(1), find_groups(0)) == (30, 20, 2, 2)


def test_without_networkx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MissingExtraError, match=r"foretell\[torch\]"):
        group_uniform(build_graph(build_workload(layers=4, width=8, batch=4)), 2)
