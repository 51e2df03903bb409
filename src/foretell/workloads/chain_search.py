"""Which operators of a step a compiler puts into one kernel."""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foretell.core.workload import Operator, StepPhase, Workload

_LARGER = 8  # times the size of the operators whose results it reads: a larger operator starts a chain of its own
_TWO_PASSES = frozenset({"batch_norm", "instance_norm", "group_norm"})  # statistics of all data before the result
_ALONE = frozenset({
    "embedding", "embedding_bag", "index", "__setitem__", "index_select", "index_put", "gather", "take_along_dim",
    "scatter", "scatter_add", "scatter_add_", "scatter_reduce", "index_add", "index_add_", "index_copy",
    "masked_scatter", "sort", "argsort", "topk", "unique", "multinomial", "cumsum", "cumprod", "logcumsumexp",
    "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool2d",
    "adaptive_max_pool2d", "interpolate", "grid_sample", "unfold", "fold", "cdist", "ctc_loss", "lstm", "gru",
    "rnn_tanh", "rnn_relu",
})  # fmt: skip


@dataclass(slots=True, eq=False)
class Chain:
    """Operators that run in one kernel, by their places. Sets of chains are bits of whole numbers."""

    places: list[int]
    elements: int  # of its largest tensor
    bits: int  # its own, and those of chains that joined it
    direct: int  # chains whose results it reads
    ancestors: int  # these, and those before them
    is_read: bool = False


def find_chains(workload: Workload) -> Sequence[Chain]:
    """The chains of a step in an order in which they can run."""
    search = _Search(workload)
    for place in range(len(workload.operators)):
        search.add(place)
    return _sort(search.chains)


class _Search:
    """Adds operators in their order to the chains that they can join without a circle of reading."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._by_bit: list[Chain] = []  # a chain can have several bits
        self._chain_of: list[Chain] = []

    @property
    def chains(self) -> list[Chain]:
        """Each chain once."""
        return list(dict.fromkeys(self._by_bit))

    def add(self, place: int) -> None:
        """Add an operator: to chains whose results it reads, or as a new one."""
        operator = self._workload.operators[place]
        given = list(dict.fromkeys(self._chain_of[each] for each in self._workload.sources[place]))
        direct = _unite(each.bits for each in given)
        chain = Chain(
            places=[place],
            elements=count_elements(operator),
            bits=1 << len(self._by_bit),
            direct=direct,
            ancestors=direct | _unite(each.ancestors for each in given),
        )
        self._by_bit.append(chain)
        self._chain_of.append(chain)
        for other in given:
            if self._is_alike(operator, other) and not self._makes_circle(chain, other):
                chain = self._join(chain, other)
        for other in given:
            other.is_read = other.is_read or other is not chain

    def _is_alike(self, operator: Operator, chain: Chain) -> bool:
        last = self._workload.operators[chain.places[-1]]
        if not (is_fusible(operator) and is_fusible(last) and operator.phase is last.phase):
            return False
        if reads_twice(operator) and operator.phase is StepPhase.FORWARD:
            return False  # what it reads twice was written before
        return count_elements(operator) <= _LARGER * chain.elements

    def _makes_circle(self, chain: Chain, other: Chain) -> bool:
        """Whether a third chain reads one of two and is read by the other."""
        both = chain.bits | other.bits
        outside = (chain.direct | other.direct) & ~both
        return any(each.ancestors & both for each in self._list(outside))

    def _list(self, bits: int) -> Iterable[Chain]:
        return (self._by_bit[bit] for bit in _list_bits(bits))

    def _join(self, chain: Chain, other: Chain) -> Chain:
        """The second chain with the operators of the first."""
        other.places = sorted(other.places + chain.places)
        other.elements = max(other.elements, chain.elements)
        other.bits |= chain.bits
        other.direct = (other.direct | chain.direct) & ~other.bits
        other.ancestors = (other.ancestors | chain.ancestors) & ~other.bits
        other.is_read = other.is_read or chain.is_read
        for place in chain.places:
            self._chain_of[place] = other
        for bit in _list_bits(chain.bits):
            self._by_bit[bit] = other
        if other.is_read:
            for each in self._by_bit:
                if each.ancestors & other.bits:
                    each.ancestors |= other.ancestors | other.bits
        return other


def _unite(many: Iterable[int]) -> int:
    united = 0
    for each in many:
        united |= each
    return united


def _sort(chains: Sequence[Chain]) -> Sequence[Chain]:
    """Chains after those whose results they read, otherwise in the order of their last operators."""
    number_of = {bit: number for number, chain in enumerate(chains) for bit in _list_bits(chain.bits)}
    reads = [{number_of[bit] for bit in _list_bits(chain.direct)} - {number} for number, chain in enumerate(chains)]
    readers: list[list[int]] = [[] for _ in chains]
    for number, own in enumerate(reads):
        for each in own:
            readers[each].append(number)
    left = [len(own) for own in reads]
    ready = [(chains[number].places[-1], number) for number, count in enumerate(left) if not count]
    heapq.heapify(ready)
    found = []
    while ready:
        _, number = heapq.heappop(ready)
        found.append(chains[number])
        for each in readers[number]:
            left[each] -= 1
            if not left[each]:
                heapq.heappush(ready, (chains[each].places[-1], each))
    assert len(found) == len(chains), "chains read each other in a circle"
    return found


def _list_bits(bits: int) -> Iterable[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


# Operators


def is_fusible(operator: Operator) -> bool:
    """Whether an operator can be part of a chain."""
    return (
        operator.kernels > 0
        and operator.phase is not StepPhase.UPDATE
        and not operator.product_flops
        and not operator.unknown
        and (operator.kind not in _ALONE or _is_slice(operator))
        and not operator.kind.startswith(("fft_", "linalg_"))
    )


def _is_slice(operator: Operator) -> bool:
    """An index without tensors is a view, whose gradient is padded with zeros."""
    return operator.kind == "index" and len(operator.inputs) < 2


def reads_twice(operator: Operator) -> bool:
    """Whether an operator needs all of its input before its first result: batch norms of a training, group norms."""
    if operator.kind not in _TWO_PASSES:
        return False
    return operator.kind == "group_norm" or operator.kernels > 1 or operator.phase is StepPhase.BACKWARD


def count_elements(operator: Operator) -> int:
    """Elements of the largest tensor of an operator."""
    return max(math.prod(shape) for shape in (*operator.inputs, operator.output))
