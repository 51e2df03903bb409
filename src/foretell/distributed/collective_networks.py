"""The time of a collective between nodes, by the network's rate and the latencies that NCCL itself assumes.

Few public measurements span nodes, so nothing here is fitted. Latencies are those of NCCL's own model of its algorithms
(``hwLat`` of NET in https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc): a step takes 14 us with large
messages and 2.7 us with small ones, or 5 us in a tree. ``_EFFICIENCY`` is the share of a network's rate that large
messages reach: 46 to 48 of 50 GB/s with InfiniBand (https://github.com/NVIDIA/nccl-tests/issues/290), less on others.
"""

from dataclasses import dataclass

import numpy as np

from foretell.core.workload import Floats
from foretell.distributed.collective_laws import OPERATIONS

_EFFICIENCY = 0.9
_BASE_S = 8.4e-6
_STEP_S = 2.7e-6  # of a small message
_TREE_STEP_S = 5.0e-6
_FILL_S = 14e-6
_EXPONENT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A group of several nodes."""

    gpus: int
    nodes: int
    rate: float  # of one GPU to other nodes, bytes a second in each direction

    @property
    def in_node(self) -> float:
        """GPUs of a node, each with its part of the node's network."""
        return self.gpus / self.nodes


def find_network_seconds(operation: str, bytes_: Floats, crossing: Crossing) -> Floats:
    """Seconds for messages of these sizes, of which links within nodes are no part."""
    assert operation in OPERATIONS
    ways = [(_count_bytes(operation, crossing), _find_latency(operation, crossing))]
    if operation == "all_reduce":
        # Of two nodes in a tree, each sends the message once; inner nodes of larger trees send it twice.
        sent = 1.0 if crossing.nodes == 2 else 2.0
        ways.append((sent / crossing.in_node, 2 * np.log2(crossing.nodes) * _TREE_STEP_S))
    return np.asarray(np.min([_pass(share * bytes_, latency, crossing) for share, latency in ways], axis=0))


def _pass(sent: Floats, latency: float, crossing: Crossing) -> Floats:
    transfer = sent / (_EFFICIENCY * crossing.rate)
    return np.asarray(_BASE_S + latency + transfer + _FILL_S ** (1 - _EXPONENT) * transfer**_EXPONENT)


def _count_bytes(operation: str, crossing: Crossing) -> float:
    """Bytes that a GPU sends to other nodes, for each byte of the message.

    A ring leaves a node once, and its GPUs share what crosses. In an all-to-all, each sends its own parts.
    """
    gpus, in_node = crossing.gpus, crossing.in_node
    if operation == "send":
        return 1.0
    if operation == "all_to_all":
        return (gpus - in_node) / gpus
    around = (gpus - 1) / gpus / in_node
    return 2 * around if operation == "all_reduce" else around


def _find_latency(operation: str, crossing: Crossing) -> float:
    if operation == "send":
        return _STEP_S
    steps = crossing.gpus - crossing.in_node if operation == "all_to_all" else crossing.nodes - 1
    return _STEP_S * (2 * steps if operation == "all_reduce" else steps)
