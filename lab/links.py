"""A small cluster on one machine: network namespaces joined by links of a chosen rate."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from foretell.core.errors import RunnerError
from foretell.core.units import render_link

INTERFACE = "eth0"
LOOPBACK = "lo"
_TERMINATING = (signal.SIGHUP, signal.SIGTERM)
_SIGNAL_EXIT_CODE = 128  # as shells: 128 + the signal
_BURST_BYTES = 128 * 1024  # of the token bucket: more than a packet, much less than a gradient
_QUEUE_BYTES = 32 * 1024 * 1024  # of a port: as much as its peers can have in flight, so that no packet is dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Where a process can be started, and its address."""

    address: str
    interface: str
    prefix: tuple[str, ...] = ()  # of a command that runs there
    name: str = ""  # of its namespace


class Links:
    """Nodes, each connected to one switch."""

    def __init__(self, nodes: Sequence[Node], switch: str = "", *, refused: str = "") -> None:
        self.nodes = tuple(nodes)
        self._switch = switch
        self._refused = refused  # why the machine has no namespaces

    @property
    def isolated(self) -> bool:
        """Whether each node has its own network, so that its traffic can be measured separately."""
        return bool(self._switch)

    def set_rate(self, bytes_per_s: float | None) -> None:
        """Limit what each node sends and receives from now on; ``None`` removes the limit.

        Raises:
            RunnerError: These links cannot be limited, or the command fails.
        """
        if bytes_per_s is None and not self._switch:
            return
        if bytes_per_s is None:
            self._shape("root", "pfifo")
            return
        if not self._switch:
            why = f" ({self._refused})" if self._refused else ""
            raise RunnerError(
                f"the link cannot be limited to {render_link(bytes_per_s)}: workers here use the loopback{why}. "
                "Run as root on Linux with iproute2, or leave out --link."
            )
        bits = round(bytes_per_s * 8)
        self._shape("root", "tbf", "rate", f"{bits}bit", "burst", str(_BURST_BYTES), "limit", str(_QUEUE_BYTES))

    def _shape(self, *shape: str) -> None:
        for number, node in enumerate(self.nodes):
            _run("tc", "-n", node.name, "qdisc", "replace", "dev", INTERFACE, *shape)
            _run("tc", "-n", self._switch, "qdisc", "replace", "dev", f"port{number}", *shape)


def can_shape() -> bool:
    """Whether this process may create namespaces and limit links."""
    return os.geteuid() == 0 and all(shutil.which(tool) for tool in ("ip", "tc"))


@contextmanager
def open_links(count: int) -> Iterator[Links]:
    """Create nodes and remove them afterwards; without namespaces, all of them are this machine."""
    switch = f"foretell-{os.getpid()}"
    nodes = [_name_node(switch, number) for number in range(count)]
    here = [Node(address="127.0.0.1", interface=LOOPBACK)] * count
    if not can_shape():
        yield Links(here)
        return
    with _cleaning_up_on_signals():
        try:
            yield _try_build(switch, nodes, here)
        finally:
            for name in (*(node.name for node in nodes), switch):
                with suppress(RunnerError):
                    _run("ip", "netns", "delete", name)


@contextmanager
def _cleaning_up_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into ``SystemExit``, so that namespaces are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _TERMINATING}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, handler)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_SIGNAL_EXIT_CODE + number)


def _name_node(switch: str, number: int) -> Node:
    name = f"{switch}-{number}"
    return Node(address=f"10.213.7.{number + 1}", interface=INTERFACE, prefix=("ip", "netns", "exec", name), name=name)


def _try_build(switch: str, nodes: Sequence[Node], here: Sequence[Node]) -> Links:
    """Nodes in namespaces; on this machine itself where they are refused, as containers do even for root."""
    try:
        _build(switch, nodes)
    except RunnerError as exc:
        return Links(here, refused=str(exc))
    return Links(nodes, switch)


def _build(switch: str, nodes: Sequence[Node]) -> None:
    _run("ip", "netns", "add", switch)
    _run("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
    _run("ip", "-n", switch, "link", "set", "switch", "up")
    for number, node in enumerate(nodes):
        port = f"port{number}"
        _run("ip", "netns", "add", node.name)
        _run("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", node.name)
        _run("ip", "-n", switch, "link", "set", port, "master", "switch", "up")
        _run("ip", "-n", node.name, "address", "add", f"{node.address}/24", "dev", INTERFACE)
        _run("ip", "-n", node.name, "link", "set", INTERFACE, "up")
        _run("ip", "-n", node.name, "link", "set", LOOPBACK, "up")
        # the machine's default may be another: cubic fills a limited link evenly
        with suppress(RunnerError):
            _run(*node.prefix, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=cubic")


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as exc:
        raise RunnerError(f"{command[0]}: not found; install iproute2") from exc
    except subprocess.CalledProcessError as exc:
        raise RunnerError(f"{' '.join(command)}: {exc.stderr.strip() or exc.returncode}") from exc
