"""Facts about this machine and its processes."""

import contextlib
import hashlib
import json
import math
import os
import platform
import signal
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path

import psutil

from foretell.core.errors import OutputError
from foretell.core.run import BENCH_VERSION, CACHE, OWNER, RUN_DIRECTORY, RUN_ID, Bench, Machine, Owner
from foretell.core.serialization import from_record, to_record
from foretell.measure.gpus import find_gpus
from foretell.measure.procfs import TICKS_PER_S, find_stat, find_text, pids
from foretell.measure.run_lock import is_run_locked

_LOAD_WINDOW_S = 0.5


def detect_machine() -> Machine:
    """Return what this process may use of this machine; unknown facts stay unset. Never fails."""
    cpus = os.sched_getaffinity(0)
    gpus = find_gpus()
    return Machine(
        hostname=socket.gethostname(),
        cpu_model=find_cpu_model(),
        cores=len(cpus),
        cpu_mhz=_cpu_mhz(),
        memory_bytes=psutil.virtual_memory().total,
        gpu_model=gpus[0].name if gpus else None,
        gpus=len(gpus),
        extra={
            "physical_cores": len(group_cpus(cpus)),
            "architecture": platform.machine(),
            **_find_figures(cores=len(cpus)),
        },
    )


def _find_figures(*, cores: int) -> dict[str, float]:
    bench = find_bench()
    figures = {} if bench is None else bench.figures
    if bench is not None and bench.cores != cores:
        del figures["bench_cores_s"]  # it measures these cores together, not others
    return figures


def find_bench() -> Bench | None:
    """Return the stored benchmark of this machine; ``None`` if there is no valid one. Never fails."""
    with contextlib.suppress(ValueError, TypeError, AttributeError, RuntimeError):  # RuntimeError: no home folder
        bench = from_record(Bench, json.loads(find_text(str(_bench_path())) or b"{}"))
        usable = all(math.isfinite(figure) and figure > 0 for figure in bench.figures.values())
        return bench if usable and bench.bench_version == BENCH_VERSION else None
    return None


def save_bench(bench: Bench) -> None:
    """Store this machine's benchmark for :func:`find_bench`, atomically.

    Raises:
        OutputError: if it cannot be written.
    """
    path = make_bench_folder() / _bench_path().name
    draft = path.with_suffix(f".{os.getpid()}.new")
    try:
        draft.write_text(json.dumps(to_record(bench), indent=1), "utf-8")
        draft.replace(path)
    except OSError as exc:
        raise OutputError(_explain_unwritable(path, exc)) from exc


def make_bench_folder() -> Path:
    """Return the folder of benchmarks, which is created.

    Raises:
        OutputError: if it cannot be created or written to.
    """
    folder = _bench_path().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise OutputError(_explain_unwritable(folder, exc)) from exc
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(_explain_unwritable(folder, PermissionError(0, "not yours to write")))
    return folder


def _explain_unwritable(path: Path, exc: OSError) -> str:
    return f"{path}: cannot be written ({exc.strerror}); name a folder that can in {CACHE}"


def _bench_path() -> Path:
    """Return a path that depends on facts that stay the same after a reboot: machines may share a home folder."""
    facts = [socket.gethostname(), find_cpu_model(), os.cpu_count(), platform.machine()]
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    return _cache_folder() / "machines" / f"{name}.json"


def _cache_folder() -> Path:
    if said := os.environ.get(CACHE):
        return Path(said)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foretell"


def find_cpu_model() -> str:
    """Return the processor's name; empty if unknown."""
    for line in (find_text("/proc/cpuinfo") or b"").decode(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "cpu model", "Model"):
            return value.strip()
    return platform.processor()


def _cpu_mhz() -> float | None:
    with contextlib.suppress(OSError, NotImplementedError, RuntimeError):
        frequency = psutil.cpu_freq()
        return (frequency.max or frequency.current or None) if frequency else None
    return None


def group_cpus(cpus: Collection[int]) -> list[tuple[int, ...]]:
    """Return these CPUs by physical core."""
    groups = {tuple(sorted(_siblings(cpu) & set(cpus))) for cpu in cpus}
    return sorted(groups)


