"""Nodes of a small cluster on one machine: network namespaces that are joined by links of a chosen rate."""

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
_ENDINGS = (signal.SIGHUP, signal.SIGTERM)
_SIGNALLED = 128  # exit codes, as shells have them
_BURST_BYTES = 128 * 1024  # that may pass at once: more than a packet, much less than a gradient
_QUEUE_BYTES = 32 * 1024 * 1024  # that may wait at a port: as much as its peers have under way, so that nothing is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A place where a process can be started, and how others reach it."""

    address: str
    interface: str
    prefix: tuple[str, ...] = ()  # of the command that is started there
    name: str = ""  # of its namespace


class Links:
    """Nodes, each behind a link to one switch."""

    def __init__(self, nodes: Sequence[Node], switch: str = "", *, refused: str = "") -> None:
        self.nodes = tuple(nodes)
        self._switch = switch
        self._refused = refused  # what the machine said when asked for more

    @property
    def apart(self) -> bool:
        """Whether each node has a network of its own, so that what it moves can be told from what others do."""
        return bool(self._switch)

    def set_rate(self, bytes_per_s: float | None) -> None:
        """What each node may send and receive from now on; without a rate, as much as the machine can.

        Raises:
            RunnerError: These links have no rate, or the machine refuses it.
        """
        if bytes_per_s is None and not self._switch:
            return
        if bytes_per_s is None:
            self._shape("root", "pfifo")
            return
        if not self._switch:
            why = f" ({self._refused})" if self._refused else ""
            raise RunnerError(
                f"the link cannot be held to {render_link(bytes_per_s)}: workers here talk through memory{why}. "
                "Links between network namespaces can be shaped, as root on Linux with iproute2; or name no link."
            )
        bits = round(bytes_per_s * 8)
        self._shape("root", "tbf", "rate", f"{bits}bit", "burst", str(_BURST_BYTES), "limit", str(_QUEUE_BYTES))

    def _shape(self, *shape: str) -> None:
        for number, node in enumerate(self.nodes):
            _run("tc", "-n", node.name, "qdisc", "replace", "dev", INTERFACE, *shape)
            _run("tc", "-n", self._switch, "qdisc", "replace", "dev", f"port{number}", *shape)


def can_shape() -> bool:
    """Whether this process may make namespaces and shape links."""
    return os.geteuid() == 0 and all(shutil.which(tool) for tool in ("ip", "tc"))


@contextmanager
def open_links(count: int) -> Iterator[Links]:
    """Nodes for as long as they are needed; where namespaces cannot be made, all are this machine itself."""
    switch = f"foretell-{os.getpid()}"
    nodes = [_name_node(switch, number) for number in range(count)]
    here = [Node(address="127.0.0.1", interface=LOOPBACK)] * count
    if not can_shape():
        yield Links(here)
        return
    with _ended_in_order():
        try:
            yield _try_build(switch, nodes, here)
        finally:
            for name in (*(node.name for node in nodes), switch):
                with suppress(RunnerError):
                    _run("ip", "netns", "delete", name)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Who is told to end, by a scheduler or as a terminal closes, still takes apart what the machine would keep."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDINGS}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_SIGNALLED + number)


def _name_node(switch: str, number: int) -> Node:
    name = f"{switch}-{number}"
    return Node(address=f"10.213.7.{number + 1}", interface=INTERFACE, prefix=("ip", "netns", "exec", name), name=name)


def _try_build(switch: str, nodes: Sequence[Node], here: Sequence[Node]) -> Links:
    """Nodes apart; those here where the machine refuses them, as containers do even to root."""
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
        # whichever control of congestion the machine prefers: this one fills a shaped link evenly
        with suppress(RunnerError):
            _run(*node.prefix, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=cubic")


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as exc:
        raise RunnerError(f"{command[0]}: not found; install iproute2") from exc
    except subprocess.CalledProcessError as exc:
        raise RunnerError(f"{' '.join(command)}: {exc.stderr.strip() or exc.returncode}") from exc
