"""Keeps captured memory of steps between runs of the benchmarks, outside the repository."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.gpus.captures import FOLDER, hash_code
from foretell.core.memory import Convolution, MemoryTrace
from foretell.core.workload import StepPhase

_ARRAYS = ("sizes", "kinds", "owners", "events", "places")
_SHAPES = ("images", "filters", "results", "stride", "dilation")


def cached(key: str, make: Callable[[], MemoryTrace]) -> MemoryTrace:
    """The trace of that key, captured unless the same code captured it before."""
    path = FOLDER / f"{hashlib.sha256(f'memory {hash_code()} {key}'.encode()).hexdigest()[:24]}.npz"
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError, LookupError, EOFError):
        path.unlink(missing_ok=True)  # left half-written, or by another version
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, facts=_pack(trace), **{name: getattr(trace, name) for name in _ARRAYS})
    unfinished.replace(path)
    return trace


def _pack(trace: MemoryTrace) -> np.ndarray[Any, np.dtype[np.uint8]]:
    facts = {
        "name": trace.name,
        "batch": trace.batch,
        "owner_names": trace.owner_names,
        "phases": [(event, phase.value) for event, phase in trace.phases],
        "second": trace.second,
        "settings": dict(trace.settings),
        "parameters": trace.parameters,
        "repeated": trace.repeated,
        "heads": trace.heads,
        "notes": trace.notes,
        "convolutions": [asdict(each) for each in trace.convolutions],
    }
    return np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)


def _read(path: Any) -> MemoryTrace:
    with np.load(path, allow_pickle=False) as file:
        facts = json.loads(file["facts"].tobytes())
        arrays = {name: file[name] for name in _ARRAYS}
    return MemoryTrace(
        **facts
        | arrays
        | {
            "owner_names": tuple((operator, layer) for operator, layer in facts["owner_names"]),
            "phases": tuple((event, StepPhase(phase)) for event, phase in facts["phases"]),
            "notes": tuple(facts["notes"]),
            "repeated": tuple(facts.get("repeated", ())),
            "heads": tuple(facts.get("heads", ())),
            "convolutions": tuple(_read_convolution(each) for each in facts["convolutions"]),
        }
    )


def _read_convolution(record: dict[str, Any]) -> Convolution:
    """JSON has lists where shapes are tuples."""
    return Convolution(**record | {name: tuple(record[name]) for name in _SHAPES})
