"""Context parallelism: the GPUs of a group share each sequence, outside and inside of attention (ring attention,
https://arxiv.org/abs/2310.01889). Each holds its part of every activation, and keys and values of one other part.
"""

import numpy as np

from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.memory.trace_editor import TraceEditor

_OF_SEQUENCES = (MemoryKind.INPUTS, MemoryKind.ACTIVATIONS, MemoryKind.TEMPORARY)


def shard_sequences(trace: MemoryTrace, gpus: int) -> MemoryTrace:
    """The step of one of several GPUs."""
    editor = TraceEditor(trace)
    weights = {int(size) for size in trace.sizes[trace.kinds == MemoryKind.WEIGHTS]}
    like_weights = np.isin(trace.sizes, [*weights, *(size // 2 for size in weights)])
    shared = np.isin(trace.kinds, _OF_SEQUENCES) & ~((trace.kinds == MemoryKind.TEMPORARY) & like_weights)
    editor.sizes[shared] = -(-editor.sizes[shared] // gpus)
    return editor.build()