def _siblings(cpu: int) -> set[int]:
    text = find_text(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return {cpu} | set(_parse_cpu_list((text or b"").decode().strip()))


def _parse_cpu_list(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first:
            yield from range(int(first), int(last or first) + 1)


def current_load() -> float:
    """Return the cores that other processes use, of those this process may use; takes half a second.

    Children of this process count as others, so call it before they start.
    """
    before, own_before, started = read_busy_s(), time.process_time(), time.perf_counter()
    time.sleep(_LOAD_WINDOW_S)
    busy, own = read_busy_s() - before, time.process_time() - own_before
    return max(0.0, busy - own) / (time.perf_counter() - started)


def read_busy_s() -> float:
    """Return the seconds since boot in which the CPUs this process may use were busy or stolen."""
    wanted = {f"cpu{cpu}".encode() for cpu in os.sched_getaffinity(0)}
    lines = (line.split() for line in (find_text("/proc/stat") or b"").splitlines())
    return sum(_busy_ticks(fields) for fields in lines if fields and fields[0] in wanted) / TICKS_PER_S


def _busy_ticks(fields: list[bytes]) -> int:
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[1:9])
    return user + nice + system + irq + softirq + steal


def build_owner() -> Owner:
    """Return the identity of this process, by which others can check whether it is alive."""
    return _build_owner(os.getpid())


@cache
def _build_owner(pid: int) -> Owner:  # by pid, so that a forked child has another identity
    stat = find_stat(pid)
    assert stat is not None
    return Owner(
        token=uuid.uuid4().hex, hostname=socket.gethostname(), boot_id=_boot_id(), pid=pid, started_at=stat.started_s
    )


def _boot_id() -> str:
    return (find_text("/proc/sys/kernel/random/boot_id") or b"").decode().strip()


def is_alive(owner: Owner) -> bool | None:
    """Return whether that process is alive; ``None`` if it is on another host."""
    if owner.hostname != socket.gethostname():
        return None
    stat = find_stat(owner.pid)
    return (
        owner.boot_id == _boot_id()
        and stat is not None
        and not stat.zombie
        and abs(stat.started_s - owner.started_at) < 1 / TICKS_PER_S
    )


def kill_leftovers(run_id: str, *, run_directory: str | Path | None = None) -> int:
    """Kill every process that an earlier attempt of this run left; return how many there were.

    They are recognized by their environment. Run ids are the same in every store, so pass the run's directory if
    another store on this machine may make the same run.
    """
    marks = {os.fsencode(f"{RUN_ID}={run_id}")}
    if run_directory is not None:
        marks.add(os.fsencode(f"{RUN_DIRECTORY}={Path(run_directory).absolute()}"))
    return _kill(marks, lambda _: True)


def kill_abandoned(run_id: str, owner: Owner, *, without_lock: bool) -> int:
    """Kill the processes that a dead owner left of this run; return how many there were.

    A store may claim this of any process. So processes are spared if a live process holds the lock of their run
    folder; and, unless ``without_lock``, if their folder has no lock.
    """
    marks = {os.fsencode(f"{RUN_ID}={run_id}"), os.fsencode(f"{OWNER}={owner.token}")}

    def is_abandoned(environment: Collection[bytes]) -> bool:
        is_locked = _is_folder_locked(environment)
        return without_lock if is_locked is None else not is_locked

    return _kill(marks, is_abandoned)


def _is_folder_locked(environment: Collection[bytes]) -> bool | None:
    name = os.fsencode(f"{RUN_DIRECTORY}=")
    folder = next((word.removeprefix(name) for word in environment if word.startswith(name)), None)
    return None if folder is None else is_run_locked(Path(os.fsdecode(folder)))


def _kill(marks: set[bytes], is_left: Callable[[Collection[bytes]], bool]) -> int:
    killed: set[int] = set()
    while found := set(_find_marked(marks, is_left)) - killed:  # again, for processes started meanwhile
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
    return len(killed)


def _find_marked(marks: set[bytes], is_left: Callable[[Collection[bytes]], bool]) -> Iterator[int]:
    for pid in pids():
        environment = set((find_text(f"/proc/{pid}/environ") or b"").split(b"\0"))
        if marks <= environment and not _is_ours(pid) and is_left(environment):
            yield pid


def _is_ours(pid: int) -> bool:
    """Return whether it is this process or an ancestor: Foretell may itself be the command of a run."""
    return pid == os.getpid() or any(parent.pid == pid for parent in psutil.Process().parents())
