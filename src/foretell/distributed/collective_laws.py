"""The law of a collective's time within a node: latency, filling of the pipeline, transfer; the least of algorithms.

A message that a pipeline cuts into the best number of pieces needs ``latency + x + 2 sqrt(fill x)``, where ``x`` is its
time at the full rate (Hockney's model, as for pipelined trees in Sanders, Speck and Träff, 2009). Here the exponent of
the middle term is learned, as are efficiencies of the links: protocols of NCCL (LL, LL128, Simple) make many such laws.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from foretell.core.workload import Floats

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
_REDUCE, _SEND = OPERATIONS.index("all_reduce"), OPERATIONS.index("send")
# Of each operation: share of the links' rate, cost of copying a GPU's own part, seconds to fill, seconds of a step.
_OF_OPERATION = ("efficiency", "copy", "fill", "step")
_START = (0.8, 0.5, 15e-6, 0.8e-6)
_OTHERS = {
    "base": 6e-6,  # seconds of the kernel itself
    "exponent": 0.5,  # of the transfer in the middle term
    "growth": 0.3,  # exponent of GPUs in the seconds to fill
    "pcie": 0.95,  # relative efficiency where links are PCIe
    "tree_efficiency": 0.4,
    "tree_step": 1.5e-6,
    "multicast_efficiency": 0.6,
    "multicast_fill": 15e-6,
    "multicast_latency": 20e-6,
}
NAMES = (*(f"{name} {operation}" for operation in OPERATIONS for name in _OF_OPERATION), *_OTHERS)
STARTS: Floats = np.log([*_START * len(OPERATIONS), *_OTHERS.values()])
_SHARES = [place for place, name in enumerate(NAMES) if "efficiency" in name or name in ("exponent", "pcie")]
_MOST = {"exponent": 0.9, "pcie": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """Operations within nodes: an element of each array is one."""

    operation: "np.ndarray[tuple[int], np.dtype[np.int64]]"  # place in OPERATIONS
    gpus: Floats
    bytes_: Floats
    rate: Floats  # of one GPU to the others of its group, bytes a second in each direction
    full_rate: Floats  # of all links of a GPU
    pcie: Floats  # 1 where links are PCIe
    multicast: Floats  # 1 where the switch reduces and multicasts (NVLink SHARP)
    slowness: Floats  # of the library's latencies, relative to NCCL's

    @classmethod
    def join(cls, parts: "list[Exchanges]") -> Self:
        """All of them."""
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__})


class CollectiveLaw:
    """Seconds of exchanges, by parameters that are logarithms."""

    def __init__(self, logs: Floats = STARTS) -> None:
        self.logs = _bound(np.asarray(logs, dtype=np.float64))
        values = np.exp(self.logs)
        self.table = values[: len(OPERATIONS) * len(_OF_OPERATION)].reshape(len(OPERATIONS), -1)
        self.others = dict(zip(_OTHERS, values[self.table.size :].tolist(), strict=True))

    def find_seconds(self, exchanges: Exchanges) -> Floats:
        """The fastest algorithm's seconds; never less than the links need at their full rate."""
        at = exchanges.operation
        seconds = self._pass_around(exchanges)
        reduces = at == _REDUCE
        if reduces.any():
            seconds = np.where(reduces, np.minimum(seconds, self._use_tree(exchanges)), seconds)
            seconds = np.where(
                reduces & (exchanges.multicast > 0), np.minimum(seconds, self._use_multicast(exchanges)), seconds
            )
        return np.asarray(self.others["base"] * exchanges.slowness + seconds)

    def _pass_around(self, exchanges: Exchanges) -> Floats:
        """Around a ring, or straight to each other GPU."""
        efficiency, copy, fill, step = self.table[exchanges.operation].T
        efficiency = efficiency * self._weaken(exchanges)
        shared = count_sent(exchanges) / exchanges.rate
        copied = copy * exchanges.bytes_ / exchanges.gpus / exchanges.full_rate
        copied = np.where(exchanges.operation == _SEND, 0.0, copied)
        latency = step * count_steps(exchanges) * exchanges.slowness
        return np.asarray(latency + self._fill(exchanges, fill, (shared + copied) / efficiency))

    def _use_tree(self, exchanges: Exchanges) -> Floats:
        """Up a tree and down again."""
        latency = 2 * np.log2(exchanges.gpus) * self.others["tree_step"] * exchanges.slowness
        efficiency = self.others["tree_efficiency"] * self._weaken(exchanges)
        transfer = 2 * exchanges.bytes_ / exchanges.rate / efficiency
        return np.asarray(latency + self._fill(exchanges, self.table[_REDUCE, 2], transfer))

    def _use_multicast(self, exchanges: Exchanges) -> Floats:
        """Parts are reduced in the switch, and results are multicast by it."""
        sent = exchanges.bytes_ * (1 + 1 / exchanges.gpus)
        transfer = sent / exchanges.rate / self.others["multicast_efficiency"]
        filled = self._fill(exchanges, self.others["multicast_fill"], transfer)
        return np.asarray(self.others["multicast_latency"] * exchanges.slowness + filled)

    def _weaken(self, exchanges: Exchanges) -> Floats:
        return np.where(exchanges.pcie > 0, self.others["pcie"], 1.0)

    def _fill(self, exchanges: Exchanges, fill: Floats | float, transfer: Floats) -> Floats:
        exponent = self.others["exponent"]
        waiting = fill * exchanges.gpus ** self.others["growth"] * exchanges.slowness
        return np.asarray(transfer + waiting ** (1 - exponent) * transfer**exponent)


def count_sent(exchanges: Exchanges) -> Floats:
    """Bytes that each GPU sends in each direction, around a ring or straight."""
    share = (exchanges.gpus - 1) / exchanges.gpus
    share = np.where(exchanges.operation == _REDUCE, 2 * share, share)
    return np.asarray(np.where(exchanges.operation == _SEND, 1.0, share) * exchanges.bytes_)


def count_steps(exchanges: Exchanges) -> Floats:
    """Steps one after the other."""
    steps = np.where(exchanges.operation == _REDUCE, 2 * (exchanges.gpus - 1), exchanges.gpus - 1)
    return np.asarray(np.where(exchanges.operation == _SEND, 1.0, steps))


def _bound(logs: Floats) -> Floats:
    """Shares stay below 1."""
    bounded = logs.copy()
    for place in _SHARES:
        bounded[place] = min(bounded[place], np.log(_MOST.get(NAMES[place], 0.98)))
    return bounded
