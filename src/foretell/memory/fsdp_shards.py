"""Fully sharded data parallelism: every GPU has a part of each weight, and gathers a layer when it runs.

The moments are those of PyTorch's ``fully_shard`` on each repeated layer and on the model, with its defaults: a layer
is resharded after its forward, the weights outside of the layers after the backward phase; the next layer is gathered
while one runs backward. See torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py.
"""

from dataclasses import dataclass

import numpy as np

from foretell.core.layouts import FsdpOptions
from foretell.core.memory import Integers, MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase
from foretell.memory.trace_editor import Span, TraceEditor, find_layers, find_lives, find_spans

_ROOT = -1  # what is part of no repeated layer


def shard_layers(
    trace: MemoryTrace, gpus: int, *, offload: bool = False, options: FsdpOptions | None = None
) -> MemoryTrace:
    """The step of one of several GPUs. With autocast, weights are gathered in half precision and gradients reduced in
    single precision; ``offload`` keeps weights, gradients and optimizer states on the host.
    """
    options = options or FsdpOptions()
    return _Shards(trace, options.group or gpus, offload=offload, options=options).build()


@dataclass
class _Layer:
    """Bytes of its weights in their own precision, and of those that learn; its gradients of the first batch."""

    owner: int
    weights: int = 0
    learned: int = 0


