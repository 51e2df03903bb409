"""What the processes of a command report to Foretell while they run: lines of JSON in a private folder.

Imports the standard library only, because the Python of the command may have nothing else.
"""

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

FOLDER = "FORETELL_SCRIPT_FOLDER"  # the variable that names the folder
PARENT = "FORETELL_SCRIPT_PARENT"  # the variable with the number of the process that ends the command
END_S = 8.0  # that a process may take to end after the step
EVENTS, RESULT, GPU = "events.jsonl", "result.json", "gpu.json"
PARTIAL_RESULT = "partial-result.json"  # where memory is recorded: what is known if the script takes no further step
MEMORY = "memory"  # this file asks for the memory, which takes two steps, or three
TIMING = "timing.json"  # this file asks for the times of steps, as they run on this machine
LENGTH = 500  # of a message
STACK_SIGNAL = signal.SIGRTMAX - 2  # asks a process of the script where it is

_OWN = str(Path(__file__).parents[2])
_LIBRARIES = tuple({str(Path(os.__file__).parent), sys.prefix, sys.base_prefix})


def find_folder() -> Path | None:
    """The folder of this command; None outside of a recording."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else None


def ask_for_memory(folder: Path) -> None:
    """Let the processes of a command record their memory."""
    (folder / MEMORY).touch()


def is_memory_asked() -> bool:
    """Whether this command records its memory."""
    folder = find_folder()
    return folder is not None and (folder / MEMORY).exists()


@dataclass(frozen=True, slots=True)
class TimingRequest:
    """How long the steps of a command are timed, and when it was started by the clock of the system."""

    steps: int
    seconds: float
    began: float


def ask_for_timing(folder: Path, request: TimingRequest) -> None:
    """Let the processes of a command time their steps instead of recording one."""
    (folder / TIMING).write_text(json.dumps(asdict(request)), encoding="utf-8")


def find_timing() -> TimingRequest | None:
    """What is asked for of the times of this command's steps."""
    folder = find_folder()
    if folder is None or not (folder / TIMING).exists():
        return None
    return TimingRequest(**json.loads((folder / TIMING).read_text(encoding="utf-8")))


def report(kind: str, **facts: object) -> None:
    """Append an event. Lines of several processes do not mix: each is one write."""
    folder = find_folder()
    if folder is None:
        return
    line = json.dumps({"kind": kind, "pid": os.getpid(), **facts}, default=str) + "\n"
    with contextlib.suppress(OSError):
        handle = os.open(folder / EVENTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode("utf-8", "replace"))
        finally:
            os.close(handle)


def read_events(folder: Path) -> list[dict[str, Any]]:
    """The events so far. Lines that are none are left out: the processes are the user's own."""
    try:
        text = (folder / EVENTS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return list(_parse(text.splitlines()))


def _parse(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("kind"), str):
            yield event


def write_once(name: str, record: Mapping[str, Any]) -> bool:
    """Write a file of the folder as a whole, if no process has written it before."""
    part = _write_part(name, record)
    if part is None:
        return False
    try:
        os.link(part, part.with_name(name))
    except FileExistsError:
        return False
    finally:
        part.unlink()
    return True


def write_again(name: str, record: Mapping[str, Any]) -> None:
    """Write a file of the folder as a whole."""
    part = _write_part(name, record)
    if part is not None:
        part.replace(part.with_name(name))


def _write_part(name: str, record: Mapping[str, Any]) -> Path | None:
    folder = find_folder()
    if folder is None:
        return None
    part = folder / f"{name}.{os.getpid()}"
    part.write_text(json.dumps(record), encoding="utf-8")
    return part


def read_result(folder: Path) -> str | None:
    """What was written of the steps of a command; of the first one, if a second was asked for and did not come."""
    for name in (RESULT, PARTIAL_RESULT):
        with contextlib.suppress(OSError):
            return (folder / name).read_text(encoding="utf-8", errors="replace")
    return None


def wait_for_end() -> None:
    """Wait until Foretell ends the command: a shell that started this process must not continue with its next line."""
    parent = os.environ.get(PARENT, "")
    end = time.monotonic() + END_S
    while parent.isdigit() and time.monotonic() < end:
        try:
            os.kill(int(parent), 0)
        except ProcessLookupError:
            return
        except PermissionError:
            pass
        time.sleep(0.05)


def find_error_place(trace: TracebackType | None) -> str:
    """File, line and text of the innermost line of the user's own code in a traceback."""
    frames: list[tuple[str, int]] = []
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return _describe(reversed(frames))


def find_place(frame: FrameType | None) -> str:
    """File, line and text of the innermost line of the user's own code that runs now."""
    frames: list[tuple[str, int]] = []
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return _describe(frames)


def find_stack_place(text: str) -> str:
    """File and line of the innermost line of the user's own code in a stack that ``faulthandler`` wrote."""
    found = re.findall(r'File "(.+)", line (\d+)', text)
    return _describe((filename, int(line)) for filename, line in found)


def is_own_code(filename: str) -> bool:
    """Whether a file is the user's: not Foretell's, not of the standard library, not an installed package."""
    if filename.startswith(("<", _OWN)):
        return False
    path = str(Path(filename).resolve())
    if "site-packages" in path or "dist-packages" in path:
        return False
    return path.startswith(str(Path.cwd())) or not path.startswith(_LIBRARIES)


def _describe(frames: Iterable[tuple[str, int]]) -> str:
    import linecache

    for filename, line in frames:
        if is_own_code(filename):
            text = linecache.getline(filename, line).strip()
            return f"{_shorten_path(filename)}:{line}" + (f" '{text}'" if text else "")
    return ""


def _shorten_path(name: str) -> str:
    path, here = Path(name).resolve(), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
