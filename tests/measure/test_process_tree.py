"""Measures processes with known usage."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foretell.core.run import Usage
from foretell.measure import process_tree as process_module
from foretell.measure.gpus import GpuSample
from foretell.measure.process_tree import Command, CpuTotal, Ending, Limits, ProcessProbe
from foretell.measure.procfs import find_high_water_bytes
from foretell.measure.starter import get_starter

MEGABYTE = 2**20


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., ProcessProbe]:
    def start(*words: str, **options: Any) -> ProcessProbe:
        command = Command(
            argv=words,
            directory=tmp_path,
            environment=os.environ,
            stdout=tmp_path / "out",
            stderr=tmp_path / "err",
        )
        return ProcessProbe(command, **options)

    return start


@pytest.fixture
def measure_python(start: Callable[..., ProcessProbe]) -> Callable[..., Usage]:
    def measure_python(code: str, **options: Any) -> Usage:
        measurement = start(sys.executable, "-I", "-S", "-c", code, **options).wait()
        assert measurement.exit_code == 0
        return measurement.usage

    return measure_python


FORK = "import os, time\ndef fork(work):\n    pid = os.fork()\n    if not pid: work(); os._exit(0)\n    return pid\n"


def test_wall_and_cpu_time(measure_python: Callable[..., Usage]) -> None:
    usage = measure_python("import time\nwhile time.process_time() < 0.3: pass\ntime.sleep(0.3)")
    assert usage.elapsed_s >= 0.6
    assert 0.3 <= usage.cpu_s < 0.6


def test_cpu_of_children_that_were_waited_for(measure_python: Callable[..., Usage]) -> None:
    code = "def burn():\n    while time.process_time() < 0.2: pass\nfor _ in range(3): os.waitpid(fork(burn), 0)"
    assert measure_python(FORK + code).cpu_s >= 0.6


def test_cpu_of_children_that_are_not_waited_for(measure_python: Callable[..., Usage]) -> None:
    code = "def burn():\n    while time.process_time() < 0.3: pass\n    time.sleep(9)\nfork(burn)\ntime.sleep(1)"
    assert measure_python(FORK + code).cpu_s >= 0.25


def test_memory_of_a_tree_is_the_sum_of_its_processes(measure_python: Callable[..., Usage]) -> None:
    code = "def fill():\n    x = b'1' * (80 << 20); time.sleep(0.5)\nfork(fill); fork(fill); os.wait(); os.wait()"
    assert 160 * MEGABYTE <= measure_python(FORK + code).peak_memory_bytes < 260 * MEGABYTE


def test_memory_of_a_short_spike_above_our_own_is_exact(measure_python: Callable[..., Usage]) -> None:
    size = 2 * find_high_water_bytes(os.getpid())
    peak = measure_python(f"import time; time.sleep(0.5); x = b'1' * {size}; del x").peak_memory_bytes
    assert size < peak < size + 30 * MEGABYTE


def test_our_own_memory_is_not_the_childs(tmp_path: Path) -> None:
    """A child started by a large process inherits that process's ru_maxrss until its exec."""
    code = f"""
import os
from pathlib import Path
from foretell.measure.process_tree import Command, ProcessProbe
ballast = b"1" * (300 << 20)
out = Path({str(tmp_path)!r}) / "out"
command = Command(argv=("sleep", "0.2"), directory=out.parent, environment=os.environ, stdout=out, stderr=out)
print(ProcessProbe(command).wait().usage.peak_memory_bytes)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(answer.stdout) < 20 * MEGABYTE


def test_bytes_read_and_written_by_the_whole_tree(start: Callable[..., ProcessProbe], tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 3_000_000)
    usage = start("sh", "-c", "cat data > copy; cat copy > /dev/null").wait().usage
    assert 6_000_000 <= usage.read_bytes < 6_300_000
    assert 6_000_000 <= usage.written_bytes < 6_300_000


def test_context_switches(measure_python: Callable[..., Usage]) -> None:
    assert measure_python("import time\nfor _ in range(200): time.sleep(0.0005)").context_switches >= 200


def test_runs_of_a_few_milliseconds_are_measured(start: Callable[..., ProcessProbe]) -> None:
    usage = start("sleep", "0.01").wait().usage
    assert usage.elapsed_s >= 0.01
    assert usage.peak_memory_bytes is None or usage.peak_memory_bytes < 20 * MEGABYTE


def test_time_limit_terminates_first(start: Callable[..., ProcessProbe], tmp_path: Path) -> None:
    measurement = start("sh", "-c", "trap 'echo bye; exit 7' TERM; sleep 60 & wait", limits=Limits(time_s=0.3)).wait()
    assert (measurement.ending, measurement.exit_code) == (Ending.TIME_LIMIT, 7)
    assert (tmp_path / "out").read_text() == "bye\n"


def test_time_limit_then_kills(start: Callable[..., ProcessProbe]) -> None:
    limits = Limits(time_s=0.3, grace_s=0.3)
    measurement = start("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", limits=limits).wait()
    assert (measurement.ending, measurement.exit_code) == (Ending.TIME_LIMIT, -signal.SIGKILL)
    assert measurement.usage.elapsed_s >= 0.6


@pytest.mark.parametrize("limit_s", [1e30, float("inf")])
def test_endless_time_limit(start: Callable[..., ProcessProbe], limit_s: Any) -> None:
    assert start("true", limits=Limits(time_s=limit_s)).wait().ending is Ending.EXITED


def test_memory_limit_counts_the_tree(start: Callable[..., ProcessProbe]) -> None:
    code = FORK + "def fill():\n    x = b'1' * (60 << 20); time.sleep(60)\nfork(fill); fork(fill); time.sleep(60)"
    limits = Limits(memory_bytes=100 * MEGABYTE)
    measurement = start(sys.executable, "-I", "-S", "-c", code, limits=limits).wait()
    assert measurement.ending is Ending.MEMORY_LIMIT
    assert measurement.usage.peak_memory_bytes > 100 * MEGABYTE


def test_the_rest_of_the_group_is_killed_after_the_first_process(
    start: Callable[..., ProcessProbe], tmp_path: Path
) -> None:
    start("sh", "-c", "sleep 600 & echo $!").wait()
    pid = int((tmp_path / "out").read_text())
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and b") Z" not in Path(f"/proc/{pid}/stat").read_bytes():
        assert time.monotonic() < until


def test_kill_after_the_end_does_nothing(start: Callable[..., ProcessProbe]) -> None:
    probe = start("true")
    probe.wait()
    probe.kill()


def test_sampling_stays_within_its_budget(start: Callable[..., ProcessProbe]) -> None:
    measurement = start("sh", "-c", "for i in $(seq 40); do sleep 1.2 & done; wait").wait()
    assert measurement.sampling_s < 0.06, "a large tree is to be looked at less often, not at a higher cost"


def test_the_cpu_total_includes_all_processes(start: Callable[..., ProcessProbe]) -> None:
    cpu_total = CpuTotal()
    measurements = [start("sh", "-c", "seq 100000 > /dev/null", cpu_total=cpu_total).wait() for _ in range(2)]
    assert cpu_total.total_s == pytest.approx(sum(measurement.usage.cpu_s or 0.0 for measurement in measurements))


def test_children_are_found_where_the_kernel_does_not_list_them(
    measure_python: Callable[..., Usage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "find_children", lambda pid: None)
    code = "def fill():\n    x = b'1' * (150 << 20); time.sleep(0.5)\nos.waitpid(fork(fill), 0)"
    assert measure_python(FORK + code).peak_memory_bytes >= 150 * MEGABYTE


def test_gpu_samples_are_weighted_by_duration(
    start: Callable[..., ProcessProbe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU: only the weighted sum is tested."""
    monkeypatch.setattr(process_module, "sample_gpus", lambda gpus, pids: GpuSample(utilisation=0.5, memory_bytes=7))
    usage = start("sleep", "0.2", gpus=["a GPU"]).wait().usage
    assert usage.gpu_utilisation == pytest.approx(0.5)
    assert usage.gpu_memory_bytes == 7


