"""Changes a recorded step: other sizes, and blocks that come and go at other moments."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from foretell.core.memory import Integers, MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase

_BEFORE, _AFTER, _RECORDED = range(3)  # what is inserted at the start of a phase is part of the one before, or of it
_SIDES = 3


class Span(NamedTuple):
    """A phase: its first event, and the first after it."""

    phase: StepPhase
    start: int
    end: int


class TraceEditor:
    """Collects the changes; positions are those of the recorded events."""

    def __init__(self, trace: MemoryTrace) -> None:
        self.trace = trace
        self.sizes = trace.sizes.copy()
        self.kinds = trace.kinds.copy()
        self._added: list[tuple[int, MemoryKind, int]] = []
        self._inserted: list[tuple[int, int, int]] = []  # key of its position, event, place
        self._removed = np.zeros(len(trace.sizes), dtype=bool)

    def hold(self, size: float, kind: MemoryKind, owner: int) -> int:
        """Add a block that is there all the time."""
        self._added.append((int(np.ceil(size)), kind, owner))
        return len(self.sizes) + len(self._added) - 1

    def allocate(self, position: int, size: float, kind: MemoryKind, owner: int, *, ends_phase: bool = False) -> int:
        """Add a block before an event."""
        block = self.hold(size, kind, owner)
        self._insert(position, block + 1, owner, _BEFORE if ends_phase else _AFTER)
        return block

    def free(self, position: int, block: int, *, ends_phase: bool = True) -> None:
        """Free an added block before an event."""
        owner = self._added[block - len(self.sizes)][2]
        self._insert(position, -block - 1, owner, _BEFORE if ends_phase else _AFTER)

    def remove(self, blocks: Iterable[int] | Integers) -> int:
        """Remove recorded blocks; returns their bytes."""
        numbers = np.asarray(list(blocks), dtype=np.int64)
        self._removed[numbers] = True
        return int(self.sizes[numbers].sum())

    def build(self, **changes: Any) -> MemoryTrace:
        """The changed step."""
        trace, count = self.trace, len(self.sizes)
        kept = np.concatenate([~self._removed, np.ones(len(self._added), dtype=bool)])
        numbers = np.cumsum(kept) - 1
        recorded = kept[np.abs(trace.events) - 1]
        keys = np.concatenate(
            [
                np.array([key for key, _, _ in self._inserted], dtype=np.int64),
                np.flatnonzero(recorded) * _SIDES + _RECORDED,
            ]
        )
        events = np.concatenate(
            [np.array([event for _, event, _ in self._inserted], dtype=np.int64), trace.events[recorded]]
        )
        places = np.concatenate(
            [np.array([place for _, _, place in self._inserted], dtype=np.int64), trace.places[recorded]]
        )
        order = np.argsort(keys, kind="stable")
        keys, events = keys[order], events[order]
        owners = np.array([owner for _, _, owner in self._added], dtype=np.int64)
        sizes = np.array([size for size, _, _ in self._added], dtype=np.int64)
        kinds = np.array([kind for _, kind, _ in self._added], dtype=np.int64)
        assert len(kept) == count + len(self._added)

        def move(position: int) -> int:
            return int(np.searchsorted(keys, position * _SIDES + _AFTER))

        return replace(
            trace,
            sizes=np.concatenate([self.sizes, sizes])[kept],
            kinds=np.concatenate([self.kinds, kinds])[kept],
            owners=np.concatenate([trace.owners, owners])[kept],
            events=np.sign(events) * (numbers[np.abs(events) - 1] + 1),
            places=places[order],
            phases=tuple((move(first), phase) for first, phase in trace.phases),
            second=move(trace.second),
            **changes,
        )

    def _insert(self, position: int, event: int, place: int, side: int) -> None:
        self._inserted.append((position * _SIDES + side, event, place))


def find_spans(trace: MemoryTrace) -> list[Span]:
    """The phases in order. A step ends where the next begins, which is before its first phase: its batch is copied."""
    firsts = [first for first, _ in trace.phases]
    spans = []
    for (first, phase), following in zip(trace.phases, [*firsts[1:], len(trace.events)], strict=True):
        end = trace.second if first < trace.second < following else following
        spans.append(Span(phase, first, end))
    return spans


def find_lives(trace: MemoryTrace) -> tuple[Integers, Integers]:
    """Of each block, the events that allocate and free it; -1 and the number of events if none does."""
    born = np.full(len(trace.sizes), -1, dtype=np.int64)
    died = np.full(len(trace.sizes), len(trace.events), dtype=np.int64)
    places = np.arange(len(trace.events))
    allocates = trace.events > 0
    born[trace.events[allocates] - 1] = places[allocates]
    died[-trace.events[~allocates] - 1] = places[~allocates]
    return born, died


def find_layers(trace: MemoryTrace) -> Integers:
    """Of each owner, the place of its repeated layer in ``trace.repeated``; -1 if it is part of none."""
    places = {name: place for place, name in enumerate(trace.repeated)}
    known: dict[str, int] = {}
    for _operator, layer in trace.owner_names:
        if layer not in known:
            known[layer] = next((places[each] for each in _list_parents(layer) if each in places), -1)
    return np.array([known[layer] for _, layer in trace.owner_names], dtype=np.int64)


def _list_parents(layer: str) -> Iterator[str]:
    while layer:
        yield layer
        layer = layer.rpartition(".")[0]
