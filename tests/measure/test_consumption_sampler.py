"""Samples small programs with known consumption."""

import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from foretell.core.errors import NotFoundError
from foretell.core.observation import Resource, Series
from foretell.measure import consumption_sampler, counters
from foretell.measure.consumption_sampler import sample
from foretell.measure.counters import LoadWatch, NetworkCounter

pytestmark = pytest.mark.slow

COMPUTE = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"
TALK = """
import socket, time
receiver = socket.socket(type=socket.SOCK_DGRAM)  # nothing is sent twice, however busy the machine is
receiver.bind(("127.0.0.1", 0))
sender = socket.socket(type=socket.SOCK_DGRAM)
time.sleep(0.2)
for _ in range(20):
    sender.sendto(bytes(50_000), receiver.getsockname())
    receiver.recv(50_000)
    time.sleep(0.02)
time.sleep(0.2)
"""


@contextmanager
def running(*words: str, stdin: int | None = None, stdout: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(words, stdin=stdin, stdout=stdout) as process:
        try:
            yield process
        finally:
            process.kill()


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-I", "-S", "-c", code


def area(series: Series) -> float:
    return float(series.values @ np.diff(series.times_s))


def test_all_cpu_time_of_a_process_is_measured_until_it_ends() -> None:
    with running(*python(COMPUTE.format(seconds=0.4))) as process:
        recorded = sample([process.pid], interval_s=0.01)
        process.wait()
    assert area(recorded.cpu) == pytest.approx(0.4, abs=0.1)
    assert recorded.series[Resource.COMPUTE].values.max() < 1.5
    assert Resource.MEMORY not in recorded.series
    assert any("No GPU" in warning.text for warning in recorded.warnings)
    assert recorded.sampling_cpu_s < recorded.elapsed_s


def test_descendants_are_included() -> None:
    child = COMPUTE.format(seconds=0.3)
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-I', '-S', '-c', {child!r}])"
    with running(*python(code)) as process:
        recorded = sample([process.pid])
    assert recorded.processes == 2
    assert area(recorded.cpu) > 0.1  # new children are searched for now and then


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.2])
def test_cpu_time_of_short_children_is_placed_where_it_was_used(seconds: float) -> None:
    child = COMPUTE.format(seconds=seconds)
    run = f"subprocess.run([sys.executable, '-I', '-S', '-c', {child!r}])"
    loop = f"import subprocess, sys\nfor _ in range({int(1 / seconds)}): {run}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with running(*python(loop)) as process:
        recorded = sample([process.pid])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert area(recorded.cpu) == pytest.approx(used_s, rel=0.15)
    assert (
        np.quantile(recorded.cpu.values, 0.95) < 2
    )  # one at a time, and usage that was found late is placed where it was used


def test_it_ends_when_stopped_or_after_a_time() -> None:
    until = threading.Event()
    threading.Timer(0.15, until.set).start()
    with running("sleep", "100") as process:
        stopped = sample([process.pid], until=until)
        timed = sample([process.pid], longest_s=0.1)
    assert stopped.elapsed_s < 10
    assert 0.1 <= timed.elapsed_s < 10
    assert not stopped.cpu.values.any()


def test_earlier_usage_is_not_included() -> None:
    recorded = sample([os.getpid()], longest_s=0.1)
    assert recorded.cpu.values[0] < 5


def test_a_missing_process_is_named() -> None:
    with pytest.raises(NotFoundError, match=f"no process named '{2**22 + 5}'"):
        sample([2**22 + 5])


