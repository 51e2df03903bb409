"""Lines of the user's code: where an error comes from, and which line runs now."""

import linecache
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import torch

LENGTH = 300  # of the message of a model's own error
_FOLDER = str(Path(__file__).parent)
_STANDARD = sysconfig.get_path("stdlib")
_PACKAGES = sysconfig.get_path("purelib")
_OWN = (_FOLDER, str(Path(torch.__file__).parent))
_LIBRARIES = (*_OWN, _STANDARD, _PACKAGES, "<")


def find_place(exc: BaseException) -> str:
    """File, line and text of the innermost line of the user's code, or else of a library; empty if there is none."""
    frames = traceback.extract_tb(exc.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    others = [frame for frame in frames if not _is_internal(frame.filename)]
    for frame in (users or others)[-1:]:
        return _describe(frame.filename, frame.lineno, frame.line)
    return ""


def find_line() -> str:
    """File, line and text of the innermost line that runs now: the user's, or else that of a library."""
    found = None
    for frame in _walk(sys._getframe(1)):
        name = frame.f_code.co_filename
        if name.startswith(_FOLDER) and found is not None:
            break  # what called the user's code
        if not name.startswith(_LIBRARIES):
            found = frame
            break
        if found is None and not _is_internal(name):
            found = frame
    if found is None:
        return ""
    name = found.f_code.co_filename
    return _describe(name, found.f_lineno, linecache.getline(name, found.f_lineno).strip())


def _is_internal(name: str) -> bool:
    """Whether a file is one of Foretell's, of PyTorch's or of Python's own."""
    return name.startswith((*_OWN, "<")) or (name.startswith(_STANDARD) and not name.startswith(_PACKAGES))


def _walk(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def shorten(exc: BaseException) -> str:
    """The first line of a message that is not empty, and the next one if it says what."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()] or [type(exc).__name__]
    text = " ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(".")
    return text if len(text) <= LENGTH else text[: LENGTH - 1] + "…"


def _describe(name: str, line: int | None, text: str | None) -> str:
    path = Path(name)
    shown = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    return f"{shown}:{line}" + (f" '{text}'" if text else "")
