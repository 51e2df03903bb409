"""What training loops do with memory that is not in a step by itself, as changes of its blocks and events."""

from dataclasses import replace

import numpy as np

from foretell.core.memory import Integers, MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase


def load_ahead(trace: MemoryTrace) -> MemoryTrace:
    """As timm's loader: the next batch and the one after it are copied while the step runs, as bytes and as numbers."""
    inputs = trace.measure(MemoryKind.INPUTS) // 2  # each of the two steps has its own
    return _add_blocks(trace, np.array([inputs, inputs, inputs // 4]))


def decay_weights(trace: MemoryTrace) -> MemoryTrace:
    """With weight decay, the fused loops of SGD make copies of all gradients in each update."""
    starts = [event for event, phase in trace.phases if phase is StepPhase.UPDATE]
    ends = [trace.second, len(trace.events)]
    sizes: list[int] = []
    parts, last = [], 0
    moved = np.arange(len(trace.events) + 1)
    for start, end in zip(starts, ends, strict=True):
        first = trace.second if end > trace.second else 0
        numbers = trace.events[first:start] - 1
        gradients = numbers[(numbers >= 0) & (trace.kinds[numbers] == MemoryKind.GRADIENTS)]
        copies = len(trace.sizes) + len(sizes) + 1 + np.arange(len(gradients))
        sizes += trace.sizes[gradients].tolist()
        parts += [trace.events[last:start], copies, trace.events[start:end], -copies]
        moved[start + 1 :] += len(copies)
        moved[end:] += len(copies)
        last = end
    return _insert(_add_blocks(trace, np.array(sizes, dtype=np.int64)), np.concatenate(parts), moved)


def keep_gradients(trace: MemoryTrace) -> MemoryTrace:
    """As before PyTorch 2: gradients are set to zero and kept, and new ones are added to them."""
    is_gradient = np.concatenate([[False], trace.kinds == MemoryKind.GRADIENTS])
    numbers = np.abs(trace.events)
    kept = ~(is_gradient[numbers] & (trace.events < 0))
    new = is_gradient[numbers] & (trace.events > 0) & (np.arange(len(trace.events)) >= trace.second)
    counts = kept.astype(np.int64) + new
    moved = np.concatenate([[0], np.cumsum(counts)])
    events = np.repeat(trace.events, counts)
    added = np.flatnonzero(np.repeat(new, counts))[1::2]  # freed at once: added to the gradient of the first step
    events[added] *= -1
    return _insert(trace, events, moved)


def _add_blocks(trace: MemoryTrace, sizes: Integers) -> MemoryTrace:
    temporary = np.full(len(sizes), MemoryKind.TEMPORARY)
    owners = np.zeros(len(sizes), dtype=np.int64)
    return replace(
        trace,
        sizes=np.concatenate([trace.sizes, sizes]),
        kinds=np.concatenate([trace.kinds, temporary]),
        owners=np.concatenate([trace.owners, owners]),
    )


def _insert(trace: MemoryTrace, events: Integers, moved: Integers) -> MemoryTrace:
    """The trace with other events; ``moved`` has the new place of each old event."""
    return replace(
        trace,
        events=events,
        places=np.zeros(len(events), dtype=np.int64),
        phases=tuple((int(moved[event]), phase) for event, phase in trace.phases),
        second=int(moved[trace.second]),
    )
