"""Errors of a model's code in few words: what failed, where, and what to do about it."""

import traceback
from pathlib import Path

import torch

from foretell.errors import WorkloadError
from foretell.workloads.recorder import Recorder

LENGTH = 300  # of a model's own message
_OWN = (str(Path(__file__).parent), str(Path(torch.__file__).parent))
_SIGNS = (
    "cannot be called on meta tensors",
    "Cannot copy out of meta tensor",
    "with Meta tensors",
    "data-dependent",
    "torch.nonzero()",
    "has unknown size",
    "on a meta tensor",
    "numpy() on tensor that requires grad",
    "can't convert meta",
)


def explain(exc: Exception, recorder: Recorder) -> WorkloadError:
    """The error of a step, for its user."""
    if isinstance(exc, WorkloadError):
        return exc
    place = find_place(exc)
    message = shorten(exc)
    if any(sign in str(exc) for sign in _SIGNS):
        return WorkloadError(
            f"{place or 'the model'}: the step depends on a tensor's values, which are not known without running it. "
            "Move it out of forward, or let it depend on shapes alone."
        )
    layer = f" in layer {recorder.layers[-1]!r}" if recorder.layers[-1] else ""
    shapes = ""
    if recorder.failed is not None:
        kind, given = recorder.failed
        shapes = f" ({kind} on {' and '.join(map(str, given))})"
    where = f" at {place}" if place else ""
    return WorkloadError(f"the model failed{layer}{shapes}{where}: {message}. Check --input and the model's arguments.")


def find_place(exc: BaseException) -> str:
    """File, line and text of the innermost line that is neither ours nor the framework's; nothing where all are."""
    frames = traceback.extract_tb(exc.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith((*_OWN, "<"))]
    if not theirs:
        return ""
    frame = theirs[-1]
    return f"{_shorten_path(frame.filename)}:{frame.lineno}" + (f" '{frame.line}'" if frame.line else "")


def shorten(exc: BaseException) -> str:
    """The first line of a message that says something."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    text = (lines or [type(exc).__name__])[0].rstrip(".")
    return text if len(text) <= LENGTH else text[: LENGTH - 1] + "…"


def _shorten_path(name: str) -> str:
    path = Path(name)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
