"""Context parallelism: the GPUs of a group share each sequence, outside and inside of attention (ring attention,
https://arxiv.org/abs/2310.01889). Each holds its part of every activation, and keys and values of one other part.
"""

from fractions import Fraction

from foretell.core.memory import MemoryTrace
from foretell.memory.batch_shares import resize_activations


def shard_sequences(trace: MemoryTrace, gpus: int) -> MemoryTrace:
    """The step of one of several GPUs."""
    return resize_activations(trace, Fraction(1, gpus))
