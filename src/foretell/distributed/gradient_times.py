"""The law of a data-parallel step: how long gradients are sent, and which part of it computing does not hide.

A ring sends 2 (n - 1) / n times the gradients through each GPU. GPUs of a node that share a bus multiply what it
carries; between nodes, a ring passes each network link once. The slower of the two decides.
"""

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import expit

from foretell.core.workload import Floats
from foretell.distributed.compute_time import ParameterGroup, Params, get_column
from foretell.distributed.placed_steps import Rows

_LEAST_S = 1e-9
_MOST_LOG_S = 8.0
_PIPELINE = 3.0  # of the transition from a step bound by the bus of a node to one bound by the network

# Logarithms, but powers, and shares, which are logits.
PARAMETERS: Mapping[str, ParameterGroup] = {
    "bytes": ParameterGroup("workload", 0.0, 1.5),
    "local": ParameterGroup("all", np.log(0.2), 3.0),  # in a node; relative to compute time
    "local_cluster": ParameterGroup("cluster", 0.0, 1.5),
    "local_pair": ParameterGroup("pair", 0.0, 0.25),
    "local_link_power": ParameterGroup("all", 1.0, 0.3),
    "shared": ParameterGroup(
        "all", -2.0, 1.0
    ),  # power of the GPUs of a node: 0 if each has links, 1 if all share a bus
    "shared_cluster": ParameterGroup("cluster", 0.0, 2.5),
    "net": ParameterGroup("all", np.log(0.2), 3.0),  # between nodes
    "net_cluster": ParameterGroup("cluster", 0.0, 1.5),
    "net_pair": ParameterGroup("pair", 0.0, 0.25),
    "link_power": ParameterGroup("all", 0.5, 0.5),  # the efficiency of faster networks is lower
    "hop": ParameterGroup("all", np.log(1e-4), 2.0),
    "hop_cluster": ParameterGroup("cluster", 0.0, 1.5),
    "overlap": ParameterGroup("workload", 0.0, 1.0),  # share of compute time that overlaps with sending
    "overlap_pair": ParameterGroup("pair", 0.0, 0.7),
    "sharpness": ParameterGroup("all", 0.7, 0.5),  # of the transition from overlapped to exposed
    "busy": ParameterGroup("pair", 0.0, 1.5),  # share of the host's time that gradients wait for too
}


def find_step_times(params: Params, rows: Rows, compute: Floats, gpu_share: Floats) -> tuple[Floats, Floats]:
    """Seconds of each step, and of its exposed synchronisation; ``gpu_share`` is of compute time."""

    def get(name: str) -> Floats:
        return get_column(name, params, rows, PARAMETERS)

    busy = compute * (gpu_share + (1 - gpu_share) * expit(get("busy")))
    behind = busy * expit(get("overlap") + get("overlap_pair"))
    exposed = _join(behind, _find_sent(get, rows), 1 + np.exp(get("sharpness"))) - behind
    # While the GPU waits for the host, waiting for gradients costs nothing.
    return np.maximum(compute, busy + exposed), exposed


def _find_sent(get: Callable[[str], Floats], rows: Rows) -> Floats:
    """Seconds to send the gradients, without overlap."""
    local = get("local") + get("local_cluster") + get("local_pair") - get("local_link_power") * rows.local_link
    local = local + expit(get("shared") + get("shared_cluster")) * np.log(rows.most)
    net = get("net") + get("net_cluster") + get("net_pair") - get("link_power") * rows.link
    slowest = np.where(rows.nodes == 1, local, np.logaddexp(_PIPELINE * local, _PIPELINE * net) / _PIPELINE)
    ring = np.log(2 * np.maximum(rows.count - 1, 0.5) / rows.count)
    sent = np.exp(np.minimum(get("bytes") + slowest + ring, _MOST_LOG_S))
    hops = np.exp(get("hop") + get("hop_cluster")) * (rows.count - 1)
    return np.asarray(np.where(rows.count > 1, sent, 0.0) + hops + _LEAST_S)


def _join(some: Floats, others: Floats, sharpness: Floats) -> Floats:
    """The larger of two, with a smooth transition."""
    more, less = np.maximum(some, others), np.minimum(some, others)
    return np.asarray(more * (1 + (less / more) ** sharpness) ** (1 / sharpness))
