"""Places in a step that operators read from, and gradients with the places after which they are ready."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from foretell.core.workload import Gradient
from foretell.workloads.recorder import ACCUMULATE, Record, Recorder

Sources: TypeAlias = tuple[tuple[int, ...], ...]


def build_sources(recorder: Recorder) -> Sources:
    """Of each record: places of those before it whose results it reads."""
    places: dict[int, int] = {}  # of numbers, so far: batches under accumulation repeat them
    read: dict[int, list[int]] = {}
    found = []
    for place, record in enumerate(recorder.records):
        if record.number not in read:
            read[record.number] = list(_find_read(record, places, recorder.joined))
        before = places.get(record.number, 0)
        own = {places[number] for number in read[record.number]}
        if record.kind == ACCUMULATE:  # on the sum of the batch before
            own = {max(each, before) for each in own}
        found.append(tuple(sorted(own)))
        places[record.number] = place
    return tuple(found)


def _find_read(record: Record, places: Mapping[int, int], joined: Mapping[int, int]) -> Iterator[int]:
    for number in record.sources:
        number = _follow(number, joined)
        if number in places and number != record.number:
            yield number


def _follow(number: int, joined: Mapping[int, int]) -> int:
    while number in joined:
        number = joined[number]
    return number


def build_gradients(recorder: Recorder) -> tuple[Gradient, ...]:
    """In the order in which they are ready: none before the one that is sent ahead of it."""
    places = {record.number: place for place, record in enumerate(recorder.records)}
    known = [
        (each.bytes_, place)
        for each in recorder.gradients.values()
        if (place := places.get(_follow(each.ready, recorder.joined))) is not None
    ]
    ready = accumulate((place for _, place in known), max)
    return tuple(Gradient(bytes_=size, ready=place) for (size, _), place in zip(known, ready, strict=True))


def add_whole_updates(sources: Sources, gradients: Sequence[Gradient], *, first: int, count: int) -> Sources:
    """With updates of all parameters at once put in: the first reads all gradients, what comes after reads it."""
    if not count:
        return sources
    ready = tuple(sorted({each.ready for each in gradients}))
    chain = tuple((place,) for place in range(first, first + count - 1))
    after = (tuple(sorted({_move(each, first, count) for each in own})) for own in sources[first:])
    return (*sources[:first], ready, *chain, *after)


def _move(source: int, first: int, count: int) -> int:
    """Where an update's source is: a gradient comes through the last of those that were put in."""
    return source + count if source >= first else first + count - 1
