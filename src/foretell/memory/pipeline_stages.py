"""Pipeline parallelism with the schedule 1F1B (Narayanan et al., https://arxiv.org/abs/2104.04473).

Stage s of S keeps the activations of S - s batches, or of all of them if there are fewer. What comes before the
repeated layers is part of the first stage, what comes after them of the last one.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import Mistake, SpecError
from foretell.core.memory import Integers, MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase
from foretell.memory.trace_editor import Span, TraceEditor, find_layers, find_lives, find_spans

_FIRST, _LAST = -1, -2  # before and after the repeated layers


def split_stages(trace: MemoryTrace, stages: int, *, micro_batches: int) -> MemoryTrace:
    """The step of the stage that holds most. The recorded batch is one of the micro-batches.

    Raises:
        SpecError: There are fewer repeated layers than stages.
    """
    layers = len(trace.repeated)
    if layers < stages:
        expected = f"at most {layers}, the repeated layers of {trace.name}"
        raise SpecError("the layout", [Mistake(place="pp", found=str(stages), expected=expected)])
    places = _place_blocks(trace)
    bounds = np.linspace(0, layers, stages + 1).round().astype(int)
    built = [
        _build_stage(trace, places, (int(bounds[stage]), int(bounds[stage + 1])), min(stages - stage, micro_batches))
        for stage in range(stages)
    ]
    return max(built, key=find_live_peak)


def find_live_peak(trace: MemoryTrace) -> int:
    """The most bytes that live at once."""
    signs = np.sign(trace.events)
    born, _ = find_lives(trace)
    course = np.cumsum(signs * trace.sizes[np.abs(trace.events) - 1]) if len(trace.events) else np.zeros(1, np.int64)
    return int(trace.sizes[born < 0].sum() + max(0, course.max()))


def _place_blocks(trace: MemoryTrace) -> Integers:
    """Of each block, its repeated layer, or whether it comes before or after them."""
    layer_of = find_layers(trace)
    forward = next(span for span in find_spans(trace) if span.phase is StepPhase.FORWARD)
    inside = layer_of[trace.places[forward.start : forward.end]] >= 0
    last = forward.start + int(np.flatnonzero(inside)[-1]) if inside.any() else forward.end
    after = {int(place) for place in trace.places[last + 1 : forward.end]}
    before = {int(place) for place in trace.places[: last + 1]}
    later = {trace.owner_names[place][1] for place in after} - {trace.owner_names[place][1] for place in before}
    sides = np.array([_LAST if layer in later or not layer else _FIRST for _, layer in trace.owner_names])
    placed: Integers = np.where(layer_of >= 0, layer_of, sides)[trace.owners]
    return placed


def _build_stage(trace: MemoryTrace, places: Integers, bounds: tuple[int, int], batches: int) -> MemoryTrace:
    first, after = bounds
    editor = TraceEditor(trace)
    own = (places >= first) & (places < after)
    own |= (places == _FIRST) & (first == 0)
    own |= (places == _LAST) & (after == len(trace.repeated))
    weights = trace.kinds == MemoryKind.WEIGHTS
    share = trace.sizes[own & weights].sum() / max(1, trace.sizes[weights].sum())
    updates = _find_updates(trace)
    editor.remove(np.flatnonzero(~own & ~updates))
    editor.sizes[updates] = np.ceil(editor.sizes[updates] * share).astype(np.int64)
    received = _find_received(trace, places, first)
    for span, following in _pair_spans(trace):
        for size, owner in [*_sum_kept(trace, own, span), *received]:
            copies = batches - 1 if (size, owner) not in received else batches
            kept = [editor.allocate(span.start, size, MemoryKind.ACTIVATIONS, owner) for _ in range(copies)]
            for block in kept:
                editor.free(following.end, block)
    return editor.build(parameters=round(trace.parameters * share))


def _find_updates(trace: MemoryTrace) -> NDArray[np.bool_]:
    """Temporary blocks of the update, which are made for all weights at once."""
    born, _ = find_lives(trace)
    found = np.zeros(len(trace.sizes), dtype=bool)
    for span in find_spans(trace):
        if span.phase is StepPhase.UPDATE:
            found |= (born >= span.start) & (born < span.end)
    return np.asarray(found & (trace.kinds == MemoryKind.TEMPORARY))


def _pair_spans(trace: MemoryTrace) -> list[tuple[Span, Span]]:
    spans = find_spans(trace)
    return [
        (span, following)
        for span, following in pairwise(spans)
        if span.phase is StepPhase.FORWARD and following.phase is StepPhase.BACKWARD
    ]


def _sum_kept(trace: MemoryTrace, own: NDArray[np.bool_], span: Span) -> list[tuple[int, int]]:
    """Bytes that a batch keeps for its backward phase in each repeated layer, with an owner in it."""
    born, _ = find_lives(trace)
    kept = own & (trace.kinds == MemoryKind.ACTIVATIONS) & (born >= span.start) & (born < span.end)
    layers = find_layers(trace)[trace.owners]
    found = []
    for layer in np.unique(layers[kept]):
        blocks = np.flatnonzero(kept & (layers == layer))
        found.append((int(trace.sizes[blocks].sum()), int(trace.owners[blocks[0]])))
    return found


def _find_received(trace: MemoryTrace, places: Integers, first: int) -> list[tuple[int, int]]:
    """What a stage receives for each batch: the last result of the layer before it."""
    if first == 0:
        return []
    layer = trace.repeated[first - 1]
    named = np.array([each == layer for _, each in trace.owner_names])
    results = np.flatnonzero(
        (places == first - 1) & (trace.kinds == MemoryKind.ACTIVATIONS) & named[trace.owners] & (trace.sizes > 0)
    )
    return [(int(trace.sizes[results[-1]]), int(trace.owners[results[-1]]))] if len(results) else []
