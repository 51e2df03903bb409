"""Nodes on one machine: namespaces with limited links where that is allowed, else the machine itself."""

import json
import signal
import subprocess
import sys

import pytest
from lab.links import open_links

from foretell.core.errors import RunnerError
from lab import links as links_module

shapes = pytest.mark.usefixtures("network_namespaces")


@pytest.fixture
def unprivileged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "can_shape", lambda: False)


@pytest.mark.usefixtures("unprivileged")
def test_without_root_all_nodes_are_here() -> None:
    with open_links(3) as links:
        assert not links.isolated
        assert [node.address for node in links.nodes] == ["127.0.0.1"] * 3
        assert not any(node.prefix for node in links.nodes)


@pytest.mark.usefixtures("unprivileged")
def test_without_root_a_rate_is_refused_with_what_to_do() -> None:
    with open_links(2) as links, pytest.raises(RunnerError, match=r"100 Mb/s.*as root on Linux.*or leave out --link"):
        links.set_rate(1.25e7)


def test_where_the_machine_refuses_nodes_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*command: str) -> None:
        raise RunnerError(f"{command[0]}: Operation not permitted")

    monkeypatch.setattr(links_module, "can_shape", lambda: True)
    monkeypatch.setattr(links_module, "_run", refuse)
    with open_links(2) as links:
        assert not links.isolated
        with pytest.raises(RunnerError, match=r"use the loopback \(ip: Operation not permitted\)"):
            links.set_rate(1.25e7)


def test_a_tool_that_is_missing_is_named() -> None:
    with pytest.raises(RunnerError, match="nosuchtool: not found; install iproute2"):
        links_module._run("nosuchtool")


@shapes
def test_each_node_has_a_network_of_its_own_for_a_while() -> None:
    with open_links(2) as links:
        names = [node.name for node in links.nodes]
        assert links.isolated
        assert set(names) <= _list_namespaces()
        answer = subprocess.run([*links.nodes[0].prefix, "ip", "-j", "address"], capture_output=True, check=True)
        addresses = [one["local"] for each in json.loads(answer.stdout) for one in each["addr_info"]]
        assert links.nodes[0].address in addresses
        assert links.nodes[1].address not in addresses
    assert not set(names) & _list_namespaces()


@shapes
def test_a_link_is_held_to_its_rate_both_ways_and_to_another_later() -> None:
    with open_links(2) as links:
        for bytes_per_s in (1.25e6, 2.5e7):
            links.set_rate(bytes_per_s)
            (switch,) = {node.name.rpartition("-")[0] for node in links.nodes}
            for namespace, interface in ((links.nodes[1].name, "eth0"), (switch, "port1")):
                assert _find_rate(namespace, interface) == bytes_per_s
        links.set_rate(None)
        shown = subprocess.run(["tc", "-n", switch, "qdisc", "show"], check=True, capture_output=True, text=True).stdout
        assert "tbf" not in shown


@shapes
def test_nothing_is_left_after_an_error() -> None:
    names: set[str] = set()
    with pytest.raises(KeyError):
        _fail_with_links(names)
    assert len(names) == 2
    assert not names & _list_namespaces()


@shapes
def test_nothing_is_left_after_a_signal() -> None:
    code = "import time; from lab.links import open_links\nwith open_links(1): print('.'); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        names = {f"foretell-{process.pid}", f"foretell-{process.pid}-0"}
        assert names <= _list_namespaces()
        process.terminate()
        assert process.wait() == 128 + signal.SIGTERM
    assert not names & _list_namespaces()


def _fail_with_links(names: set[str]) -> None:
    with open_links(2) as links:
        names |= {node.name for node in links.nodes}
        raise KeyError


def _list_namespaces() -> set[str]:
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines()}


def _find_rate(namespace: str, interface: str) -> float:
    """Bytes a second."""
    command = ["tc", "-n", namespace, "-j", "qdisc", "show", "dev", interface]
    (shape,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert shape["kind"] == "tbf"
    return float(shape["options"]["rate"])
