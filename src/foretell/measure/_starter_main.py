"""The helper program of :mod:`foretell.measure.starter`; it imports almost nothing, so that it stays small.

Requests and replies are dictionaries in marshal's format after four bytes of length. Each run is a thread: it starts
the command, reports that, waits for its end, reports that, and reaps it on request; until then its pid is not reused.
"""

from __future__ import annotations

import _thread
import marshal
import os
import signal
import sys
import time

TYPE_CHECKING = False  # as mypy reads it; importing typing would double our size
if TYPE_CHECKING:
    from typing import Any

_writing = _thread.allocate_lock()
_starting = _thread.allocate_lock()  # the working directory belongs to the whole process
_reaping: dict[int, _thread.LockType] = {}


def main(requests: int, answers: int) -> None:
    os.set_inheritable(requests, False)
    os.set_inheritable(answers, False)
    while True:
        size = _read(requests, 4)
        request = marshal.loads(_read(requests, int.from_bytes(size, "little")))  # noqa: S302  # from our parent
        key = request["key"]
        if "reap" in request:
            _reaping.pop(key).release()
        else:
            _reaping[key] = _thread.allocate_lock()
            _reaping[key].acquire()
            _thread.start_new_thread(_run, (request, answers, _reaping[key]))


def _run(request: dict[str, Any], answers: int, may_reap: _thread.LockType) -> None:
    key = request["key"]
    try:
        with _starting:
            os.sched_setaffinity(0, request["cpus"])  # of this thread, and so of the processes it starts
            os.chdir(request["directory"])
            started_s = time.perf_counter()
            pid = _spawn(request)
    except (OSError, ValueError, TypeError) as exc:
        _reaping.pop(key)
        _send(answers, {"key": key, "errno": getattr(exc, "errno", 22), "file": getattr(exc, "filename", None)})
        return
    _send(answers, {"key": key, "pid": pid})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    _send(answers, {"key": key, "elapsed_s": time.perf_counter() - started_s})
    may_reap.acquire()
    _, status, spent = os.wait4(pid, 0)
    _send(answers, {"key": key, "status": status, "spent": tuple(spent)})


def _spawn(request: dict[str, Any]) -> int:
    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return os.posix_spawn(
        request["program"],
        request["argv"],
        request["environment"],
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, request["stdout"], append, 0o666),
            (os.POSIX_SPAWN_OPEN, 2, request["stderr"], append, 0o666),
        ],
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores for itself
    )


def _send(answers: int, answer: dict[str, Any]) -> None:
    data = marshal.dumps(answer)
    data = len(data).to_bytes(4, "little") + data
    with _writing:
        while data:
            data = data[os.write(answers, data) :]


def _read(requests: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(requests, size - len(data))
        if not part:
            os._exit(0)  # the parent has ended
        data += part
    return data


main(int(sys.argv[1]), int(sys.argv[2]))
