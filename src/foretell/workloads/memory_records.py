"""Recorded memory as plain values, checked when it is read: the process that wrote it is the user's."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from foretell.core.memory import Convolution, Integers, MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase

_ARRAYS = ("sizes", "kinds", "owners", "events", "places")
_COUNTS = ("parameters", "outside_bytes", "host_bytes")
_SHAPES = ("images", "filters", "results", "stride", "dilation")
_MOST_BYTES = 2**50  # of a block


def trace_to_record(trace: MemoryTrace) -> dict[str, Any]:
    """A trace as plain values."""
    return {
        "name": trace.name,
        "batch": trace.batch,
        **{name: getattr(trace, name).tolist() for name in _ARRAYS},
        "owner_names": [list(each) for each in trace.owner_names],
        "phases": [[event, phase.value] for event, phase in trace.phases],
        "second": trace.second,
        "settings": dict(trace.settings),
        **{name: getattr(trace, name) for name in _COUNTS},
        "length": trace.length,
        "repeated": list(trace.repeated),
        "heads": list(trace.heads),
        "notes": list(trace.notes),
        "extensions": list(trace.extensions),
        "convolutions": [asdict(each) for each in trace.convolutions],
    }


def trace_from_record(record: Mapping[str, Any]) -> MemoryTrace:
    """The trace of a record of :func:`trace_to_record`.

    Raises:
        AttributeError, KeyError, TypeError, ValueError, OverflowError: The values are not a trace.
    """
    sizes, kinds, owners, events, places = (_read_integers(record[name]) for name in _ARRAYS)
    parameters, outside_bytes, host_bytes = (_read_count(record[name]) for name in _COUNTS)
    trace = MemoryTrace(
        name=str(record["name"]),
        batch=_read_count(record["batch"]),
        sizes=sizes,
        kinds=kinds,
        owners=owners,
        events=events,
        places=places,
        owner_names=tuple((str(operator), str(layer)) for operator, layer in record["owner_names"]),
        phases=tuple((_read_count(event), StepPhase(phase)) for event, phase in record["phases"]),
        second=_read_count(record["second"]),
        settings={str(name): str(value) for name, value in record["settings"].items()},
        parameters=parameters,
        length=None if record["length"] is None else _read_count(record["length"]),
        repeated=tuple(map(str, record["repeated"])),
        heads=tuple(map(_read_count, record["heads"])),
        outside_bytes=outside_bytes,
        host_bytes=host_bytes,
        notes=tuple(map(str, record["notes"])),
        extensions=tuple(map(str, record["extensions"])),
        convolutions=tuple(map(_read_convolution, record["convolutions"])),
    )
    _check(trace)
    return trace


def _read_convolution(record: Mapping[str, Any]) -> Convolution:
    images, filters, results, stride, dilation = (tuple(map(_read_count, record[name])) for name in _SHAPES)
    return Convolution(
        event=_read_count(record["event"]),
        backward=record["backward"] is True,
        images=images,
        filters=filters,
        results=results,
        stride=stride,
        dilation=dilation,
        groups=_read_count(record["groups"]),
        transposed=record["transposed"] is True,
        itemsize=_read_count(record["itemsize"]),
    )


def _check(trace: MemoryTrace) -> None:
    blocks, events, owners = len(trace.sizes), len(trace.events), len(trace.owner_names)
    if len(trace.kinds) != blocks or len(trace.owners) != blocks or len(trace.places) != events:
        raise ValueError("lists of different lengths")
    _check_range(trace.sizes, 0, _MOST_BYTES)
    _check_range(trace.kinds, 0, len(MemoryKind) - 1)
    _check_range(trace.owners, 0, owners - 1)
    _check_range(trace.places, 0, owners - 1)
    _check_range(np.abs(trace.events), 1, blocks)
    marks = [event for event, _ in trace.phases]
    places = [each.event for each in trace.convolutions]
    if marks != sorted(marks) or any(each > events for each in (*marks, *places, trace.second)):
        raise ValueError("phases or steps that are not in the order of the events")
    if any(len(each.images) != len(each.filters) or not each.groups for each in trace.convolutions):
        raise ValueError("shapes that are not those of a convolution")
    _check_lives(trace)


def _check_lives(trace: MemoryTrace) -> None:
    """Each block is allocated at most once, freed at most once, and not before it is allocated."""
    order = np.arange(len(trace.events))
    begin = np.full(len(trace.sizes), -1)
    end = np.full(len(trace.sizes), len(trace.events))
    begin[trace.events[trace.events > 0] - 1] = order[trace.events > 0]
    end[-trace.events[trace.events < 0] - 1] = order[trace.events < 0]
    if len(np.unique(trace.events)) != len(trace.events) or (begin >= end).any():
        raise ValueError("a block that is allocated or freed twice, or freed before it is allocated")


def _check_range(values: Integers, least: int, most: int) -> None:
    if len(values) and (values.min() < least or values.max() > most):
        raise ValueError(f"a value that is not from {least} to {most}")


def _read_integers(values: Any) -> Integers:
    if not isinstance(values, list) or not all(type(each) is int for each in values):
        raise TypeError("not a list of whole numbers")
    return np.array(values, dtype=np.int64)


def _read_count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{value!r} is not a count")
    return value
