"""Measures how long this machine takes for fixed work: on one core, on all cores, in memory and on disk."""

import hashlib
import os
import platform
import socket
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from foretell.core.errors import Mistake, SpecError
from foretell.core.run import BENCH_VERSION, Bench, Machine
from foretell.core.warning import PredictionWarning, build_warning
from foretell.measure.machine import (
    detect_machine,
    find_bench,
    find_cpu_model,
    make_bench_folder,
    read_busy_s,
    save_bench,
)

_BLOCK_BYTES = 1 << 20
_FEWEST_REPEATS = 3
_BUSY_CORES = 0.3  # used by other processes, above which measurements suffer...
_BUSY_SHARE = 0.05  # ...but on a large node some of its cores may be
_LARGEST_SPREAD = 0.1
_NAMES = {"bench_core_s": "one core", "bench_cores_s": "all cores", "bench_memory_s": "memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The amount of work in one repeat. Results of other amounts than :data:`FULL_WORK` are only useful for tests."""

    rounds: int
    array_bytes: int
    sweeps: int
    file_bytes: int


# About three seconds a repeat; three arrays of 64 MB are more than the caches that one core can fill.
FULL_WORK = Work(rounds=50, array_bytes=1 << 26, sweeps=30, file_bytes=1 << 25)


def measure_bench(work: Work = FULL_WORK, *, repeats: int = 5) -> Bench:
    """Return the medians of several repeats of all four kinds of work; a disturbed repeat does not change them."""
    cores = len(os.sched_getaffinity(0))
    tasks = _build_tasks(work, cores=cores)
    for task in tasks.values():
        task()  # warm-up: clock rates rise, libraries load, memory is touched
    busy_s, own_s, started = read_busy_s(), time.process_time(), time.perf_counter()
    rows = [{name: task() for name, task in tasks.items()} for _ in range(repeats)]
    others_s = (read_busy_s() - busy_s) - (time.process_time() - own_s)
    busy_cores = max(0.0, others_s) / (time.perf_counter() - started)
    seconds = {name: [row[name] for row in rows] for name in tasks}
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    spread = {name: compute_spread(values) for name, values in seconds.items() if np.isfinite(medians[name])}
    return Bench(
        bench_version=BENCH_VERSION,
        bench_s=float(np.sqrt(medians["bench_core_s"] * medians["bench_memory_s"])),
        bench_core_s=medians["bench_core_s"],
        bench_cores_s=medians["bench_cores_s"],
        bench_memory_s=medians["bench_memory_s"],
        bench_disk_s=medians["bench_disk_s"] if np.isfinite(medians["bench_disk_s"]) else None,
        spread=spread,
        repeats=repeats,
        busy_cores=busy_cores,
        warnings=list_bench_warnings(busy_cores=busy_cores, cores=cores, spread=spread, repeats=repeats),
        hostname=socket.gethostname(),
        cpu_model=find_cpu_model(),
        cores=cores,
        software=_describe_software(),
        measured_at=datetime.now(UTC),
    )


def compute_spread(values: Sequence[float]) -> float:
    """Return the interquartile range of the values as a share of their median."""
    low, median, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / median)


def list_bench_warnings(
    *, busy_cores: float, cores: int, spread: Mapping[str, float], repeats: int
) -> tuple[PredictionWarning, ...]:
    """Return why the results should not be used. The spread of disks is usual and only shown."""
    found = []
    if busy_cores > max(_BUSY_CORES, _BUSY_SHARE * cores):
        text = f"other processes used {busy_cores:.1f} of {cores} cores"
        found.append(build_warning("busy-machine", text, busy_cores=busy_cores, cores=cores))
    if repeats < _FEWEST_REPEATS:
        text = f"{repeats} repeats are too few to measure their spread; use {_FEWEST_REPEATS} or more"
        found.append(build_warning("few-repeats", text, repeats=repeats, needed=_FEWEST_REPEATS))
    found += [
        build_warning(
            "unsteady-repeats", f"the repeats on {words} differ by {spread[name]:.0%}", figure=name, spread=spread[name]
        )
        for name, words in _NAMES.items()
        if spread[name] > _LARGEST_SPREAD
    ]
    return tuple(found)


