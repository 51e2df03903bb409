"""Text that a causal language model generates: the prompt at once, then one token in each step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.core.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationTimes:
    """What a user of generated text waits for."""

    first_token_s: float
    token_s: float  # mean of the tokens after the first; 0 if there is one only
    total_s: float
    tokens_per_s: float  # of all texts of the batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The steps that generate text: one that reads the prompt, and some of those that add a token.

    The steps between those that were captured are interpolated, because they grow linearly with the cache.
    """

    name: str
    batch: int
    prompt: int  # tokens of each text
    new: int  # tokens to generate, the first of which comes from the prompt's step
    prefill: Workload
    decodes: tuple[Workload, ...]
    lengths: tuple[int, ...]  # tokens before each of these steps
    cached: bool = True  # False if the model has no cache of keys and values, and reads the whole text for each token

    @property
    def weights(self) -> tuple[float, ...]:
        """How many of the steps after the prompt each captured one stands for; their sum is ``new - 1``."""
        steps = np.arange(self.prompt, self.prompt + self.new - 1)
        unit = np.eye(len(self.lengths))
        return tuple(float(np.interp(steps, self.lengths, row).sum()) for row in unit)

    @property
    def flops(self) -> float:
        """Of the whole text."""
        decodes = zip(self.weights, self.decodes, strict=True)
        return self.prefill.flops + sum(weight * step.flops for weight, step in decodes)

    @property
    def bytes_moved(self) -> float:
        """Of the whole text."""
        decodes = zip(self.weights, self.decodes, strict=True)
        return self.prefill.bytes_moved + sum(weight * step.bytes_moved for weight, step in decodes)

    def combine(self, prefill_s: float, decodes_s: Sequence[float]) -> GenerationTimes:
        """The times of the whole text from those of the captured steps."""
        after = sum(weight * seconds for weight, seconds in zip(self.weights, decodes_s, strict=True))
        total = prefill_s + after
        return GenerationTimes(
            first_token_s=prefill_s,
            token_s=after / (self.new - 1) if self.new > 1 else 0.0,
            total_s=total,
            tokens_per_s=self.batch * self.new / total if total > 0 else 0.0,
        )
