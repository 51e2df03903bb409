"""Reads Linux' /proc in as few system calls as possible, because samplers call it often."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LARGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class Stat:
    """Fields of /proc/PID/stat; ``cpu_s`` includes children that were waited for, ``started_s`` counts from boot."""

    cpu_s: float
    own_cpu_s: float
    started_s: float
    resident_bytes: int
    zombie: bool

    @property
    def waited_cpu_s(self) -> float:
        """CPU time of the children alone."""
        return self.cpu_s - self.own_cpu_s


def find_stat(pid: int) -> Stat | None:
    """Return the state of a process; ``None`` if there is none."""
    text = find_text(f"/proc/{pid}/stat")
    if not text:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before it may contain anything
    return Stat(
        cpu_s=sum(map(int, fields[11:15])) / TICKS_PER_S,
        own_cpu_s=sum(map(int, fields[11:13])) / TICKS_PER_S,
        started_s=int(fields[19]) / TICKS_PER_S,
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
        zombie=fields[0] in b"ZX",
    )


def find_high_water_bytes(pid: int) -> int | None:
    """Return the largest resident memory of this program (since its exec), as counted by the kernel."""
    for line in (find_text(f"/proc/{pid}/status") or b"").splitlines():
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def find_io(pid: int) -> tuple[int, int] | None:
    """Return the bytes read and written so far by a process and the children it has waited for.

    ``rchar`` and ``wchar``, the bytes of the program's calls: unlike bytes of the disk, they do not depend on the
    page cache.
    """
    counts = dict(line.split(b":") for line in (find_text(f"/proc/{pid}/io") or b"").splitlines())
    return (int(counts[b"rchar"]), int(counts[b"wchar"])) if counts else None


def find_children(pid: int) -> list[int] | None:
    """Return the children of all threads of a process; ``None`` if it has ended, or the kernel does not list them."""
    children: list[int] = []
    listed = False
    for thread in _numbers(f"/proc/{pid}/task"):
        text = find_text(f"/proc/{pid}/task/{thread}/children")
        if text is not None:
            listed = True
            children.extend(map(int, text.split()))
    return children if listed else None


def pids() -> Iterator[int]:
    """Return all processes."""
    return _numbers("/proc")


def find_text(path: str) -> bytes | None:
    """Return a file's content; ``None`` if it does not exist or is not readable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return b"".join(iter(lambda: os.read(descriptor, _LARGEST), b""))
    except OSError:  # the process ended between the two calls
        return None
    finally:
        os.close(descriptor)


def _numbers(folder: str) -> Iterator[int]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return iter(())
    return (int(name) for name in names if name.isdigit())
