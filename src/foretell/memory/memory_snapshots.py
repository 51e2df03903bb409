"""A recording of PyTorch's allocator, as ``torch.cuda.memory._dump_snapshot`` writes it, compared with a replay.

The format is described at ``torch.cuda.memory._snapshot``: a pickle file of plain dicts, lists, texts and numbers. It
is read without any class, so that a file cannot run code; the same as JSON is read too.
"""

import io
import json
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from foretell.core.errors import ImportDataError
from foretell.core.memory import Integers
from foretell.memory.allocator_settings import AllocatorSettings
from foretell.memory.caching_allocator import EMPTY_CACHE, MAX_REQUEST, AllocatorUsage, replay

_DEFAULT_POOL = (0, 0)
_RESERVED = frozenset({"segment_alloc", "segment_map"})
_RELEASED = frozenset({"segment_free", "segment_unmap"})
_WITH_ADDRESS = frozenset({"alloc", "free_requested", "free_completed", *_RESERVED, *_RELEASED})
_SETTINGS_NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_BAD_PICKLE = (
    pickle.UnpicklingError, AttributeError, EOFError, IndexError, KeyError, MemoryError, OverflowError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
_Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SnapshotTrace:
    """The recorded events of one stream of one device, as :func:`replay` takes them.

    ``recorded_reserved_bytes`` is what was reserved after each event. The first ``blocks_before`` events allocate, in
    the order of their addresses, the blocks that were in use when the recording began; how they came to be is not
    known, so a replay is exact only if there are none. Segments that were released are replayed as an emptied cache.
    ``left_out`` counts the allocations on other streams and in private pools, which are not part of the trace.
    """

    events: Integers
    sizes: Integers
    recorded_reserved_bytes: Integers
    recorded_segments: int
    recorded_out_of_memory: bool
    blocks_before: int
    left_out: int
    stream: int
    settings: AllocatorSettings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SnapshotComparison:
    """What the replay of a recording reserved, next to what was recorded."""

    trace: SnapshotTrace
    usage: AllocatorUsage

    @property
    def recorded_peak_bytes(self) -> int:
        """The most that was reserved from the first recorded event on."""
        return int(self.trace.recorded_reserved_bytes[self.trace.blocks_before :].max(initial=0))

    @property
    def replayed_peak_bytes(self) -> int:
        """The most that the replay reserved after one of the same events."""
        return int(self.usage.reserved_bytes[self.trace.blocks_before :].max(initial=0))

    @property
    def first_difference(self) -> int | None:
        """The first event after which other bytes were reserved than recorded; None if there is none."""
        replayed = self.usage.reserved_bytes
        recorded = self.trace.recorded_reserved_bytes[: len(replayed)]
        different = np.flatnonzero(replayed != recorded)
        different = different[different >= self.trace.blocks_before]
        return int(different[0]) if len(different) else None


def compare_with_replay(trace: SnapshotTrace, settings: AllocatorSettings | None = None) -> SnapshotComparison:
    """Replay the recorded requests, with the recorded settings or others, and compare the reserved memory."""
    return SnapshotComparison(trace=trace, usage=replay(trace.events, trace.sizes, settings or trace.settings))


def read_snapshot_trace(path: Path, *, device: int | None = None, stream: int | None = None) -> SnapshotTrace:
    """The recorded trace in a file: of a device and stream, or of those with the most allocations.

    Raises:
        ImportDataError: The file cannot be read, is not a snapshot, or has no trace.
    """
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise ImportDataError(f"{path} cannot be read: {exc.strerror}") from exc
    snapshot = _parse_json(content, path) if content.lstrip()[:1] == b"{" else _parse_pickle(content, path)
    return build_snapshot_trace(snapshot, device=device, stream=stream, source=str(path))


def build_snapshot_trace(
    snapshot: object, *, device: int | None = None, stream: int | None = None, source: str = "the snapshot"
) -> SnapshotTrace:
    """The trace of what ``torch.cuda.memory._snapshot()`` returns.

    Raises:
        ImportDataError: It is not a snapshot, or has no trace.
    """
    traces = snapshot.get("device_traces") if isinstance(snapshot, Mapping) else None
    if not isinstance(snapshot, Mapping) or not isinstance(traces, Sequence) or isinstance(traces, str):
        _refuse(source, "there are no 'device_traces'")
    device = _choose_device(traces, device, source)
    entries = tuple(_check_entries(traces[device], source))
    stream = _choose_stream(entries, source) if stream is None else stream
    segments = [
        segment
        for segment in _get_sequence(snapshot, "segments", source)
        if segment.get("device", device) == device and _is_of(segment, stream, pool="segment_pool_id")
    ]
    for segment in segments:
        _check_numbers(segment, ("address", "total_size"), "a segment", source)
    builder = _TraceBuilder(source, free_action=_choose_free_action(entries))
    for entry in entries:
        if _is_of(entry, stream):
            builder.add(entry)
    builder.add_blocks_in_use(segments)
    return builder.build(
        reserved_at_end=sum(segment["total_size"] for segment in segments),
        left_out=sum(entry["action"] == "alloc" and not _is_of(entry, stream) for entry in entries),
        stream=stream,
        settings=_read_settings(snapshot, entries),
    )


class _PlainUnpickler(pickle.Unpickler):
    """Reads plain values; a class or a function, which could run code, is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it has {module}.{name}, and a snapshot has no classes")


def _parse_pickle(content: bytes, path: Path) -> object:
    try:
        return _PlainUnpickler(io.BytesIO(content)).load()
    except _BAD_PICKLE as exc:
        _refuse(str(path), f"it is neither a pickle of plain values nor JSON ({exc or type(exc).__name__})", cause=exc)


def _parse_json(content: bytes, path: Path) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as exc:
        _refuse(str(path), f"it is not JSON ({exc})", cause=exc)


def _refuse(source: str, reason: str, *, cause: BaseException | None = None) -> NoReturn:
    raise ImportDataError(
        f"{source} is not a recording of PyTorch's allocator: {reason}. Record one with "
        "torch.cuda.memory._record_memory_history() and write it with torch.cuda.memory._dump_snapshot('FILE.pickle')"
    ) from cause


def _choose_device(traces: Sequence[Any], device: int | None, source: str) -> int:
    lengths = [len(trace) if isinstance(trace, list | tuple) else 0 for trace in traces]
    if not any(lengths):
        _refuse(source, "the trace of every device is empty")
    if device is None:
        return lengths.index(max(lengths))
    if not 0 <= device < len(lengths) or not lengths[device]:
        recorded = ", ".join(str(number) for number, length in enumerate(lengths) if length)
        _refuse(source, f"device {device} has no trace; recorded: {recorded}")
    return device


def _check_entries(trace: Sequence[Any], source: str) -> Iterator[_Entry]:
    for number, entry in enumerate(trace):
        action = entry.get("action") if isinstance(entry, Mapping) else None
        if not isinstance(action, str):
            _refuse(source, f"entry {number} of the trace has no 'action'")
        _check_numbers(entry, ("stream",), f"entry {number} of the trace, {action!r},", source, optional=True)
        if action in _WITH_ADDRESS:
            _check_numbers(entry, ("addr", "size"), f"entry {number} of the trace, {action!r},", source)
        yield entry


def _check_numbers(
    values: Mapping[str, Any], names: Iterable[str], place: str, source: str, *, optional: bool = False
) -> None:
    for name in names:
        value = values.get(name, 0 if optional else None)
        most = MAX_REQUEST if name.endswith("size") else 2**64 - 1
        if not isinstance(value, int) or not 0 <= value <= most:
            _refuse(source, f"{place} has {'no' if value is None else repr(value)[:20] + ' as'} {name!r}")


def _choose_stream(entries: Iterable[_Entry], source: str) -> int:
    requested: Counter[int] = Counter()
    for entry in entries:
        if entry["action"] == "alloc" and _get_pool(entry, "pool_id") == _DEFAULT_POOL:
            requested[entry.get("stream", 0)] += entry["size"]
    if not requested:
        _refuse(source, "its trace has no allocations")
    return requested.most_common(1)[0][0]


def _choose_free_action(entries: Iterable[_Entry]) -> str:
    """A block can be used again when its free is completed; a recording can be made without these entries."""
    return "free_completed" if any(entry["action"] == "free_completed" for entry in entries) else "free_requested"


def _is_of(entry: _Entry, stream: int, *, pool: str = "pool_id") -> bool:
    return bool(entry.get("stream", 0) == stream and _get_pool(entry, pool) == _DEFAULT_POOL)


def _get_pool(entry: _Entry, name: str) -> tuple[Any, ...]:
    pool = entry.get(name, _DEFAULT_POOL)  # a list in JSON; snapshots before PyTorch 2.1 have none
    return tuple(pool) if isinstance(pool, list | tuple) else (pool,)


def _get_sequence(mapping: Mapping[str, Any], name: str, source: str) -> Sequence[Mapping[str, Any]]:
    values = mapping.get(name, ())
    if not isinstance(values, list | tuple) or not all(isinstance(value, Mapping) for value in values):
        _refuse(source, f"its {name!r} are not a list")
    return values


def _read_settings(snapshot: Mapping[str, Any], entries: Iterable[_Entry]) -> AllocatorSettings:
    """The recorded settings; older snapshots have none, and only show whether segments expand."""
    recorded = snapshot.get("allocator_settings")
    if isinstance(recorded, Mapping):
        for name in _SETTINGS_NAMES:
            if isinstance(recorded.get(name), str):
                # Which part of the device's memory was allowed is not recorded, as its memory is not.
                options = recorded[name].split(",")
                kept = (option for option in options if "per_process_memory_fraction" not in option)
                return AllocatorSettings.parse(",".join(kept))
    return AllocatorSettings(expandable_segments=any(entry["action"] == "segment_map" for entry in entries))


class _TraceBuilder:
    """Collects the events of a trace, with the blocks that were in use before it."""

    def __init__(self, source: str, *, free_action: str) -> None:
        self._source = source
        self._free_action = free_action
        self._events: list[int] = []
        self._sizes: list[int] = []
        self._reserved: list[int] = []  # more than at the beginning, after each event
        self._change = 0
        self._segments = 0
        self._out_of_memory = False
        self._in_use: dict[int, int] = {}  # address → block
        self._before: dict[int, int] = {}
        self._allocated: set[int] = set()  # addresses of the trace's own blocks, also of freed ones

    def add(self, entry: _Entry) -> None:
        action, size = entry["action"], entry.get("size", 0)
        if action == "alloc":
            self._allocate(entry["addr"], size)
        elif action == self._free_action:
            self._free(entry["addr"], size)
        elif action in _RESERVED:
            self._change += size
            self._segments += 1
        elif action in _RELEASED:
            self._change -= size
            if not self._events or self._events[-1] != EMPTY_CACHE:
                self._add_event(EMPTY_CACHE)
            self._reserved[-1] = self._change
        elif action == "oom":
            self._out_of_memory = True

    def add_blocks_in_use(self, segments: Iterable[Mapping[str, Any]]) -> None:
        """Blocks that are in use at the end and were not allocated in the trace were in use before it."""
        for segment in segments:
            address = segment["address"]
            for block in _get_sequence(segment, "blocks", self._source):
                _check_numbers(block, ("size",), "a block of a segment", self._source)
                _check_numbers(
                    block, ("address", "requested_size"), "a block of a segment", self._source, optional=True
                )
                start = block.get("address", address)
                address = start + block["size"]
                if str(block.get("state")).startswith("active") and start not in self._in_use:
                    self._before[start] = self._add_block(block.get("requested_size", block["size"]))

    def build(self, *, reserved_at_end: int, left_out: int, stream: int, settings: AllocatorSettings) -> SnapshotTrace:
        before = [self._before[address] + 1 for address in sorted(self._before)]
        at_start = max(reserved_at_end - self._change, 0)
        reserved = [at_start] * len(before) + [at_start + change for change in self._reserved]
        return SnapshotTrace(
            events=np.array(before + self._events, dtype=np.int64),
            sizes=np.array(self._sizes, dtype=np.int64),
            recorded_reserved_bytes=np.array(reserved, dtype=np.int64),
            recorded_segments=self._segments,
            recorded_out_of_memory=self._out_of_memory,
            blocks_before=len(before),
            left_out=left_out,
            stream=stream,
            settings=settings,
        )

    def _add_block(self, size: int) -> int:
        self._sizes.append(size)
        return len(self._sizes) - 1

    def _add_event(self, event: int) -> None:
        self._events.append(event)
        self._reserved.append(self._change)

    def _allocate(self, address: int, size: int) -> None:
        if address in self._in_use:
            _refuse(self._source, f"a block at address {address} is allocated while it is in use")
        self._allocated.add(address)
        self._in_use[address] = self._add_block(size)
        self._add_event(len(self._sizes))

    def _free(self, address: int, size: int) -> None:
        block = self._in_use.pop(address, None)
        if block is None:
            if address in self._allocated or address in self._before:
                _refuse(self._source, f"a block at address {address} is freed while it is not in use")
            block = self._before[address] = self._add_block(size)
        self._add_event(-(block + 1))
