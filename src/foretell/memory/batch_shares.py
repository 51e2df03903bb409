"""The memory of a step by one capture where its batch is smaller or larger, or one of several before an update."""

from fractions import Fraction

import numpy as np

from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.memory.trace_editor import TraceEditor, find_lives

_OF_EXAMPLES = (MemoryKind.INPUTS, MemoryKind.ACTIVATIONS, MemoryKind.TEMPORARY)


def resize_activations(trace: MemoryTrace, share: Fraction) -> MemoryTrace:
    """The step with this share of its examples or tokens. Temporary blocks as large as weights stay as they are."""
    if share == 1:
        return trace
    editor = TraceEditor(trace)
    weights = {int(size) for size in trace.sizes[trace.kinds == MemoryKind.WEIGHTS]}
    like_weights = np.isin(trace.sizes, [*weights, *(size // 2 for size in weights)])
    resized = np.isin(trace.kinds, _OF_EXAMPLES) & ~((trace.kinds == MemoryKind.TEMPORARY) & like_weights)
    editor.sizes[resized] = -(-editor.sizes[resized] * share.numerator // share.denominator)
    return editor.build()


def hold_gradients(trace: MemoryTrace) -> MemoryTrace:
    """The step as one of several batches before an update: gradients are there from the first batch on.

    Each batch computes a gradient anew, adds it, and frees it.
    """
    editor = TraceEditor(trace)
    born, _ = find_lives(trace)
    gradients = np.flatnonzero(trace.kinds == MemoryKind.GRADIENTS)
    own: dict[int, int] = {}
    for block in gradients.tolist():
        owner, size, place = int(trace.owners[block]), int(trace.sizes[block]), int(born[block])
        own[owner] = size
        if place >= 0:
            editor.free(place + 1, editor.allocate(place, size, MemoryKind.TEMPORARY, owner))
    editor.remove(gradients)
    for owner, size in own.items():
        editor.hold(size, MemoryKind.GRADIENTS, owner)
    return editor.build()
