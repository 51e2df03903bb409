"""The memory that a step asks for on one device: its blocks, and the order in which they are allocated and freed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from foretell.core.workload import Shape, StepPhase

Integers = NDArray[np.int64]


class MemoryKind(IntEnum):
    """What a block of memory holds."""

    WEIGHTS = 0
    BUFFERS = 1
    GRADIENTS = 2
    OPTIMIZER = 3
    INPUTS = 4
    ACTIVATIONS = 5  # kept for the backward phase
    TEMPORARY = 6
    CASTS = 7  # of weights, made by autocast for one batch
    CACHE = 8  # keys and values of generated text
    WORKSPACE = 9  # of cuBLAS and cuDNN
    COMMUNICATION = 10  # buffers in which GPUs exchange gradients, weights and activations

    @property
    def title(self) -> str:
        """As people say it."""
        return _TITLES[self]


_TITLES = {
    MemoryKind.WEIGHTS: "weights",
    MemoryKind.BUFFERS: "buffers",
    MemoryKind.GRADIENTS: "gradients",
    MemoryKind.OPTIMIZER: "optimizer states",
    MemoryKind.INPUTS: "inputs",
    MemoryKind.ACTIVATIONS: "activations",
    MemoryKind.TEMPORARY: "temporary",
    MemoryKind.CASTS: "weights in half precision",
    MemoryKind.CACHE: "keys and values",
    MemoryKind.WORKSPACE: "library workspaces",
    MemoryKind.COMMUNICATION: "communication buffers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution of the first step, forward or backward, for which cuDNN needs workspace."""

    event: int  # events before it
    backward: bool
    images: Shape
    filters: Shape
    results: Shape
    stride: Shape
    dilation: Shape
    groups: int
    transposed: bool
    itemsize: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryTrace:
    """The blocks of two training steps or inferences on one device, and the events in which they come and go.

    An event n + 1 allocates block n, -(n + 1) frees it. Blocks without an allocation are there from the beginning. The
    first step also allocates what stays, such as the states of the optimizer; the second is like all later ones.
    A weight, its gradient and its states of the optimizer have one owner: the name of the weight, and its layer.
    """

    name: str
    batch: int
    sizes: Integers  # bytes that were asked for, of each block
    kinds: Integers  # a MemoryKind of each block
    owners: Integers  # of each block: place of its owner
    events: Integers
    places: Integers  # of each event: place of the owner that ran
    owner_names: tuple[tuple[str, str], ...]  # operator and layer
    phases: tuple[tuple[int, StepPhase], ...]  # first event of each
    second: int  # first event of the second step; the number of events if there is no second step
    settings: Mapping[str, str] = field(default_factory=dict)
    parameters: int = 0
    length: int | None = None  # tokens of each example, where the inputs have some
    repeated: tuple[str, ...] = ()  # names of the layers of which the model is a sequence
    heads: tuple[int, ...] = ()  # numbers of heads of its attention, of queries and of keys
    outside_bytes: int = 0  # that libraries allocate by themselves, beyond the blocks
    host_bytes: int = 0  # that were moved to the host
    notes: tuple[str, ...] = ()
    convolutions: tuple[Convolution, ...] = ()
    extensions: tuple[str, ...] = ()  # operators that PyTorch does not have: what they allocate inside is not seen

    def measure(self, kind: MemoryKind) -> int:
        """Bytes of all blocks of a kind."""
        return int(self.sizes[self.kinds == kind].sum())
