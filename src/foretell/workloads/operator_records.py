"""Operators while they are recorded, and which of them read whose results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from foretell.core.workload import Attribute, Gradient, Operator, Shape, StepPhase
from foretell.workloads.kernel_costs import KernelCost
from foretell.workloads.operator_costs import cost
from foretell.workloads.recurrent_costs import CELLS, LAYERS
from foretell.workloads.tensor_notes import NOTHING

ACCUMULATE = "accumulate"  # two gradients of the same tensor are added
_ATTENTION = "scaled_dot_product_attention"
FUSED = frozenset({"dropout", _ATTENTION, *LAYERS, *CELLS})  # have other kernels on a device than on meta tensors

Sources: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Record:
    """An operator while it is recorded."""

    kind: str
    phase: StepPhase
    layer: str
    number: int = -1  # in the order in which records are made
    sources: frozenset[int] = NOTHING  # numbers of the records whose results it reads
    inputs: tuple[Shape, ...] = ()
    output: Shape = ()
    attributes: dict[str, Attribute] = field(default_factory=dict)
    dtype: str = "float32"
    parameters: int = 0
    input_gradient: bool = True
    flops: float = 0.0
    bytes_moved: float = 0.0
    kernels: int = 0
    unknown: int = 0
    products: float = 0.0
    constant: bool = False  # its result depends on no input and no parameter, for example a mask
    itemsize: int = 4
    first_node: int = 0
    last_node: int = 0

    def add(self, kernel: KernelCost) -> None:
        """Add the cost of a kernel."""
        self.flops += kernel.flops
        self.bytes_moved += kernel.bytes_moved
        self.kernels += kernel.kernels
        self.unknown += kernel.unknown
        self.products += kernel.products

    def build(self) -> Operator:
        """The operator, with the cost of the fused kernel if devices have one."""
        flops, moved, kernels, products = self.flops, self.bytes_moved, self.kernels, self.products
        attributes = tuple(sorted(self.attributes.items()))
        if self.kind in FUSED and kernels:
            flops, moved, kernels = cost(
                self.kind,
                self.phase,
                self.inputs,
                self.output,
                attributes,
                itemsize=self.itemsize,
                input_gradient=self.input_gradient,
            )
            products = flops if self.kind == _ATTENTION else min(products, flops)
        return Operator(
            kind=self.kind,
            phase=self.phase,
            inputs=self.inputs,
            output=self.output,
            attributes=attributes,
            dtype=self.dtype,
            flops=float(flops),
            bytes_moved=float(moved),
            parameters=self.parameters,
            kernels=kernels,
            input_gradient=self.input_gradient,
            product_flops=float(products),
            unknown=self.unknown,
        )


class ReadyGradient(NamedTuple):
    """The gradient of a parameter: its size, and the number of the record that computed it."""

    bytes_: int
    ready: int


def build_sources(records: Iterable[Record], merged: Mapping[int, int]) -> Sources:
    """For each record, the positions of the earlier records whose results it reads.

    ``merged`` maps the number of a record to that of the record it became part of.
    """
    positions: dict[int, int] = {}  # by number, so far: with gradient accumulation, batches repeat numbers
    read: dict[int, list[int]] = {}
    found = []
    for position, record in enumerate(records):
        if record.number not in read:
            read[record.number] = list(_find_read(record, positions, merged))
        before = positions.get(record.number, 0)
        own = {positions[number] for number in read[record.number]}
        if record.kind == ACCUMULATE:  # adds to the sum of the batch before
            own = {max(each, before) for each in own}
        found.append(tuple(sorted(own)))
        positions[record.number] = position
    return tuple(found)


def _find_read(record: Record, positions: Mapping[int, int], merged: Mapping[int, int]) -> Iterator[int]:
    for number in record.sources:
        number = _follow(number, merged)
        if number in positions and number != record.number:
            yield number


def _follow(number: int, merged: Mapping[int, int]) -> int:
    while number in merged:
        number = merged[number]
    return number


def build_gradients(
    records: Iterable[Record], gradients: Iterable[ReadyGradient], merged: Mapping[int, int]
) -> tuple[Gradient, ...]:
    """Gradients in the order in which they are sent: none is ready before the one sent ahead of it."""
    made = {record.number: (position, record.layer) for position, record in enumerate(records)}
    known = [
        (each.bytes_, *place) for each in gradients if (place := made.get(_follow(each.ready, merged))) is not None
    ]
    ready = accumulate((position for _, position, _ in known), max)
    return tuple(
        Gradient(bytes_=size, ready=position, layer=layer)
        for (size, _, layer), position in zip(known, ready, strict=True)
    )


def insert_fused_updates(sources: Sources, gradients: Sequence[Gradient], *, first: int, count: int) -> Sources:
    """Sources after fused updates were inserted: the first one reads all gradients, later operators read the last."""
    if not count:
        return sources
    ready = tuple(sorted({each.ready for each in gradients}))
    chain = tuple((position,) for position in range(first, first + count - 1))
    after = (tuple(sorted({_move(each, first, count) for each in own})) for own in sources[first:])
    return (*sources[:first], ready, *chain, *after)


def _move(source: int, first: int, count: int) -> int:
    """The new position of a source; a gradient is read from the last inserted update."""
    return source + count if source >= first else first + count - 1
