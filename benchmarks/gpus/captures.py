"""Keeps captured workloads between runs of the benchmarks, outside the repository."""

import gzip
import hashlib
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from foretell.core import workload as workload_module
from foretell.core.serialization import from_record, to_record
from foretell.core.workload import Gradient, Operator, StepPhase, Workload
from foretell.workloads import api

Captured = TypeVar("Captured")

FOLDER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "foretell-benchmarks"


def cached(key: str, make: Callable[[], Workload]) -> Workload:
    """The workload of that key, captured unless the same code captured it before."""
    return keep(key, make, _pack, _unpack)


def keep(
    key: str,
    make: Callable[[], Captured],
    pack: Callable[[Captured], dict[str, Any]],
    unpack: Callable[[dict[str, Any]], Captured],
) -> Captured:
    """What was captured under that key by the same code, or is captured now; kept as plain values."""
    path = FOLDER / f"{hashlib.sha256(f'{hash_code()} {key}'.encode()).hexdigest()[:24]}.json.gz"
    try:
        return unpack(json.loads(gzip.decompress(path.read_bytes())))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError, LookupError, EOFError):
        path.unlink(missing_ok=True)  # left half-written, or by another version
    captured = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(gzip.compress(json.dumps(pack(captured)).encode(), 5))
    unfinished.replace(path)
    return captured


@cache
def hash_code() -> str:
    """Changes with the code that captures; FORETELL_CAPTURES names a fixed set of captures instead."""
    named = os.environ.get("FORETELL_CAPTURES")
    if named:
        return named
    digest = hashlib.sha256()
    for path in (Path(workload_module.__file__), *sorted(Path(api.__file__).parent.glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _pack(workload: Workload) -> dict[str, Any]:
    """Equal operators once, and the order in which they run."""
    numbers: dict[Operator, int] = {}
    order = [numbers.setdefault(operator, len(numbers)) for operator in workload.operators]
    return {
        "name": workload.name,
        "batch": workload.batch,
        "settings": dict(workload.settings),
        "parameters": workload.parameters,
        "different": [to_record(operator) for operator in numbers],
        "order": order,
        "layers": workload.layers,
        "views": workload.views,
        "sources": workload.sources,
        "gradients": [to_record(gradient) for gradient in workload.gradients],
    }


def _unpack(record: dict[str, Any]) -> Workload:
    different = [_read_operator(each) for each in record["different"]]
    return Workload(
        name=record["name"],
        batch=record["batch"],
        settings=record["settings"],
        parameters=record["parameters"],
        operators=tuple(different[number] for number in record["order"]),
        layers=tuple(record["layers"]),
        views=tuple(record["views"]),
        sources=tuple(tuple(each) for each in record["sources"]),
        gradients=tuple(from_record(Gradient, each) for each in record["gradients"]),
    )


def _read_operator(record: dict[str, Any]) -> Operator:
    """JSON has lists where operators have tuples."""
    return Operator(
        **record
        | {
            "phase": StepPhase(record["phase"]),
            "inputs": tuple(tuple(shape) for shape in record["inputs"]),
            "output": tuple(record["output"]),
            "attributes": tuple(
                (name, tuple(value) if isinstance(value, list) else value) for name, value in record["attributes"]
            ),
        }
    )
