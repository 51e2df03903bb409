"""The time in which GPUs exchange data: operations of NCCL and RCCL, by message size, within nodes and between them."""

from enum import StrEnum

from foretell.core.topology import Group, Topology


class Collective(StrEnum):
    """What GPUs of a group do together."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND = "send"  # from one to the next


class CollectiveTimes:
    """Times of operations, by the links of a topology."""

    def predict(self, operation: Collective, bytes_: float, group: Group, topology: Topology) -> float:
        """Seconds of one operation.

        ``bytes_`` are those of the whole tensor: of what each GPU has before an all-reduce, a reduce-scatter or an
        all-to-all, of what each has after an all-gather, and of the message that is sent.
        """
        if group.gpus < 2:
            return 0.0
        rounds = {Collective.ALL_REDUCE: 2.0, Collective.SEND: 1.0}.get(operation, 1.0)
        share = 1.0 if operation is Collective.SEND else (group.gpus - 1) / group.gpus
        rate = topology.network_bytes_per_s if group.nodes > 1 else topology.link_bytes_per_s
        return _LATENCY_S * rounds + rounds * share * bytes_ / (_EFFICIENCY * rate)


_LATENCY_S = 2e-5
_EFFICIENCY = 0.7
