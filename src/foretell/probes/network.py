"""Bytes that a process's network sends and receives, as the kernel counts them for its network namespace."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_LARGEST = 1 << 16
_RECEIVED, _SENT = 0, 8  # places in a line of net/dev, after the interface's name
_LOOPBACK = b"lo"
_INTERFACES = Path("/sys/class/net")

Counts = tuple[int, int, int, int]  # sent and received by all interfaces but the loopback, the same by it


@dataclass(slots=True)
class NetworkCounter:
    """Reads the counters of the namespaces that some processes are in, from when each came there until it left."""

    _descriptors: dict[int, int] = field(default_factory=dict)  # by the namespace's number
    _counted: Counts = (0, 0, 0, 0)  # in namespaces that were left, less what others had counted when they were entered
    _parts: frozenset[bytes] = frozenset()
    known: bool = False  # whether there is anything to read
    shared: bool = False  # whether one may be the machine's own, in which everybody's bytes are counted

    def follow(self, pids: Iterable[int]) -> None:
        """Read the namespaces that these processes are in now, and no others.

        A process that has ended or is not ours to look at is passed over; where none is left, all stays as it is.
        """
        now = dict(_find_namespaces(pids))
        if not now:
            return
        for left in self._descriptors.keys() - now.keys():
            descriptor = self._descriptors.pop(left)
            self._counted = _add(self._counted, self._read(descriptor))
            os.close(descriptor)
        for entered in now.keys() - self._descriptors.keys():
            self._enter(entered, pid=now[entered])
        self.known = bool(self._descriptors)
        machines = _find_namespace(1)
        self.shared = self.known and (not machines or not self._descriptors.keys().isdisjoint({0, machines}))

    def _enter(self, namespace: int, *, pid: int) -> None:
        with contextlib.suppress(OSError):  # it ended since
            descriptor = os.open(f"/proc/{pid}/net/dev", os.O_RDONLY | os.O_CLOEXEC)
            if namespace == _find_namespace(os.getpid()):
                self._parts = _find_parts()
            self._descriptors[namespace] = descriptor
            self._counted = _add(self._counted, self._read(descriptor), sign=-1)

    def read(self) -> Counts:
        """Bytes so far."""
        total = self._counted
        for descriptor in self._descriptors.values():
            total = _add(total, self._read(descriptor))
        return total

    def _read(self, descriptor: int) -> Counts:
        sent = received = loop_sent = loop_received = 0
        for line in os.pread(descriptor, _LARGEST, 0).splitlines()[2:]:
            name, _, text = line.partition(b":")
            fields = text.split()
            if name.strip() == _LOOPBACK:
                loop_received += int(fields[_RECEIVED])
                loop_sent += int(fields[_SENT])
            elif name.strip() not in self._parts:
                received += int(fields[_RECEIVED])
                sent += int(fields[_SENT])
        return sent, received, loop_sent, loop_received

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()


def _add(counts: Counts, others: Counts, *, sign: int = 1) -> Counts:
    one, two, three, four = (mine + sign * theirs for mine, theirs in zip(counts, others, strict=True))
    return one, two, three, four


def _find_namespaces(pids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Namespaces by their numbers, each with a process in it."""
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield _find_namespace(pid), pid


def _find_namespace(pid: int) -> int:
    """The number of a process's network namespace; 0 if it is not ours to know."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except PermissionError:
        return 0


def _find_parts() -> frozenset[bytes]:
    """Interfaces that are parts of others (of a bond or a bridge), which count the same bytes again."""
    with contextlib.suppress(OSError):
        return frozenset(os.fsencode(each.name) for each in _INTERFACES.iterdir() if (each / "master").exists())
    return frozenset()
