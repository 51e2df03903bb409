"""The memory of a step with sequences of any length, from three captures.

Every block is at most quadratic in the length: attention without a fused kernel keeps a matrix of tokens by tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretell.core.memory import MemoryTrace
from foretell.memory.batch_sizes import NotAffineError
from foretell.memory.usage import MemoryUsage


@dataclass(frozen=True, slots=True)
class LengthTraces:
    """A step with three or more lengths.

    Raises:
        NotAffineError: They do not allocate and free the same blocks in the same order.
    """

    traces: Sequence[MemoryTrace]

    def __post_init__(self) -> None:
        first, *others = self.traces
        for each in others:
            if not np.array_equal(first.events, each.events):
                raise NotAffineError(
                    f"{first.name} allocates {len(first.events)} times with {first.length} tokens, and "
                    f"{len(each.events)} times or in another order with {each.length}"
                )

    def resize(self, length: int) -> MemoryTrace:
        """The step with another length: the polynomial through those that were recorded."""
        weights = _find_weights(length, [each.length or 0 for each in self.traces])
        total = sum(weight * trace.sizes for weight, trace in zip(weights, self.traces, strict=True))
        sizes = np.maximum(0, np.rint(total)).astype(np.int64)
        return replace(self.traces[0], sizes=sizes, length=length)


def extrapolate(size: int, known: Mapping[int, MemoryUsage]) -> MemoryUsage:
    """The usage at a size, from that at others: for steps that do not allocate the same at every size."""
    weights = _find_weights(size, list(known))
    usages = list(known.values())

    def sum_up(values: Sequence[int]) -> int:
        return max(0, round(sum(weight * value for weight, value in zip(weights, values, strict=True))))

    return replace(
        usages[0],
        allocated_bytes=sum_up([each.allocated_bytes for each in usages]),
        reserved_bytes=sum_up([each.reserved_bytes for each in usages]),
    )


def _find_weights(size: int, known: Sequence[int]) -> list[float]:
    """Of each known size, in the polynomial through all of them (Lagrange's form)."""
    return [float(np.prod([(size - other) / (each - other) for other in known if other != each])) for each in known]
