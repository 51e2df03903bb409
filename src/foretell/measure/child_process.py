"""A command started in the same process group, with the same input, output and signals as this process.

It imports almost nothing, so that the command starts at once and the kernel does not count our memory as the command's.
"""

from __future__ import annotations

import _thread
import os
import resource
import signal
import time

TYPE_CHECKING = False  # as mypy reads it; typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

_PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_TYPED = (signal.SIGINT, signal.SIGQUIT)  # from the keyboard: then all processes in the terminal's foreground get it
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Child:
    """A command, started at once in that environment; signals to this process are then passed on to it.

    Raises:
        OSError: if it cannot be started.
        ValueError: if its arguments cannot be passed to a process.
    """

    def __init__(self, words: Sequence[str], *, environment: Mapping[str, str]) -> None:
        self.words = words
        self.exit_code: int | None = None
        self.warned = False  # after a signal: the end may be near
        self.inherited_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited: then its end would not be reported
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # until there is a child to pass them on to
        try:
            self.started_s = time.perf_counter()
            self.pid = os.posix_spawnp(
                words[0], list(words), environment, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON
            )
            for number in _PASSED_ON:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
                    signal.signal(number, self._pass_on)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._lock = _thread.allocate_lock()
        self._elapsed_s: float | None = None
        self._on_exit: Callable[[float], None] | None = None
        _thread.start_new_thread(self._await_end, ())

    def follow(self, on_exit: Callable[[float], None]) -> Child:
        """Call back at its end with the seconds it took; at once, if it has ended."""
        with self._lock:
            self._on_exit = on_exit
            elapsed_s = self._elapsed_s
        if elapsed_s is not None:
            on_exit(elapsed_s)
        return self

    def reap(self) -> tuple[int, resource.struct_rusage]:
        """Return its exit code (negative: a signal), and the usage of it and the children it waited for."""
        _, status, spent = os.wait4(self.pid, 0)
        self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code, spent

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self.warned = True
        if self.exit_code is None and not (number in _TYPED and _is_typed_at()):
            os.kill(self.pid, number)

    def _await_end(self) -> None:
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return  # reaped already, because there was no callback
        elapsed_s = time.perf_counter() - self.started_s
        with self._lock:
            self._elapsed_s = elapsed_s
            on_exit = self._on_exit
        if on_exit is not None:
            on_exit(elapsed_s)


def _is_typed_at() -> bool:
    """Return whether we are in the foreground of a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
