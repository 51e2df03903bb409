"""One training step: its operators, and their measured or predicted times."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.prediction import Estimate

Shape: TypeAlias = tuple[int, ...]
Attribute: TypeAlias = int | tuple[int, ...]
Floats: TypeAlias = NDArray[np.float64]


class StepPhase(StrEnum):
    """A part of a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One call of the framework in one phase of a step, with its shapes and costs.

    A backward operator has the shapes and attributes of its forward one, and its own costs.
    """

    kind: str  # the name of the function that is called: conv2d, __add__
    phase: StepPhase
    inputs: tuple[Shape, ...]  # of its tensors in the order of the call, parameters included
    output: Shape = ()
    attributes: tuple[tuple[str, Attribute], ...] = ()  # sorted by name
    dtype: str = "float32"
    flops: float = 0.0
    bytes_moved: float = 0.0  # read and written, each tensor once a kernel
    parameters: int = 0  # elements of the parameters among the inputs
    kernels: int = 1  # computing calls of the framework below this one
    input_gradient: bool = True  # in the backward phase: whether more than parameters get a gradient
    product_flops: float = 0.0  # those of matrix products and convolutions, as PyTorch's own counter counts
    unknown: int = 0  # of those calls, how many compute what is not known: each counted as one pass over its tensors

    def get(self, name: str, default: Attribute) -> Attribute:
        """An attribute."""
        return dict(self.attributes).get(name, default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """A parameter's gradient: its size, and the operator of the step after which it is ready."""

    bytes_: int
    ready: int  # place of the operator
    layer: str = ""  # of the operator that computed it; it may be sent after a later one


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One training step: operators in the order in which they run. Equal operators are one object."""

    name: str
    operators: tuple[Operator, ...]
    layers: tuple[str, ...] = ()  # of each operator: the module it belongs to
    views: tuple[int, ...] = ()  # of each operator: calls without any work on the device since the one before
    batch: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)  # loss, optimizer, precision and others, as given
    parameters: int = 0
    sources: tuple[tuple[int, ...], ...] = ()  # of each operator: places of those whose results it reads
    gradients: tuple[Gradient, ...] = ()  # in the order in which they are ready, of the last batch of a step
    notes: tuple[str, ...] = ()  # what was assumed or used when the step was read, with the line of the code

    @property
    def flops(self) -> float:
        """Of the whole step."""
        return sum(operator.flops for operator in self.operators)

    @property
    def product_flops(self) -> float:
        """Of the matrix products and convolutions of the whole step."""
        return sum(operator.product_flops for operator in self.operators)

    @property
    def bytes_moved(self) -> float:
        """Of the whole step."""
        return sum(operator.bytes_moved for operator in self.operators)

    @property
    def unknown(self) -> dict[str, int]:
        """Kinds of operators whose cost is not known, and how many there are of each, the most first."""
        return dict(Counter(operator.kind for operator in self.operators if operator.unknown).most_common())


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A training step as measured on a device. Times of operators that were not recorded are NaN.

    ``start_s`` is the start of an operator's first kernel, ``launch_s`` its launch by the host, both from the start of
    the step's first kernel. They are equal where the host is the device.
    """

    workload: Workload
    device: str
    iteration_s: float
    kernel_s: Floats  # sum of its kernels
    span_s: Floats  # from the start of its first kernel to the end of its last
    start_s: Floats
    launch_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimate:
    """The predicted time of a training step, and its parts."""

    iteration: Estimate
    phases: Mapping[StepPhase, float]  # seconds
    busy_s: float  # in which the device works
    overhead_s: float  # in which it waits for the framework
    kernel_s: Floats  # of each operator
    gap_s: Floats  # after each operator
    # Of methods that know what a kernel is; empty or None for others.
    evidence: Mapping[str, float] = field(default_factory=dict)  # shares of the work: measured, similar, figures
    limits: Mapping[str, float] = field(default_factory=dict)  # shares of the iteration: compute, memory, host
    mfu: float | None = None  # of the device's dense peak for the precision, by the operations of the step

    @property
    def main_evidence(self) -> str:
        """What most of the work was learned from; empty if unknown."""
        return max(self.evidence, key=lambda name: self.evidence[name], default="")

    @property
    def main_limit(self) -> str:
        """What takes most of the iteration; empty if unknown."""
        return max(self.limits, key=lambda name: self.limits[name], default="")