class _Shards:
    def __init__(self, trace: MemoryTrace, gpus: int, *, offload: bool, options: FsdpOptions) -> None:
        self._trace, self._gpus, self._offload, self._options = trace, gpus, offload, options
        self._editor = TraceEditor(trace)
        self._born, self._died = find_lives(trace)
        self._layer_of = _join_layers(find_layers(trace), options.layers_per_unit)
        self._mixed = bool((trace.kinds == MemoryKind.CASTS).any())
        self._layers = self._find_layers()
        self._host = 0

    def build(self) -> MemoryTrace:
        self._shard_states()
        spans = find_spans(self._trace)
        for place, span in enumerate(spans):
            if span.phase is StepPhase.FORWARD:
                follows = spans[place + 1] if place + 1 < len(spans) else None
                learns = follows is not None and follows.phase is StepPhase.BACKWARD
                kept = self._run_forward(span, releases=not learns)
                if follows is not None and learns:
                    self._run_backward(follows, kept)
        return self._editor.build(host_bytes=self._trace.host_bytes + self._host)

    # What stays

    def _find_layers(self) -> dict[int, _Layer]:
        trace = self._trace
        learned = set(trace.owners[trace.kinds == MemoryKind.GRADIENTS].tolist())
        layers: dict[int, _Layer] = {}
        for block in np.flatnonzero(trace.kinds == MemoryKind.WEIGHTS):
            owner, size = int(trace.owners[block]), int(trace.sizes[block])
            layer = layers.setdefault(int(self._layer_of[owner]), _Layer(owner))
            layer.weights += size
            layer.learned += size if owner in learned else 0
        return layers

    def _shard_states(self) -> None:
        trace, editor = self._trace, self._editor
        states = np.isin(trace.kinds, (MemoryKind.WEIGHTS, MemoryKind.OPTIMIZER))
        updates = np.zeros(len(trace.sizes), dtype=bool)
        for span in find_spans(trace):
            if span.phase is StepPhase.UPDATE:
                updates |= (self._born >= span.start) & (self._born < span.end)
        shared = states | (updates & (trace.kinds == MemoryKind.TEMPORARY))
        editor.sizes[shared] = -(-editor.sizes[shared] // self._gpus)
        if self._mixed:
            editor.remove(np.flatnonzero(trace.kinds == MemoryKind.CASTS))
        if self._offload:
            self._host += editor.remove(np.flatnonzero(states))
            editor.remove(np.flatnonzero(updates & ~states))

    # What comes and goes

    def _gathered(self, layer: _Layer) -> int:
        return layer.weights // 2 if self._mixed else layer.weights

    def _find_runs(self, span: Span) -> list[tuple[int, int, int]]:
        """Layers in the order in which they run in a phase: first event, the first after, the layer."""
        events = self._trace.events[span.start : span.end]
        layers = self._layer_of[self._trace.places[span.start : span.end]]
        runs = []
        for layer in self._layers:
            found = np.flatnonzero((layers == layer) & (events > 0))
            if layer != _ROOT and len(found):
                runs.append((span.start + int(found[0]), span.start + int(found[-1]) + 1, layer))
        return sorted(runs)

    def _run_forward(self, span: Span, *, releases: bool) -> dict[int, int]:
        """Gather each layer; returns the gathered weights that stay: those outside of the layers, or all."""
        editor = self._editor
        kept: dict[int, int] = {}
        buffer, end = None, span.start
        if _ROOT in self._layers:
            buffer, kept[_ROOT] = self._gather(span.start, self._layers[_ROOT], None)
        for start, end, place in self._find_runs(span):
            buffer, weights = self._gather(start, self._layers[place], buffer)
            if self._options.keeps_gathered and not releases:
                kept[place] = weights
            else:
                editor.free(end, weights)
        if buffer is not None:
            editor.free(end, buffer, ends_phase=end > span.start)
        if releases:
            for weights in kept.values():
                editor.free(span.end, weights)
        return kept

    def _gather(self, position: int, layer: _Layer, previous: int | None) -> tuple[int, int]:
        """Gather a layer into a buffer, which stays until the next one is gathered, and copy its weights out of it."""
        editor, size = self._editor, self._gathered(layer)
        buffer = editor.allocate(position, size, MemoryKind.COMMUNICATION, layer.owner)
        if previous is not None:
            editor.free(position, previous, ends_phase=False)
        return buffer, editor.allocate(position, size, MemoryKind.WEIGHTS, layer.owner)

    def _run_backward(self, span: Span, kept: dict[int, int]) -> None:
        editor, reduced, last = self._editor, None, span.start
        runs = self._find_runs(span)
        buffer = self._prefetch(self._skip_loss(span), runs[0][2], kept) if runs else None
        for number, (start, end, place) in enumerate(runs):
            weights = kept.get(place)
            if weights is None:
                assert buffer is not None
                layer = self._layers[place]
                weights = editor.allocate(start, self._gathered(layer), MemoryKind.WEIGHTS, layer.owner)
                editor.free(start, buffer, ends_phase=False)
            buffer = self._prefetch(start, runs[number + 1][2], kept) if number + 1 < len(runs) else None
            last = max(last, end)  # a layer may end after the next one, which its gradient also goes through
            editor.free(last, weights)
            reduced = self._reduce(last, place, span, reduced)
        if _ROOT in kept:
            editor.free(span.end, kept[_ROOT])
            reduced = self._reduce(span.end, _ROOT, span, reduced)
        if reduced is not None:
            editor.free(span.end, reduced)

    def _skip_loss(self, span: Span) -> int:
        """The first event of the model's own backward phase, in which the last layer is gathered."""
        events = np.arange(span.start, span.end)
        inside = np.array([bool(layer) for _, layer in self._trace.owner_names])[self._trace.places[events]]
        found = events[inside & (self._trace.events[events] > 0)]
        return int(found[0]) if len(found) else span.start

    def _prefetch(self, position: int, place: int, kept: dict[int, int]) -> int | None:
        if place in kept:
            return None
        layer = self._layers[place]
        return self._editor.allocate(position, self._gathered(layer), MemoryKind.COMMUNICATION, layer.owner)

    def _reduce(self, position: int, place: int, span: Span, previous: int | None) -> int | None:
        """Reduce the gradients of a layer to the part of this GPU; returns the buffer that is sent."""
        editor, layer = self._editor, self._layers[place]
        if not layer.learned:
            return previous
        if previous is not None:
            editor.free(position, previous)
        size = layer.learned // 2 if self._mixed and self._options.reduces_in_half else layer.learned
        sent = editor.allocate(position, size, MemoryKind.COMMUNICATION, layer.owner, ends_phase=True)
        until = self._replace_gradients(position, place, span)
        part = -(-layer.learned // self._gpus)
        received = editor.allocate(position, part, MemoryKind.GRADIENTS, layer.owner, ends_phase=True)
        if self._offload:
            self._host += part if until is not None and span.start < self._trace.second else 0
            editor.free(position, received)
        elif until is None:  # added to the gradients of an earlier batch
            editor.free(position, received)
        elif until < len(self._trace.events):
            editor.free(until, received, ends_phase=False)
        return sent

    def _replace_gradients(self, position: int, place: int, span: Span) -> int | None:
        """Let whole gradients live until they are reduced; returns when those of the parts are freed."""
        trace, editor = self._trace, self._editor
        inside = (self._born >= span.start) & (self._born < span.end) & (trace.kinds == MemoryKind.GRADIENTS)
        gradients = np.flatnonzero(inside & (self._layer_of[trace.owners] == place))
        for gradient in gradients:
            size, begin = int(trace.sizes[gradient]), int(self._born[gradient])
            if self._mixed:
                size, begin = size // 2, self._skip_cast(begin, size // 2)
            whole = editor.allocate(begin, size, MemoryKind.GRADIENTS, int(trace.owners[gradient]))
            editor.free(max(position, begin), whole, ends_phase=position > begin)
        editor.remove(gradients)
        return int(self._died[gradients].max()) if len(gradients) else None

    def _skip_cast(self, begin: int, size: int) -> int:
        """Autocast converts a gradient in half precision and frees it; here, the gradient itself stays."""
        following: Integers = self._trace.events[begin + 1 : begin + 2]
        freed = len(following) and following[0] < 0 and self._trace.sizes[-following[0] - 1] == size
        return begin + 2 if freed else begin


def _join_layers(layer_of: Integers, count: int) -> Integers:
    """Several layers as one unit; all as part of the model itself if the count is 0."""
    if count == 0:
        return np.full_like(layer_of, _ROOT)
    return np.where(layer_of == _ROOT, _ROOT, layer_of // count)
