"""DistributedDataParallel: the buckets in which gradients are exchanged are a second copy of all of them."""

import numpy as np

from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.memory.trace_editor import TraceEditor, find_lives

# https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html: bucket_cap_mb; the
# first one is smaller, so that the exchange begins early (dist._DEFAULT_FIRST_BUCKET_BYTES).
_FIRST_BYTES, _BYTES = 2**20, 25 * 2**20


def add_buckets(trace: MemoryTrace) -> MemoryTrace:
    """The step with buckets, which are there from the beginning (``gradient_as_bucket_view=False``)."""
    editor = TraceEditor(trace)
    born, _ = find_lives(trace)
    gradients = np.flatnonzero((trace.kinds == MemoryKind.GRADIENTS) & (born < trace.second))
    filled, limit = 0, _FIRST_BYTES
    for gradient in gradients[np.argsort(born[gradients])]:
        filled += int(trace.sizes[gradient])
        if filled >= limit or gradient == gradients[-1]:
            editor.hold(filled, MemoryKind.COMMUNICATION, int(trace.owners[gradient]))
            filled, limit = 0, _BYTES
    if filled:
        editor.hold(filled, MemoryKind.COMMUNICATION, int(trace.owners[gradients[-1]]))
    return editor.build()
