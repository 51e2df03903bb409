"""Starts processes through a small helper program, so that their memory is measured exactly.

The kernel counts a parent's memory as its child's (``ru_maxrss``) until the child's exec. Ours is large; the helper's
is a few megabytes. So the exact peak of a run's largest process is known, also for very short runs.
"""

import atexit
import errno
import itertools
import marshal
import os
import queue
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.measure.procfs import find_high_water_bytes

_PROGRAM = Path(__file__).with_name("_starter_main.py")
_PATIENCE_S = 60.0
_getting = threading.Lock()
_starters: "dict[int, Starter]" = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A process to start: arguments, folder, environment, CPUs (``None``: any)."""

    argv: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    stdout: Path
    stderr: Path
    cpus: Collection[int] | None = None


class Started:
    """A started process; it stays a zombie until :meth:`reap`, so that its pid is not reused."""

    def __init__(self, starter: "Starter", key: int, on_exit: Callable[[float], None]) -> None:
        self.pid = 0
        self.started_s = 0.0
        self.inherited_bytes = 0
        self._starter = starter
        self._key = key
        self._on_exit = on_exit
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def take(self, answer: dict[str, Any]) -> None:
        if "elapsed_s" in answer:
            self._on_exit(answer["elapsed_s"])
        else:
            self._answers.put(answer)

    def _next_answer(self) -> dict[str, Any]:
        try:
            return self._answers.get(timeout=_PATIENCE_S)
        except queue.Empty:
            raise OSError(errno.ETIMEDOUT, "the process that starts runs does not respond") from None

    def await_start(self) -> None:
        answer = self._next_answer()
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), answer["file"])
        self.pid = answer["pid"]
        self.started_s = time.perf_counter()  # a little late, so that no limit is applied too early
        self.inherited_bytes = find_high_water_bytes(self._starter.pid) or 0

    def reap(self) -> tuple[int, resource.struct_rusage]:
        """Return its exit code (negative: a signal), and the usage of it and the children it waited for."""
        self._starter.send({"key": self._key, "reap": True})
        answer = self._next_answer()
        if "errno" in answer:
            raise OSError(answer["errno"], "the process that starts runs has ended")
        return os.waitstatus_to_exitcode(answer["status"]), resource.struct_rusage(answer["spent"])


class Starter:
    """The helper program, and the processes that wait for its messages."""

    def __init__(self) -> None:
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        words = [sys.executable, "-I", "-S", str(_PROGRAM), str(requests), str(answers)]
        self._process = subprocess.Popen(
            words,
            pass_fds=(requests, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C does not reach it
        )
        os.close(requests)
        os.close(answers)
        self.pid = self._process.pid
        self._lock = threading.Lock()
        self._keys = itertools.count()
        self._waiting: dict[int, Started] = {}
        self._ended = False
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether it responds; its pipe closes a little before the system reports its end."""
        return not self._ended and self._process.poll() is None

    def close(self) -> None:
        """End the program, if it belongs to this process and not to the one we were forked from."""
        if _starters.get(os.getpid()) is self:
            self._process.kill()  # closing its pipe is not enough: a forked child may hold a copy
            self._process.wait()

    def start(self, command: Command, on_exit: Callable[[float], None]) -> Started:
        """Start a command in its own session; ``on_exit`` gets the seconds it took.

        Raises:
            OSError: if it cannot be started.
            ValueError: if its arguments or environment cannot be passed to a process.
        """
        request = _build_request(command)
        key = next(self._keys)
        started = Started(self, key, on_exit)
        with self._lock:
            if self._ended:  # there would be no reply
                raise OSError(errno.ECHILD, "the process that starts runs has ended")
            self._waiting[key] = started
        self.send({"key": key, **request})
        started.await_start()
        return started

    def send(self, request: dict[str, Any]) -> None:
        data = marshal.dumps(request)
        with self._lock, open(self._requests, "wb", closefd=False) as pipe:  # a pipe has no path
            pipe.write(len(data).to_bytes(4, "little") + data)

    def _listen(self) -> None:
        with open(self._answers, "rb", closefd=False) as pipe:
            while size := pipe.read(4):
                answer = marshal.loads(pipe.read(int.from_bytes(size, "little")))  # noqa: S302  # from our own program
                with self._lock:
                    ended = "errno" in answer or "status" in answer
                    started = self._waiting.pop(answer["key"]) if ended else self._waiting[answer["key"]]
                started.take(answer)
        with self._lock:
            self._ended = True
            waiting = list(self._waiting.values())
        for started in waiting:  # it was killed: no process waits for the runs any more
            started.take({"errno": 10, "file": None})
            started.take({"elapsed_s": 0.0})


def _forget_after_fork() -> None:
    global _getting  # another thread may have held it when we were forked
    _getting = threading.Lock()
    _starters.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def get_starter() -> Starter:
    """Return this process's starter, a new one if it was killed; a forked child has its own."""
    with _getting:
        known = _starters.get(os.getpid())
        if known is None or not known.alive:
            known = _starters[os.getpid()] = Starter()
            atexit.register(known.close)
        return known


def _build_request(command: Command) -> dict[str, Any]:
    environment = dict(command.environment)
    if any("\0" in text for text in (*command.argv, *environment, *environment.values())):
        raise ValueError("an argument or a variable contains a NUL character")
    return {
        "argv": [os.fsencode(word) for word in command.argv],
        "program": os.fsencode(_find_program(command.argv[0], environment.get("PATH"))),
        "environment": {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
        "directory": os.fsencode(command.directory),
        "stdout": os.fsencode(command.stdout.absolute()),
        "stderr": os.fsencode(command.stderr.absolute()),
        "cpus": sorted(command.cpus if command.cpus is not None else os.sched_getaffinity(0)),
    }


def _find_program(word: str, path: str | None) -> str:
    if "/" in word:
        return word  # as it is, from the working directory
    found = shutil.which(word, path=path)
    if found is None:
        raise FileNotFoundError(2, os.strerror(2), word)
    return str(Path(found).absolute())
