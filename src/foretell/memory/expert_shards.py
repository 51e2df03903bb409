"""Expert parallelism: the GPUs of a group share the experts of each layer (https://arxiv.org/abs/2006.16668).

With equal loads, a GPU computes as many rows as without it, those of its own experts.
"""

import numpy as np

from foretell.core.errors import Mistake, SpecError
from foretell.core.layouts import find_experts
from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.memory.trace_editor import TraceEditor

_STATES = (MemoryKind.WEIGHTS, MemoryKind.GRADIENTS, MemoryKind.OPTIMIZER, MemoryKind.CASTS)


def shard_experts(trace: MemoryTrace, gpus: int) -> MemoryTrace:
    """The step of one of several GPUs.

    Raises:
        SpecError: The model has no experts.
    """
    owned = np.array([find_experts(layer) for _, layer in trace.owner_names])
    states = np.isin(trace.kinds, _STATES) & owned[trace.owners]
    if not states.any():
        expected = "a model with layers whose name has the part 'experts'"
        raise SpecError("the layout", [Mistake(place="ep", found=trace.name, expected=expected)])
    editor = TraceEditor(trace)
    weights = trace.kinds == MemoryKind.WEIGHTS
    editor.sizes[states] = -(-editor.sizes[states] // gpus)
    share = int(editor.sizes[weights].sum()) / max(1, int(trace.sizes[weights].sum()))
    return editor.build(parameters=round(trace.parameters * share))