@contextmanager
def running_in_own_network(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program that runs in its own network namespace."""
    up = "import subprocess\nsubprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)\n"
    with running("unshare", "--net", sys.executable, "-c", up + code) as process:
        wait_for_own_network(process.pid)
        yield process


def wait_for_own_network(pid: int) -> None:
    ours = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{pid}/ns/net").readlink() == ours:
        time.sleep(0.01)


def talk(bytes_: int) -> None:
    """Send something over the loopback of this machine."""
    with socket.socket(type=socket.SOCK_DGRAM) as receiver, socket.socket(type=socket.SOCK_DGRAM) as sender:
        receiver.bind(("127.0.0.1", 0))
        sender.sendto(bytes(bytes_), receiver.getsockname())


@pytest.mark.usefixtures("network_namespaces")
def test_bytes_are_those_of_the_process_network() -> None:
    with running_in_own_network(TALK) as process:
        recorded = sample([process.pid])
    sent, received = (area(recorded.series[each]) for each in (Resource.TRANSMIT, Resource.RECEIVE))
    assert sent == received
    assert 1e6 <= sent < 1.01e6  # with headers
    assert any("loopback" in warning.text for warning in recorded.warnings)


@pytest.mark.usefixtures("network_namespaces")
def test_a_network_counts_from_when_it_is_entered_until_it_is_left() -> None:
    move = ("sh", "-c", "read go; exec unshare --net sleep 100")
    with running(*move, stdin=subprocess.PIPE) as process, closing(NetworkCounter()) as counter:
        counter.follow([process.pid])
        talk(5000)
        in_ours = counter.read()
        assert in_ours[2] >= 5000
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
        wait_for_own_network(process.pid)
        counter.follow([process.pid])
        left = counter.read()
        talk(5000)
        assert counter.read() == left
        assert left[2] >= in_ours[2]


@pytest.mark.usefixtures("network_namespaces")
def test_every_interface_of_many_is_counted() -> None:
    make = "for number in $(seq 100); do ip tuntap add dev t$number mode tap; done; ip link set lo up"
    code = f"import time\n{TALK}\nprint('said', flush=True)\ntime.sleep(100)"
    words = ("unshare", "--net", "sh", "-c", f'{make}; exec "$@"', "sh", sys.executable, "-c", code)
    with running(*words, stdout=subprocess.PIPE) as process, closing(NetworkCounter()) as counter:
        assert process.stdout is not None
        wait_for_own_network(process.pid)
        counter.follow([process.pid])
        process.stdout.readline()
        assert counter.read()[2] >= 1e6
        text = next(iter(counter._open.values()))._read_all()
        assert all(f"t{number}:".encode() in text for number in range(1, 101))


def test_an_unreadable_process_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.getppid()
    monkeypatch.setattr(counters, "_find_namespace", lambda pid: 0 if pid == other else 7)
    with closing(NetworkCounter()) as counter:
        counter.follow([os.getpid(), other])
        assert list(counter._open) == [7]
        counter.follow([other])
        assert list(counter._open) == [0]
        assert counter.shared


def test_counts_are_kept_after_all_processes_ended() -> None:
    with closing(NetworkCounter()) as counter:
        counter.follow([os.getpid()])
        counter.follow([2**22 + 5])
        talk(5000)
        assert counter.known
        assert counter.read()[2] >= 5000


def test_the_network_of_the_machine_is_shared() -> None:
    with closing(NetworkCounter()) as counter:
        counter.follow([1, 2**22 + 5])  # the second has ended
        assert counter.shared == counter.known
        assert len(counter.read()) == 4


@pytest.mark.parametrize(("first", "shared"), [(7, True), (0, True), (8, False)])  # 0: not readable
def test_a_network_that_may_be_that_of_the_machine_is_shared(
    first: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "_find_namespace", lambda pid: first if pid == 1 else 7)
    with closing(NetworkCounter()) as counter:
        counter.follow([os.getpid()])
    assert counter.shared == shared


def test_too_many_samples_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumption_sampler, "_MOST_SAMPLES", 5)
    recorded = sample([os.getpid()], interval_s=0.01)
    assert any("first 0.05 s" in warning.text for warning in recorded.warnings)
    timed = sample([os.getpid()], interval_s=0.01, longest_s=0.02)
    assert not any("first" in warning.text for warning in timed.warnings)


def test_the_loopback_of_the_machine_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(NetworkCounter, "read", lambda _: (0, 0, count := next(moved), count))
    monkeypatch.setattr(counters, "_find_namespace", lambda pid: 7)
    recorded = sample([os.getpid()], longest_s=0.1)
    assert any("loopback" in warning.text for warning in recorded.warnings)
    assert any("bytes of other processes" in warning.text for warning in recorded.warnings)


def test_a_hidden_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(_: Path) -> os.stat_result:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "stat", find_nothing)
    assert counters._find_namespace(1) == 0
    with pytest.raises(FileNotFoundError):
        counters._find_namespace(2)


def test_load_of_other_processes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_MOST_NAMED", 10_000)  # other processes may use more
    with running(*python(COMPUTE.format(seconds=100))) as other:
        watch = LoadWatch.start(os.sched_getaffinity(0))
        while time.clock_gettime((~other.pid << 3) | 2) < 0.4:  # of its own clock, on a machine with any load
            time.sleep(0.05)
        load = watch.finish(job_cpu_s=0.0, job_pids=set())
        as_job = watch.finish(job_cpu_s=0.0, job_pids={other.pid})
    assert load.others > 0.1
    assert any(f"({other.pid})" in name for name in load.by)
    assert not any(f"({other.pid})" in name for name in as_job.by)


def test_short_samples_have_no_load_of_others() -> None:
    with running(*python(COMPUTE.format(seconds=100))):
        load = LoadWatch.start({0}).finish(job_cpu_s=0.0, job_pids=set())
    assert (load.others, load.stolen, load.by, load.disturbs) == (0, 0, {}, False)


def test_compute_is_that_of_used_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(uuid="GPU-1", name="T4", handle=0)
    load = SimpleNamespace(utilisation=0.8, interface=0.3, memory_bytes=5)
    monkeypatch.setattr(consumption_sampler, "find_gpus", lambda: (gpu,))
    monkeypatch.setattr(consumption_sampler, "find_used_gpus", lambda gpus, *, pids: gpus)
    monkeypatch.setattr(consumption_sampler, "read_load", lambda gpus, *, pids: load)
    recorded = sample([os.getpid()], longest_s=0.1)
    assert recorded.gpus == 1
    assert set(recorded.series[Resource.COMPUTE].values) == {0.8}
    assert set(recorded.series[Resource.MEMORY].values) == {0.3}
    assert recorded.gpu_memory is not None
    assert set(recorded.gpu_memory.values) == {5}
    assert not any("No GPU" in warning.text for warning in recorded.warnings)


def test_gpus_without_utilisation_are_not_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(uuid="GPU-1", name="MIG", handle=0)
    monkeypatch.setattr(consumption_sampler, "find_gpus", lambda: (gpu,))
    monkeypatch.setattr(consumption_sampler, "find_used_gpus", lambda gpus, *, pids: gpus)
    monkeypatch.setattr(consumption_sampler, "read_load", lambda gpus, *, pids: None)
    recorded = sample([os.getpid()], longest_s=0.1)
    assert recorded.gpus == 0
    assert any("does not report how busy" in warning.text for warning in recorded.warnings)
    assert not any("No GPU" in warning.text for warning in recorded.warnings)
