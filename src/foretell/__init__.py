"""Foretell predicts what a job will need before it runs, and writes the request for it."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


@cache
def _find_homes() -> dict[str, str]:
    """Each public name and its module, as ``__init__.pyi`` lists them: importing us imports no heavy library."""
    import ast

    listed = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
    return {
        name.name: line.module or "" for line in listed.body if isinstance(line, ast.ImportFrom) for name in line.names
    }


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_find_homes())
    if name.startswith("__") or name not in _find_homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_find_homes()[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_find_homes()})