def _describe_software() -> str:
    """Return the versions of the software that does the work."""
    versions = {"Python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    return ", ".join(f"{name} {version}" for name, version in (versions | {"zlib": zlib.ZLIB_RUNTIME_VERSION}).items())


def _build_tasks(work: Work, *, cores: int) -> dict[str, Callable[[], float]]:
    compute, memory = _Compute(), _Memory(work.array_bytes)
    return {
        "bench_core_s": lambda: _time(lambda: compute.run(work.rounds)),
        "bench_cores_s": lambda: _time_side_by_side(lambda: compute.run(work.rounds), cores),
        "bench_memory_s": lambda: _time(lambda: memory.run(work.sweeps)),
        "bench_disk_s": lambda: _time_disk(work.file_bytes),
    }


def _time(task: Callable[[], None]) -> float:
    started = time.perf_counter()
    task()
    return time.perf_counter() - started


def _time_side_by_side(task: Callable[[], None], count: int) -> float:
    """Return the seconds until all have ended. Threads suffice: every part of the work is long and releases the GIL."""
    with ThreadPoolExecutor(count) as pool:
        started = time.perf_counter()
        for done in [pool.submit(task) for _ in range(count)]:
            done.result()
        return time.perf_counter() - started


class _Compute:
    """A mix in about equal parts: Fourier transforms, cumulative sums, searches, compression, hashing.

    It does not use work for which some processors have special instructions and others do not (matrix products, SHA),
    nor libraries that start their own threads. Each call takes about a millisecond, in memory that is allocated before.
    """

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self._signals: NDArray[np.complex128] = random.standard_normal((16, 1 << 12)).astype(np.complex128)
        self._values = random.standard_normal((16, 1 << 13))
        self._sorted = np.sort(random.integers(0, 1 << 62, 1 << 16))
        self._keys = random.integers(0, 1 << 62, 1 << 15)
        self._text = random.integers(0, 64, (2, 1 << 20), dtype=np.uint8).min(axis=0).tobytes()

    def run(self, rounds: int) -> None:
        signals, sums, sentence = self._signals.copy(), np.empty_like(self._values), self._text[: 1 << 17]
        for _ in range(rounds):
            for _ in range(8):
                signals = scipy.fft.fft(signals, norm="ortho", overwrite_x=True)
                np.cumsum(self._values, axis=1, out=sums)
            for _ in range(3):
                hashlib.blake2b(self._text).digest()
            np.searchsorted(self._sorted, self._keys)
            zlib.compress(sentence, 6)


class _Memory:
    """Sweeps over arrays larger than the caches, as in STREAM's triad (https://www.cs.virginia.edu/stream/)."""

    def __init__(self, array_bytes: int) -> None:
        self._target, self._left, self._right = (np.ones(array_bytes // 8) for _ in range(3))

    def run(self, sweeps: int) -> None:
        for _ in range(sweeps):
            np.multiply(self._left, 3.0, out=self._target)
            np.add(self._target, self._right, out=self._target)


def _time_disk(size: int) -> float:
    """Return the seconds to write and read a file in the temporary folder; ``nan`` if that fails."""
    block = np.random.default_rng(0).bytes(_BLOCK_BYTES)
    try:
        with tempfile.TemporaryFile(buffering=0) as file:
            started = time.perf_counter()
            for _ in range(size // _BLOCK_BYTES):
                file.write(block)
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # so that it is read from the disk
            file.seek(0)
            while file.read(_BLOCK_BYTES):
                pass
            return time.perf_counter() - started
    except OSError:
        return float("nan")


def bench_machine(*, repeats: int = 5) -> Bench:
    """Measure how fast this machine does fixed work. The result is stored with later runs, unless there are warnings.

    Raises:
        SpecError: if there are no repeats.
        OutputError: if it could not be stored.
    """
    if repeats < 1:
        mistake = Mistake(place="repeats", found=str(repeats), expected="a whole number from 1")
        raise SpecError("options", [mistake])
    make_bench_folder()  # before the measurement, which takes longer than this check
    bench = measure_bench(FULL_WORK, repeats=repeats)
    if not bench.warnings:
        save_bench(bench)
    return bench


def describe_machine() -> tuple[Machine, Bench | None]:
    """Return the facts of this machine that are stored with runs, and its benchmark if there is one."""
    return detect_machine(), find_bench()