@pytest.mark.parametrize("words", [("no-such-command",), ("/",), ("a\0b",)])
def test_a_command_that_cannot_start_raises_the_error_of_the_system(
    start: Callable[..., ProcessProbe], words: tuple[str, ...]
) -> None:
    with pytest.raises((OSError, ValueError)):
        start(*words)


def test_memory_of_the_shortest_run_of_a_large_parent_is_exact(tmp_path: Path) -> None:
    """Neither too little (too short to be sampled) nor too much (that of the parent)."""
    code = f"""
import os, sys
from pathlib import Path
from foretell.measure.process_tree import Command, ProcessProbe
ballast = b"1" * (300 << 20)
out = Path({str(tmp_path)!r}) / "out"
words = (sys.executable, "-I", "-S", "-c", "x = b'1' * (50 << 20)")
command = Command(argv=words, directory=out.parent, environment=os.environ, stdout=out, stderr=out)
print(*(ProcessProbe(command).wait().usage.peak_memory_bytes for _ in range(5)))
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(50 * MEGABYTE < int(peak) < 70 * MEGABYTE for peak in answer.stdout.split())


def test_runs_of_a_killed_starter_are_reported(start: Callable[..., ProcessProbe]) -> None:
    probe = start("sleep", "30")
    os.kill(get_starter().pid, signal.SIGKILL)
    with pytest.raises(OSError):
        probe.wait()
    assert start("true").wait().exit_code == 0
