"""Nodes of a small cluster on one machine: network namespaces that are joined by links of a chosen rate."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from foretell.errors import RunnerError

INTERFACE = "eth0"
LOOPBACK = "lo"
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

    def __init__(self, nodes: Sequence[Node], switch: str = "") -> None:
        self.nodes = tuple(nodes)
        self._switch = switch

    def set_rate(self, bytes_per_s: float) -> None:
        """What each node may send and receive from now on.

        Raises:
            RunnerError: These links have no rate, or the machine refuses it.
        """
        if not self._switch:
            raise RunnerError(
                f"the link cannot be held to {bytes_per_s:g} bytes/s: processes of one machine talk through memory. "
                "Run as root on Linux, where links between network namespaces can be shaped; or name no link."
            )
        bits = round(bytes_per_s * 8)
        shape = ("root", "tbf", "rate", f"{bits}bit", "burst", str(_BURST_BYTES), "limit", str(_QUEUE_BYTES))
        for number, node in enumerate(self.nodes):
            _run("tc", "-n", node.name, "qdisc", "replace", "dev", INTERFACE, *shape)
            _run("tc", "-n", self._switch, "qdisc", "replace", "dev", f"port{number}", *shape)


def can_shape() -> bool:
    """Whether this process may make namespaces and shape links."""
    return os.geteuid() == 0 and all(shutil.which(tool) for tool in ("ip", "tc"))


@contextmanager
def open_links(count: int) -> Iterator[Links]:
    """Nodes for as long as they are needed; where namespaces cannot be made, all are this machine itself.

    Raises:
        RunnerError: The machine refuses to make them.
    """
    if not can_shape():
        yield Links([Node(address="127.0.0.1", interface=LOOPBACK)] * count)
        return
    switch = f"foretell-{os.getpid()}"
    nodes = [
        Node(
            address=f"10.213.7.{number + 1}",
            interface=INTERFACE,
            prefix=("ip", "netns", "exec", f"{switch}-{number}"),
            name=f"{switch}-{number}",
        )
        for number in range(count)
    ]
    try:
        _build(switch, nodes)
        yield Links(nodes, switch)
    finally:
        for name in (*(node.name for node in nodes), switch):
            with suppress(RunnerError):
                _run("ip", "netns", "delete", name)


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
