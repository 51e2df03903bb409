"""Enters each Python process of a recorded command: notes its files and errors, and waits for PyTorch."""

import faulthandler
import os
import sys
from types import TracebackType
from typing import Any, NoReturn

from foretell.workloads.scripts import script_events
from foretell.workloads.scripts.import_callbacks import call_after_import
from foretell.workloads.scripts.written_files import WRITTEN


def enter() -> None:
    """Prepare this process."""
    script_events.report("python", python=sys.executable)
    WRITTEN.watch()
    previous = sys.excepthook

    def explain(kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
        _report_error(kind, exc, trace)
        previous(kind, exc, trace)

    sys.excepthook = explain
    _watch_exit()
    _install_stack_signal()
    call_after_import("torch", _begin)


def _watch_exit() -> None:
    """Note where the script ends itself: an exit has no traceback."""
    leave = sys.exit

    def note(status: Any = None, /) -> NoReturn:
        script_events.report("exit", place=script_events.find_place(sys._getframe(1)))
        leave(status)

    sys.exit = note


def _report_error(kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
    script_events.report(
        "error",
        type=kind.__name__,
        message=str(exc)[: script_events.LENGTH],
        place=script_events.find_error_place(trace),
        missing=str(exc.filename) if isinstance(exc, FileNotFoundError) else None,
        module=exc.name if isinstance(exc, ImportError) else None,
    )


def _install_stack_signal() -> None:
    """Let Foretell ask where the script is: the stack of the main thread goes to a file."""
    folder = script_events.find_folder()
    if folder is not None:
        file = (folder / f"stack.{os.getpid()}").open("w", encoding="utf-8")
        faulthandler.register(script_events.STACK_SIGNAL, file=file, all_threads=False)


def _begin() -> None:
    timing = script_events.find_timing()
    if timing is not None:
        from foretell.workloads.scripts.timed_session import begin as begin_timing

        begin_timing(timing)
        return
    from foretell.workloads.scripts.host_facts import read_resident_bytes

    occupied = read_resident_bytes()
    from foretell.workloads.scripts.script_session import begin

    begin(occupied)
