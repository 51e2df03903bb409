"""DistributedDataParallel: the buckets in which gradients are exchanged are a second copy of all of them."""

import numpy as np

from foretell.core.gradients import fill_buckets
from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.memory.trace_editor import TraceEditor, find_lives


def add_buckets(trace: MemoryTrace) -> MemoryTrace:
    """The step with buckets, which are there from the beginning (``gradient_as_bucket_view=False``)."""
    editor = TraceEditor(trace)
    born, _ = find_lives(trace)
    gradients = np.flatnonzero((trace.kinds == MemoryKind.GRADIENTS) & (born < trace.second))
    gradients = gradients[np.argsort(born[gradients])]
    sizes = trace.sizes[gradients].tolist()
    for some in fill_buckets(sizes):
        owner = int(trace.owners[gradients[some][-1]])
        editor.hold(sum(sizes[some]), MemoryKind.COMMUNICATION, owner)
    return editor.build()
