"""Ends a script's process after its steps: nothing of the script runs after this but its exit handlers."""

import atexit
import contextlib
import gc
import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable
from typing import Any

from foretell.workloads.scripts import script_events

EXIT_S = 5.0  # that the exit handlers of the script may take


def end_process(iterators: Iterable[Any] = ()) -> None:
    """End this process: exit handlers have a few seconds, workers of these loaders and child processes are ended."""
    timer = threading.Timer(EXIT_S, _wait)
    timer.daemon = True
    timer.start()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for iterator in list(iterators):
        with contextlib.suppress(BaseException):
            iterator._shutdown_workers()
    with contextlib.suppress(BaseException):
        for child in multiprocessing.active_children():
            child.terminate()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    with contextlib.suppress(BaseException):
        _flush_files()
    _wait()


def _wait() -> None:
    """Let Foretell end the command, then this process."""
    script_events.report("end")
    script_events.wait_for_end()
    os._exit(0)


def _flush_files() -> None:
    """Write what files hold back, so that a log does not end in the middle of a line."""
    for each in gc.get_objects():
        if type(each) in (io.TextIOWrapper, io.BufferedWriter):  # not isinstance, which asks the object
            with contextlib.suppress(OSError, ValueError):
                each.flush()
