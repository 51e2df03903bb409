"""Bytes that a process's network sends and receives, as the kernel counts them for its network namespace."""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

_LARGEST = 1 << 16
_RECEIVED, _SENT = 0, 8  # places in a line of net/dev, after the interface's name
_LOOPBACK = b"lo"
_INTERFACES = Path("/sys/class/net")

Counts = tuple[int, int, int, int]  # sent and received by all interfaces but the loopback, the same by it


@dataclass(slots=True)
class NetworkCounter:
    """Reads the counters of the namespaces that some processes are in; a process that has ended takes none away."""

    _descriptors: dict[int, int] = field(default_factory=dict)  # by the namespace's number
    _parts: frozenset[bytes] = frozenset()
    known: bool = False  # whether there is anything to read
    shared: bool = False  # whether one may be the machine's own, in which everybody's bytes are counted

    def add(self, pid: int) -> None:
        """Read the namespace of this process, too. Does nothing if it has ended or is not ours to look at."""
        with contextlib.suppress(OSError):
            own = _find_namespace(pid)
            if own in self._descriptors:
                return
            descriptor = os.open(f"/proc/{pid}/net/dev", os.O_RDONLY | os.O_CLOEXEC)
            if own == _find_namespace(os.getpid()):
                self._parts = _find_parts()
            self.shared |= not own or _find_namespace(1) in (0, own)
            self._descriptors[own] = descriptor
            self.known = True

    def read(self) -> Counts:
        """Bytes so far."""
        sent = received = loop_sent = loop_received = 0
        for descriptor in self._descriptors.values():
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
