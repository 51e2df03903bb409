"""Samples commands and processes while they run."""

import json
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from foretell.core.errors import RunnerError
from foretell.core.observation import Load, Recorded, Resource, Series
from foretell.core.run import OF_A_RUN, Usage, build_environment
from foretell.core.serialization import from_record, read_warnings, to_record
from foretell.measure.child_process import Child
from foretell.measure.consumption_sampler import INTERVAL_S, ConsumptionSampler
from foretell.measure.gpus import find_gpus

_STDOUT, _STDERR = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The samples, and the total usage; an exit code only for a command (negative: a signal)."""

    recorded: Recorded
    usage: Usage
    exit_code: int | None = None


def watch_command(
    words: Sequence[str],
    *,
    interval_s: float = INTERVAL_S,
    longest_s: float | None = None,
    keep_stdout: bool = True,
) -> Watched:
    """Run a command unchanged and sample it for so long; it continues to its end in any case.

    It has our environment without Foretell's own variables. Its output goes to our stdout; or, without
    ``keep_stdout``, to stderr, if a program reads our stdout. Signals to this process are passed on to it.

    Raises:
        RunnerError: if it cannot be started.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RunnerError("commands can be started from the main thread only; start it yourself and pass its process")
    find_gpus()  # before the command starts, because drivers may take seconds to respond
    with _restored_signals(), _redirected(keep_stdout=keep_stdout) as restore:
        child = _start(words)
        restore()
        ended, took_s = threading.Event(), [0.0]

        def note_end(elapsed_s: float) -> None:
            took_s[0] = elapsed_s
            ended.set()

        child.follow(note_end)
        try:
            recorded = ConsumptionSampler([child.pid], interval_s=interval_s).run(ended, longest_s=longest_s)
        finally:  # even if sampling fails, the command must be waited for
            ended.wait()
            exit_code, spent = child.reap()
    largest_bytes = spent.ru_maxrss * 1024
    usage = replace(
        build_usage(recorded),
        elapsed_s=took_s[0],
        cpu_s=spent.ru_utime + spent.ru_stime,
        peak_memory_bytes=largest_bytes if largest_bytes > child.inherited_bytes else None,
        context_switches=spent.ru_nvcsw + spent.ru_nivcsw,
    )
    return Watched(recorded=recorded, usage=usage, exit_code=exit_code)


def watch_processes(
    pids: Collection[int], *, interval_s: float = INTERVAL_S, longest_s: float | None = None
) -> Watched:
    """Sample processes and their descendants until they end, for so long, or until Ctrl-C.

    Raises:
        NotFoundError: if none of them is there.
    """
    until = threading.Event()
    with _restored_signals():
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, lambda *_: until.set())
        recorded = ConsumptionSampler(pids, interval_s=interval_s).run(until, longest_s=longest_s)
    return Watched(recorded=recorded, usage=build_usage(recorded))


def build_usage(recorded: Recorded) -> Usage:
    """Return the total usage of the sampled time."""
    memory = recorded.gpu_memory
    busy = recorded.gpu_busy
    return Usage(
        elapsed_s=recorded.elapsed_s,
        cpu_s=recorded.cpu.total,
        gpu_utilisation=None if busy is None else busy.total / recorded.elapsed_s,
        gpu_memory_bytes=None if memory is None else int(memory.values.max()),
    )


def _start(words: Sequence[str]) -> Child:
    try:
        return Child(words, environment=build_environment(inherited=OF_A_RUN))
    except FileNotFoundError:
        raise RunnerError(
            f"{words[0]!r} was not found; is it installed, and in a folder of PATH? "
            f"A program in this folder is ./{os.path.basename(words[0])}"  # noqa: PTH119
        ) from None
    except (OSError, ValueError) as exc:
        said = getattr(exc, "strerror", None) or str(exc)
        raise RunnerError(f"{words[0]!r} cannot be run: {said}; it must be a program this machine can execute") from exc


@contextmanager
def _restored_signals() -> Iterator[None]:
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    handlers = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                if handler is not None:  # one that Python did not set
                    signal.signal(number, handler)


@contextmanager
def _redirected(*, keep_stdout: bool) -> Iterator[Callable[[], None]]:
    """Redirect the output of processes started now to stderr, until the returned function is called."""
    if keep_stdout:
        yield lambda: None
        return
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        yield partial(_point, kept)
    finally:
        _point(kept)
        os.close(kept)


def _point(descriptor: int) -> None:
    os.dup2(descriptor, _STDOUT)


_DIGITS = 7  # of a stored rate
_PLAIN = ("started_s", "interval_s", "processes", "gpus", "grain_s", "sampling_cpu_s")


def build_recorded_record(recorded: Recorded) -> dict[str, Any]:
    """Return JSON data; times are stored once, in microseconds, because all series have the same."""
    memory = recorded.gpu_memory
    return {
        **{name: to_record(getattr(recorded, name)) for name in _PLAIN},
        "warnings": to_record(recorded.warnings),
        "load": to_record(recorded.load),
        "times_s": [round(float(time_s), 6) for time_s in recorded.cpu.times_s],
        "series": {resource.value: _list(series) for resource, series in recorded.series.items()},
        "cpu": _list(recorded.cpu),
        "gpu_memory": None if memory is None else _list(memory),
    }


def render_recorded(recorded: Recorded) -> str:
    """Return one line of text."""
    return json.dumps(build_recorded_record(recorded), separators=(",", ":"))


def parse_recorded(text: str) -> Recorded:
    """Return the samples.

    Raises:
        ValueError, TypeError, LookupError: if the text is not valid.
    """
    record = json.loads(text)
    times_s = np.array(record["times_s"], dtype=float)
    memory = record["gpu_memory"]
    plain = {name: record[name] for name in _PLAIN}
    return Recorded(
        **plain,
        warnings=read_warnings(record),
        load=from_record(Load, record["load"]),
        series={Resource(name): _read(values, times_s) for name, values in record["series"].items()},
        cpu=_read(record["cpu"], times_s),
        gpu_memory=None if memory is None else _read(memory, times_s),
    )


def _list(series: Series) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in series.values]


def _read(values: list[float], times_s: Any) -> Series:
    return Series(times_s=times_s, values=np.array(values, dtype=float))
