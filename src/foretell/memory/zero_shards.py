"""The stages of ZeRO (Rajbhandari et al., https://arxiv.org/abs/1910.02054), with the buffers of DeepSpeed.

Stage 1 divides the states of the optimizer, stage 2 the gradients as well, stage 3 also the weights. In half precision
the optimizer has copies of the weights and its states in single precision. Sizes of buffers are the defaults of
https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training; their moments are those of
deepspeed/runtime/zero/stage_1_and_2.py and stage3.py.
"""

from collections.abc import Iterator

import numpy as np

from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase
from foretell.memory.trace_editor import Span, TraceEditor, find_lives, find_spans

_REDUCE_BUCKET = 500_000_000  # elements
_PREFETCH_BUCKET = 50_000_000
_REUSE_DISTANCE = 1_000_000_000  # of weights that are used again sooner, the whole ones stay
_PERSISTENT = 100_000  # elements of weights that are never divided
_GRADIENT_BYTES = 4  # of an element on the host, for the optimizer


def shard_states(trace: MemoryTrace, gpus: int, *, stage: int, offload: str = "") -> MemoryTrace:
    """The step of one of several GPUs."""
    return _Shards(trace, gpus, stage=stage, offload=offload).build()


class _Shards:
    def __init__(self, trace: MemoryTrace, gpus: int, *, stage: int, offload: str) -> None:
        self._trace, self._gpus, self._stage, self._offload = trace, gpus, stage, offload
        self._editor = TraceEditor(trace)
        self._born, self._died = find_lives(trace)
        self._itemsize = 2 if trace.settings.get("precision", "").startswith("pure-") else 4
        self._weights = np.flatnonzero(trace.kinds == MemoryKind.WEIGHTS)
        learned = trace.owners[trace.kinds == MemoryKind.GRADIENTS]
        self._learned = self._weights[np.isin(trace.owners[self._weights], learned)]
        self._host = 0

    def build(self) -> MemoryTrace:
        self._shard_optimizer()
        if self._stage >= 2:
            self._shard_gradients()
        if self._stage == 3:
            self._shard_weights()
        if self._gpus > 1 and len(self._learned):
            self._add_reduce_buckets()
        return self._editor.build(host_bytes=self._trace.host_bytes + self._host)

    def _share(self, size: float) -> int:
        return int(-(-size // self._gpus))

    # Stage 1

    def _shard_optimizer(self) -> None:
        trace, editor = self._trace, self._editor
        widening = 4 // self._itemsize
        sizes = dict(zip(trace.owners[self._learned].tolist(), trace.sizes[self._learned].tolist(), strict=True))
        states = np.flatnonzero(trace.kinds == MemoryKind.OPTIMIZER)
        whole = np.array([trace.sizes[state] == sizes.get(int(trace.owners[state])) for state in states], dtype=bool)
        editor.sizes[states] = -(-editor.sizes[states] * np.where(whole, widening, 1) // self._gpus)
        spans = [span for span in find_spans(trace) if span.phase is StepPhase.UPDATE]
        temporary = [block for span in spans for block in self._find_temporary(span)]
        editor.sizes[temporary] = -(-editor.sizes[temporary] * widening // self._gpus)
        if self._offload:
            learned = sum(sizes.values()) // self._itemsize
            self._host += editor.remove(states) + self._share(_GRADIENT_BYTES * learned)
            editor.remove(temporary)
        if widening == 1:
            return
        for weight in self._learned:
            copied = self._share(int(trace.sizes[weight]) * widening)
            if self._offload:
                self._host += copied
            else:
                editor.hold(copied, MemoryKind.OPTIMIZER, int(trace.owners[weight]))
        for span in [] if self._offload else spans:
            total = self._share(sum(sizes.values()) * widening)
            gradients = editor.allocate(span.start, total, MemoryKind.GRADIENTS, int(trace.owners[self._learned[0]]))
            editor.free(span.end, gradients)

    def _find_temporary(self, span: Span) -> Iterator[int]:
        inside = (self._born >= span.start) & (self._born < span.end)
        yield from np.flatnonzero(inside & (self._trace.kinds == MemoryKind.TEMPORARY)).tolist()

    # Stage 2

    def _shard_gradients(self) -> None:
        """Whole gradients are copied into the bucket and freed at once; the parts stay where they were kept."""
        trace, editor = self._trace, self._editor
        gradients = np.flatnonzero(trace.kinds == MemoryKind.GRADIENTS)
        for gradient in gradients:
            begin, end = int(self._born[gradient]), int(self._died[gradient])
            size, owner = int(trace.sizes[gradient]), int(trace.owners[gradient])
            editor.free(begin + 1, editor.allocate(begin, size, MemoryKind.GRADIENTS, owner))
            part = editor.allocate(begin + 1, self._share(size), MemoryKind.GRADIENTS, owner, ends_phase=True)
            if end < len(trace.events):
                editor.free(end, part, ends_phase=False)
        editor.remove(gradients)

    def _add_reduce_buckets(self) -> None:
        size, owner = _REDUCE_BUCKET * self._itemsize, int(self._trace.owners[self._weights[0]])
        if self._stage == 3:
            self._editor.hold(size, MemoryKind.COMMUNICATION, owner)
            return
        for span in find_spans(self._trace):
            if span.phase is StepPhase.BACKWARD:
                bucket = self._editor.allocate(span.start, size, MemoryKind.COMMUNICATION, owner)
                self._editor.free(span.end, bucket)

    # Stage 3

    def _shard_weights(self) -> None:
        trace, editor = self._trace, self._editor
        divided = [int(each) for each in self._weights if trace.sizes[each] > _PERSISTENT * self._itemsize]
        editor.sizes[divided] = -(-editor.sizes[divided] // self._gpus)
        if self._offload == "parameters":
            self._host += editor.remove(divided)
        for start, end, weight in self._find_gathered(divided):
            gathered = editor.allocate(start, int(trace.sizes[weight]), MemoryKind.WEIGHTS, int(trace.owners[weight]))
            editor.free(end, gathered)
        if divided and self._gpus > 1:
            total = int(trace.sizes[divided].sum())
            prefetched = min(total, _PREFETCH_BUCKET * self._itemsize)
            editor.hold(prefetched, MemoryKind.COMMUNICATION, int(trace.owners[divided[0]]))

    def _find_gathered(self, weights: list[int]) -> Iterator[tuple[int, int, int]]:
        """From when to when each weight is whole: while its layer runs, and until it soon runs again."""
        trace = self._trace
        layers = np.array([layer for _, layer in trace.owner_names])
        for spans in _split_steps(trace):
            uses = []
            for span in spans:
                events = np.arange(span.start, span.end)[trace.events[span.start : span.end] > 0]
                running = layers[trace.places[events]]
                names, first = np.unique(running, return_index=True)
                last = len(running) - 1 - np.unique(running[::-1], return_index=True)[1]
                found = {str(name): (events[a], events[b]) for name, a, b in zip(names, first, last, strict=True)}
                for weight in weights:
                    layer = str(layers[trace.owners[weight]])
                    if layer in found:
                        uses.append((int(found[layer][0]), int(found[layer][1]) + 1, int(weight)))
            yield from self._join(sorted(uses))

    def _join(self, uses: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
        passed = np.cumsum([int(self._trace.sizes[weight]) // self._itemsize for _, _, weight in uses])
        current: dict[int, tuple[int, int, int]] = {}  # start and end of the whole weight, elements passed at its use
        for (start, end, weight), elements in zip(uses, passed.tolist(), strict=True):
            if weight in current and elements - current[weight][2] <= _REUSE_DISTANCE:
                current[weight] = current[weight][0], end, elements
                continue
            if weight in current:
                yield *current[weight][:2], weight
            current[weight] = start, end, elements
        for weight, (start, end, _) in current.items():
            yield start, end, weight


def _split_steps(trace: MemoryTrace) -> Iterator[list[Span]]:
    """The spans of each step, in which weights are used."""
    used = [span for span in find_spans(trace) if span.phase is not StepPhase.UPDATE]
    yield [span for span in used if span.start < trace.second]
    yield [span for span in used if span.start >= trace.second]
