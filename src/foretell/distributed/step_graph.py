"""A training step as a graph of operators, and smaller graphs by grouping, as Driple uses them."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from foretell.core.errors import MissingExtraError
from foretell.core.workload import Operator, Shape, StepPhase, Workload

Edge: TypeAlias = tuple[int, int]
Sizes: TypeAlias = tuple[tuple[int, int], ...]

GROUPS_PER_POWER = 10  # groups for each power of ten of a graph's nodes
UNIFORM_GROUPS = 100
BATCH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An operator, or several that were grouped."""

    kinds: tuple[tuple[str, int], ...]  # kinds of operators with their phase, and how many of each
    bytes_: float  # of the results
    flops: float
    phase: StepPhase  # of most operators
    size: int = 1  # operators


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """Operators, or groups of them, and the edges between them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]  # from the producer of a result to its reader


def build_graph(workload: Workload) -> StepGraph:
    """A node for each operator and an edge for each source; without sources, a chain."""
    edges = tuple((source, place) for place, sources in enumerate(workload.sources) for source in sources)
    if not workload.sources:
        edges = tuple((place, place + 1) for place in range(len(workload.operators) - 1))
    return StepGraph(nodes=tuple(map(_build_node, workload.operators)), edges=edges)


def _build_node(operator: Operator) -> Node:
    return Node(
        kinds=((f"{operator.kind} {operator.phase}", 1),),
        bytes_=_count_results(operator) * _find_itemsize(operator.dtype),
        flops=operator.flops,
        phase=operator.phase,
    )


def _count_results(operator: Operator) -> int:
    """Elements of an operator's results; in the backward phase these are gradients of its inputs."""
    if operator.phase is StepPhase.UPDATE:
        return max(_count(operator.output), operator.parameters)
    if operator.phase is StepPhase.FORWARD or operator.kind == "accumulate":
        return _count(operator.output)
    return sum(map(_count, operator.inputs)) if operator.input_gradient else operator.parameters


def _count(shape: Shape) -> int:
    return math.prod(shape)


def _find_itemsize(dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return int(bits.group()) // 8 if bits else 1


# Grouping


def group_uniform(graph: StepGraph, size: int = UNIFORM_GROUPS, seed: int = 0) -> StepGraph:
    """The graph grouped by asynchronous fluid communities into ``size`` nodes; a smaller graph stays as it is.

    The algorithm needs a connected graph: separate parts are joined for it, in the order in which they run.

    Raises:
        MissingExtraError: if networkx is not installed.
    """
    if len(graph.nodes) <= size:
        return graph
    networkx = _import_networkx()
    whole = networkx.Graph()
    whole.add_nodes_from(range(len(graph.nodes)))
    whole.add_edges_from(edge for edge in graph.edges if edge[0] != edge[1])
    firsts = sorted(min(part) for part in networkx.connected_components(whole))
    whole.add_edges_from(pairwise(firsts))
    found = networkx.algorithms.community.asyn_fluidc(whole, size, seed=seed)
    return _group(graph, sorted(sorted(group) for group in found))


def find_sizes(graphs: Sequence[StepGraph], batch: int = BATCH) -> Sizes:
    """For batches of graphs of similar size: nodes of the largest, and the groups of each graph."""
    counts = sorted(len(graph.nodes) for graph in graphs)
    batches = [counts[begin : begin + batch] for begin in range(0, len(counts), batch)]
    return tuple((each[-1], find_groups(sum(each) / len(each))) for each in batches)


def group_by_size(graph: StepGraph, sizes: Sizes, seed: int = 0) -> StepGraph:
    """The graph grouped as those of similar size were; as the largest if it is larger than all."""
    groups = next((groups for largest, groups in sizes if len(graph.nodes) <= largest), sizes[-1][1])
    return group_uniform(graph, groups, seed)


def find_groups(nodes: float) -> int:
    """Groups for a mean number of nodes: ten for each power of ten.

    The paper uses the logarithm itself, which is 3 groups for a thousand nodes and one repetition of the layer. Ten
    times as many are tens of groups, as in the authors' program.
    """
    return max(2, round(GROUPS_PER_POWER * math.log10(max(nodes, 1.0))))


def _group(graph: StepGraph, groups: Sequence[Sequence[int]]) -> StepGraph:
    owner = {place: number for number, group in enumerate(groups) for place in group}
    edges = {(owner[begin], owner[end]) for begin, end in graph.edges}
    nodes = (_merge([graph.nodes[place] for place in group]) for group in groups)
    return StepGraph(nodes=tuple(nodes), edges=tuple(sorted(edge for edge in edges if edge[0] != edge[1])))


def _merge(nodes: Sequence[Node]) -> Node:
    phases = _count_by((node.phase, node.size) for node in nodes)
    return Node(
        kinds=tuple(sorted(_count_by(pair for node in nodes for pair in node.kinds).items())),
        bytes_=sum(node.bytes_ for node in nodes),
        flops=sum(node.flops for node in nodes),
        phase=StepPhase(phases.most_common(1)[0][0]),
        size=sum(node.size for node in nodes),
    )


def _count_by(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, count in pairs:
        counts[name] += count
    return counts


def count_kinds(graphs: Iterable[StepGraph]) -> Counter[str]:
    """How many operators of each kind there are."""
    return _count_by(_walk_kinds(graphs))


def _walk_kinds(graphs: Iterable[StepGraph]) -> Iterator[tuple[str, int]]:
    return (pair for graph in graphs for node in graph.nodes for pair in node.kinds)


def _import_networkx() -> Any:
    try:
        import networkx
        import networkx.algorithms.community
    except ImportError as exc:
        raise MissingExtraError("graphs of training steps need: pip install 'foretell[torch]'") from exc
    return networkx
