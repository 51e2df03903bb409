"""A command started as if it had been started without us: same process group, input, output and signals.

It imports next to nothing: the command does not wait for it, nor does the kernel count our memory as the command's.
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
_TYPED = (signal.SIGINT, signal.SIGQUIT)  # by keys: then all of the terminal's foreground have it already
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Child:
    """A command, started at once in that environment; from then on, signals this process gets are passed on to it.

    Raises:
        OSError: if it cannot be started.
        ValueError: if its words cannot be passed to a process.
    """

    def __init__(self, words: Sequence[str], *, environment: Mapping[str, str]) -> None:
        self.words = words
        self.exit_code: int | None = None
        self.warned = False  # once a signal came: the end may be near
        self.inherited_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited: then nobody would be told of its end
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # till there is somebody to pass them on to
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
        """Have its end told, with the seconds it took; at once, if it has ended already."""
        with self._lock:
            self._on_exit = on_exit
            elapsed_s = self._elapsed_s
        if elapsed_s is not None:
            on_exit(elapsed_s)
        return self

    def reap(self) -> tuple[int, resource.struct_rusage]:
        """Its exit code (negative: a signal's number), and what it and the children it waited for have used."""
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
            return  # reaped already, because nobody was there to be told
        elapsed_s = time.perf_counter() - self.started_s
        with self._lock:
            self._elapsed_s = elapsed_s
            on_exit = self._on_exit
        if on_exit is not None:
            on_exit(elapsed_s)


def _is_typed_at() -> bool:
    """Whether we are in the foreground of a terminal."""
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
