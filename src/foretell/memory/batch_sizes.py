"""The memory of a step at any batch, from two captures: nearly every block is affine in the batch."""

from dataclasses import dataclass, replace

import numpy as np

from foretell.core.errors import ForetellError
from foretell.core.memory import MemoryTrace


class NotAffineError(ForetellError, ValueError):
    """A step with another batch does something else, so that its memory cannot be derived."""


@dataclass(frozen=True, slots=True)
class BatchTraces:
    """A step with two batches.

    Raises:
        NotAffineError: The two do not allocate and free the same blocks in the same order.
    """

    small: MemoryTrace
    large: MemoryTrace

    def __post_init__(self) -> None:
        if self.small.batch == self.large.batch:
            raise NotAffineError(f"both steps have batch {self.small.batch}; expected two batches")
        if not np.array_equal(self.small.events, self.large.events):
            raise NotAffineError(
                f"{self.small.name} allocates {len(self.small.events)} times with batch {self.small.batch} and "
                f"{len(self.large.events)} times with {self.large.batch}, or in another order; "
                "read the step with the batch that is asked for"
            )

    def resize(self, batch: int) -> MemoryTrace:
        """The step with another batch."""
        slope = (self.large.sizes - self.small.sizes) / (self.large.batch - self.small.batch)
        sizes = np.maximum(0, np.rint(self.small.sizes + slope * (batch - self.small.batch)))
        convolutions = tuple(
            replace(
                each,
                images=(each.images[0] * batch // self.large.batch, *each.images[1:]),
                results=(each.results[0] * batch // self.large.batch, *each.results[1:]),
            )
            for each in self.large.convolutions
        )
        return replace(self.small, batch=batch, sizes=sizes.astype(np.int64), convolutions=convolutions)
