"""Keeps captured memory of steps between runs of the benchmarks, as other captures are kept."""

from collections.abc import Callable

from benchmarks.gpus.captures import keep
from foretell.core.memory import MemoryTrace
from foretell.workloads.memory_records import trace_from_record, trace_to_record


def cached(key: str, make: Callable[[], MemoryTrace]) -> MemoryTrace:
    """The memory of that key, captured unless the same code captured it before."""
    return keep(f"memory {key}", make, trace_to_record, trace_from_record)
