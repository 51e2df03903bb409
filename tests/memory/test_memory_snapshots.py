"""Recordings written by hand in the format that torch.cuda.memory._snapshot documents."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from torch.cuda._memory_viz import trace

from foretell.core.errors import ImportDataError, SpecError
from foretell.memory.allocator_settings import MIB, AllocatorSettings
from foretell.memory.memory_snapshots import build_snapshot_trace, compare_with_replay, read_snapshot_trace

BASE = 0x7F0000000000


def entry(action: str, address: int, size: int, **more: object) -> dict[str, Any]:
    return {"action": action, "addr": BASE + address, "size": size, "stream": 0, "frames": [], **more}


def free(address: int, size: int, **more: object) -> list[dict[str, Any]]:
    return [entry(action, address, size, **more) for action in ("free_requested", "free_completed")]


def segment(address: int, size: int, *blocks: tuple[int, str], **more: object) -> dict[str, Any]:
    return {
        "address": BASE + address,
        "total_size": size,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "device": 0,
        "blocks": [{"size": block, "requested_size": block, "state": state} for block, state in blocks],
        **more,
    }


def make_snapshot(
    entries: list[dict[str, Any]], *segments: dict[str, Any], settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    snapshot = {"segments": list(segments), "device_traces": [entries], "external_annotations": []}
    return snapshot if settings is None else {**snapshot, "allocator_settings": settings}


# Two requests share a segment of 20 MiB, one has its own; the cache is emptied, and a fourth request is made.
TRACE = [
    entry("segment_alloc", 0, 20 * MIB),
    entry("alloc", 0, 2 * MIB),
    entry("alloc", 2 * MIB, 3 * MIB - 100),
    entry("segment_alloc", 64 * MIB, 30 * MIB),
    entry("alloc", 64 * MIB, 29 * MIB),
    *free(64 * MIB, 29 * MIB),
    *free(0, 2 * MIB),
    entry("segment_free", 64 * MIB, 30 * MIB),
    entry("segment_alloc", 128 * MIB, 40 * MIB),
    entry("alloc", 128 * MIB, 40 * MIB),
    {"action": "snapshot", "addr": 0, "size": 43 * MIB, "stream": 0},
]
SEGMENTS = (
    segment(0, 20 * MIB, (2 * MIB, "inactive"), (3 * MIB, "active_allocated"), (15 * MIB, "inactive")),
    segment(128 * MIB, 40 * MIB, (40 * MIB, "active_allocated")),
)


def test_a_trace_is_replayed_to_the_same_segments() -> None:
    recorded = build_snapshot_trace(make_snapshot(TRACE, *SEGMENTS))
    assert recorded.events.tolist() == [1, 2, 3, -3, -1, 0, 4]
    assert recorded.sizes.tolist() == [2 * MIB, 3 * MIB - 100, 29 * MIB, 40 * MIB]
    assert recorded.recorded_reserved_bytes.tolist() == [MIB * size for size in (20, 20, 50, 50, 50, 20, 60)]
    assert (recorded.recorded_segments, recorded.blocks_before, recorded.left_out) == (3, 0, 0)
    comparison = compare_with_replay(recorded)
    assert comparison.first_difference is None
    assert comparison.recorded_peak_bytes == comparison.replayed_peak_bytes == 60 * MIB
    assert comparison.usage.device_allocations == recorded.recorded_segments


def test_the_hand_written_recording_has_the_format_that_pytorch_shows() -> None:
    shown = trace(make_snapshot(TRACE, *SEGMENTS))  # type: ignore[no-untyped-call]
    assert len(re.findall(r"^\w+ = cudaMalloc", shown, re.MULTILINE)) == 3
    assert len(re.findall(r"^cudaFree", shown, re.MULTILINE)) == 1
    assert len(re.findall(r"^# free completed", shown, re.MULTILINE)) == 2


def test_a_difference_is_found_where_it_begins() -> None:
    recorded = build_snapshot_trace(make_snapshot(TRACE, *SEGMENTS))
    comparison = compare_with_replay(recorded, AllocatorSettings(expandable_segments=True))
    assert comparison.first_difference == 2
    assert comparison.replayed_peak_bytes == 60 * MIB


def test_blocks_in_use_before_the_recording_are_allocated_first() -> None:
    recorded = build_snapshot_trace(
        make_snapshot(
            [
                *free(5 * MIB, 4 * MIB),
                entry("segment_alloc", 64 * MIB, 20 * MIB),
                entry("alloc", 64 * MIB, 9 * MIB),
            ],
            segment(0, 20 * MIB, (5 * MIB, "active_allocated"), (15 * MIB, "inactive")),
            segment(64 * MIB, 20 * MIB, (9 * MIB, "active_allocated"), (11 * MIB, "inactive")),
        )
    )
    assert recorded.blocks_before == 2
    assert [recorded.sizes[event - 1] for event in recorded.events[:2]] == [5 * MIB, 4 * MIB]  # by address
    assert recorded.recorded_reserved_bytes.tolist() == [20 * MIB, 20 * MIB, 20 * MIB, 40 * MIB]


def test_other_streams_and_private_pools_are_left_out() -> None:
    others = [
        entry("segment_alloc", 256 * MIB, 2 * MIB, stream=7),
        entry("alloc", 256 * MIB, 512, stream=7),
        entry("segment_alloc", 300 * MIB, 2 * MIB, pool_id=(0, 3)),
        entry("alloc", 300 * MIB, 512, pool_id=(0, 3)),
    ]
    snapshot = make_snapshot([*others, *TRACE], *SEGMENTS, segment(256 * MIB, 2 * MIB, stream=7))
    recorded = build_snapshot_trace(snapshot)
    assert (recorded.stream, recorded.left_out, recorded.recorded_segments) == (0, 2, 3)
    assert compare_with_replay(recorded).first_difference is None
    assert build_snapshot_trace(snapshot, stream=7).sizes.tolist() == [512]


def test_the_longest_trace_is_read_unless_a_device_is_named() -> None:
    snapshot = {"device_traces": [[], TRACE[:2], TRACE], "segments": []}
    assert len(build_snapshot_trace(snapshot).sizes) == 4
    assert len(build_snapshot_trace(snapshot, device=1).sizes) == 1
    with pytest.raises(ImportDataError, match="device 0 has no trace; recorded: 1, 2"):
        build_snapshot_trace(snapshot, device=0)


def test_a_block_is_free_when_its_free_is_completed() -> None:
    late = [TRACE[0], TRACE[1], entry("free_requested", 0, 2 * MIB), TRACE[2], entry("free_completed", 0, 2 * MIB)]
    assert build_snapshot_trace(make_snapshot(late)).events.tolist() == [1, 2, -1]
    without = [taken for taken in TRACE if taken["action"] != "free_completed"]
    assert build_snapshot_trace(make_snapshot(without)).events.tolist() == [1, 2, 3, -3, -1, 0, 4]


def test_expandable_segments_are_recorded_as_mapped() -> None:
    recorded = build_snapshot_trace(
        make_snapshot(
            [
                entry("segment_map", 0, 20 * MIB),
                entry("alloc", 0, 15 * MIB),
                entry("segment_map", 20 * MIB, 20 * MIB),
                entry("alloc", 15 * MIB, 25 * MIB),
                *free(15 * MIB, 25 * MIB),
                entry("segment_unmap", 20 * MIB, 20 * MIB),
            ]
        )
    )
    assert recorded.settings.expandable_segments
    comparison = compare_with_replay(recorded)
    assert comparison.first_difference is None
    assert comparison.usage.reserved_bytes.tolist() == [20 * MIB, 40 * MIB, 40 * MIB, 20 * MIB]


def test_recorded_settings_are_used() -> None:
    text = "max_split_size_mb:64,per_process_memory_fraction:0.5,roundup_power2_divisions:[256:1,>:2]"
    recorded = build_snapshot_trace(make_snapshot(TRACE, settings={"PYTORCH_CUDA_ALLOC_CONF": text}))
    assert recorded.settings == AllocatorSettings.parse("max_split_size_mb:64,roundup_power2_divisions:[256:1,>:2]")
    with pytest.raises(SpecError, match="backend"):
        build_snapshot_trace(make_snapshot(TRACE, settings={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}))


def test_out_of_memory_is_recorded() -> None:
    shortage = {"action": "oom", "size": 90 * MIB, "stream": 0, "device_free": 512}
    assert build_snapshot_trace(make_snapshot([*TRACE, shortage])).recorded_out_of_memory
    assert not build_snapshot_trace(make_snapshot(TRACE)).recorded_out_of_memory


@pytest.mark.parametrize("kind", ["pickle", "json"])
def test_files_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"snapshot.{kind}"
    snapshot = make_snapshot(TRACE, *SEGMENTS)
    path.write_bytes(pickle.dumps(snapshot) if kind == "pickle" else json.dumps(snapshot).encode())
    recorded = read_snapshot_trace(path)
    assert recorded.events.tolist() == build_snapshot_trace(snapshot).events.tolist()
    assert compare_with_replay(recorded).first_difference is None


class _Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_with_a_class_is_refused_and_not_run(tmp_path: Path) -> None:
    path, touched = tmp_path / "snapshot.pickle", tmp_path / "touched"
    path.write_bytes(pickle.dumps({"device_traces": [[_Trap(touched)]]}))
    with pytest.raises(ImportDataError, match="a snapshot has no classes"):
        read_snapshot_trace(path)
    assert not touched.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a snapshot",
        b'{"device_traces": [',
        b'{"device_traces": {}}',
        b"{}",
        pickle.dumps([1, 2]),
        pickle.dumps({"device_traces": [TRACE]})[:-40],
        pickle.dumps({"device_traces": [[]]}),
        pickle.dumps({"device_traces": "ab"}),
        pickle.dumps({"device_traces": [["alloc"]]}),
        pickle.dumps({"device_traces": [[{"action": "alloc", "addr": 3}]]}),
        pickle.dumps({"device_traces": [[{"action": "alloc", "size": 3}]]}),
        pickle.dumps({"device_traces": [[{"action": "alloc", "addr": 3, "size": -3}]]}),
        pickle.dumps({"device_traces": [[{"action": "alloc", "addr": 3, "size": 2**70}]]}),
        pickle.dumps({"device_traces": [[{"action": "alloc", "addr": 3, "size": 3, "stream": []}]]}),
        pickle.dumps({"device_traces": [TRACE], "segments": [3]}),
        pickle.dumps({"device_traces": [TRACE], "segments": [{"stream": 0}]}),
        pickle.dumps({"device_traces": [TRACE], "segments": [{"address": 0, "total_size": 3, "blocks": [{}]}]}),
        pickle.dumps({"device_traces": [[entry("alloc", 0, 1), entry("alloc", 0, 1)]]}),
        pickle.dumps({"device_traces": [[entry("alloc", 0, 1), *free(0, 1), *free(0, 1)]]}),
        pickle.dumps({"device_traces": [[*free(0, 1), *free(0, 1), entry("alloc", 8, 1)]]}),
    ],
)
def test_what_is_not_a_recording_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(content)
    with pytest.raises(
        ImportDataError, match=r"snapshot\.pickle is not a recording of PyTorch's allocator: .* Record one"
    ):
        read_snapshot_trace(path)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ImportDataError, match=r"missing\.pickle cannot be read: No such file"):
        read_snapshot_trace(tmp_path / "missing.pickle")
