"""Runs real commands with the sampler: they behave as without it, and leave a record."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foretell.core.run import RUN_DIRECTORY, SAMPLE
from foretell.measure import job_recorder as recorder
from foretell.measure.child_process import Child
from foretell.measure.gpus import GpuSample
from foretell.measure.job_recorder import JobRecorder, Sample, Series, find_sample, write_sample

MEGABYTE = 2**20
PYTHON = (sys.executable, "-I", "-S", "-c")
FORK = "import os, time\ndef fork(work):\n    pid = os.fork()\n    if not pid: work(); os._exit(0)\n    return pid\n"
HUMP = """
import json, os, time
def wait_for(seen):
    while not (os.path.exists("sample.json") and seen(json.load(open("sample.json"))["memory"][-1][1] >> 20)):
        time.sleep(0.01)
wait_for(lambda size: size < 50)
x = b"1" * (300 << 20)
wait_for(lambda size: size > 300)
del x
wait_for(lambda size: size < 50)
"""
LISTEN = "trap 'echo got it; exit 7' {name}; echo ready; while :; do sleep 0.05; done"


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    def start(*words: str, **options: Any) -> subprocess.Popen[str]:
        environment = os.environ | {RUN_DIRECTORY: str(tmp_path)} | options.pop("environment", {})
        words = (sys.executable, "-m", "foretell.measure.job_sampler", *words)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        # In its own session, so that a terminal sends no signals to it.
        return subprocess.Popen(words, env=environment, text=True, start_new_session=True, **pipes)

    return start


@pytest.fixture
def run(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: str, text: str | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        process = start(*words, **options, **({} if text is None else {"stdin": subprocess.PIPE}))
        out, err = process.communicate(text, timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    return run


@pytest.fixture
def keep_handlers() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def test_input_output_and_environment_of_the_command(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    code = 'cat; echo "$0" "$1" "$WORD" "$PWD"; echo loud >&2; exit 3'
    environment = {"WORD": "a  word", RUN_DIRECTORY: str(tmp_path)}
    done = run("sh", "-c", code, "me", "--", text="given\n", cwd=folder, environment=environment)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"given\nme -- a  word {folder}\n", "loud\n")
    assert find_sample(tmp_path) is not None


@pytest.mark.parametrize(("words", "code"), [(("true",), 0), (("--", "false"), 1), (("sh", "-c", "kill -9 $$"), 137)])
def test_exit_codes(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    assert run(*words).returncode == code
    assert find_sample(tmp_path) is not None


@pytest.mark.parametrize(("word", "code", "saying"), [("no-such-command", 127, "PATH"), ("/", 126, "cannot be run")])
def test_commands_that_cannot_be_run(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, word: str, code: int, saying: str
) -> None:
    done = run(word)
    assert (done.returncode, done.stdout) == (code, "")
    assert repr(word) in done.stderr
    assert saying in done.stderr
    assert not (tmp_path / SAMPLE).exists()


def test_help(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert run("--help").returncode == 0
    done = run()
    assert done.returncode == 2
    assert "Example: python -m foretell.measure.job_sampler" in done.stderr


def test_output_is_appended_in_order(run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_text("before\n")
    with log.open("a") as file:
        run("sh", "-c", "echo one; echo two >&2; echo three", stdout=file, stderr=file)
        file.write("after\n")
    assert log.read_text() == "before\none\ntwo\nthree\nafter\n"


def test_a_reader_that_leaves_early_ends_the_command(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("yes")
    process.stdout.readline()
    process.stdout.close()
    process.stderr.close()
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1"])
def test_signals_are_passed_on(start: Callable[..., subprocess.Popen[str]], tmp_path: Path, name: str) -> None:
    with start("sh", "-c", LISTEN.format(name=name)) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.Signals[f"SIG{name}"])
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (7, "got it\n")
    assert find_sample(tmp_path) is not None


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    code = "trap '' HUP; exec \"$@\""
    sampled = (
        sys.executable,
        "-m",
        "foretell.measure.job_sampler",
        "sh",
        "-c",
        "kill -HUP $PPID; kill -HUP $$; echo here",
    )
    words = ["sh", "-c", code, "sh", *sampled]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "here\n")


def test_ending_the_group_ends_the_command(tmp_path: Path) -> None:
    """As ``timeout`` does in a task's script, on a signal or after its time."""
    code = "sleep 600 & echo $!; wait"
    words = ("timeout", "600", sys.executable, "-m", "foretell.measure.job_sampler", "sh", "-c", code)
    environment = os.environ | {RUN_DIRECTORY: str(tmp_path)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        process.terminate()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert find_sample(tmp_path) is not None
    _await_end(child)


def _await_end(pid: int) -> None:
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and b") Z" not in Path(f"/proc/{pid}/stat").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_memory_over_time(run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    run(*PYTHON, HUMP, cwd=tmp_path)
    sample = find_sample(tmp_path)
    moments, sizes = zip(*sample.memory, strict=True)
    assert list(moments) == sorted(moments)
    assert moments[-1] <= sample.usage.elapsed_s
    assert sizes[0] < 50 * MEGABYTE
    assert 300 * MEGABYTE < max(sizes) < 340 * MEGABYTE
    assert sizes[-1] < 50 * MEGABYTE
    assert sample.usage.peak_memory_bytes >= max(sizes)


def test_children_are_included(run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    code = (
        "def work():\n    x = b'1' * (80 << 20)\n    while time.process_time() < 0.4: pass\n    time.sleep(0.6)\n"
        "fork(work); fork(work); os.wait(); os.wait()"
    )
    run(*PYTHON, FORK + code)
    sample = find_sample(tmp_path)
    assert sample.usage.cpu_s >= 0.8
    assert 160 * MEGABYTE <= max(size for _, size in sample.memory) < 260 * MEGABYTE


def test_the_node_and_the_cost_of_sampling_are_recorded(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    run("true")
    sample = find_sample(tmp_path)
    assert sample.machine.hostname == os.uname().nodename
    assert sample.machine.memory_bytes > 0
    assert "physical_cores" in sample.machine.extra
    assert sample.sampler_cpu_s > 0


def test_a_command_shorter_than_our_start_is_timed(keep_handlers: None) -> None:
    child = Child(["true"], environment=os.environ)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    time.sleep(0.3)
    late_s = time.perf_counter() - child.started_s
    printed: list[float] = []
    child.follow(printed.append)
    child.reap()
    assert 0 < printed[0] < late_s


@pytest.mark.parametrize("victim", ["child", "sampler"])
def test_a_killed_command_leaves_a_record(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, victim: str
) -> None:
    with start("sh", "-c", "echo $$; exec sleep 600", stderr=subprocess.DEVNULL) as process:
        child = int(process.stdout.readline())
        until = time.monotonic() + 30
        while not (tmp_path / SAMPLE).exists():
            assert time.monotonic() < until, "it is to be there while the command runs"
            time.sleep(0.05)
        os.kill(child if victim == "child" else process.pid, signal.SIGKILL)
        code = process.wait(timeout=60)
        if victim == "sampler":
            os.kill(child, signal.SIGKILL)
    assert code == (137 if victim == "child" else -signal.SIGKILL)
    sample = find_sample(tmp_path)
    assert sample.usage.elapsed_s >= 1
    assert sample.memory


def test_the_record_of_an_earlier_attempt_is_removed(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / SAMPLE).write_text("{}")
    with start("sh", "-c", "echo ready; exec sleep 600") as process:
        until = time.monotonic() + 30
        while (tmp_path / SAMPLE).exists() and (tmp_path / SAMPLE).read_text() == "{}":
            assert time.monotonic() < until
            time.sleep(0.01)
        process.terminate()


def test_the_command_runs_without_a_writable_folder(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = run("sh", "-c", "echo here; exit 5", environment={RUN_DIRECTORY: str(tmp_path / "absent")})
    assert (done.returncode, done.stdout) == (5, "here\n")
    assert done.stderr.startswith("foretell sampler: the usage of 'sh' was not recorded: No such file")


def test_the_command_does_not_wait_for_our_imports() -> None:
    """And their memory is not counted as the command's."""
    code = "import sys, foretell.measure.job_sampler as _; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    slow = {"psutil", "subprocess", "dataclasses", "json", "pynvml", "numpy", "pandas", "sqlalchemy", "click", "rich"}
    assert not slow & set(imported)


def test_the_sampler_as_a_whole_imports_nothing_heavy() -> None:
    code = "import sys, foretell.measure.job_recorder; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "pandas", "sqlalchemy", "click", "rich", "sklearn"} & set(imported)


def test_gpus_over_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_handlers: None) -> None:
    """Without a GPU: only the record of samples is tested."""
    monkeypatch.setenv(RUN_DIRECTORY, str(tmp_path))
    monkeypatch.setattr(recorder, "find_gpus", lambda: ["a GPU"])
    monkeypatch.setattr(
        "foretell.measure.process_tree.sample_gpus", lambda gpus, pids: GpuSample(utilisation=0.5, memory_bytes=7)
    )
    JobRecorder(Child(["sleep", "0.3"], environment=os.environ)).record()
    sample = find_sample(tmp_path)
    assert {point[1:] for point in sample.gpus} == {(0.5, 7)}
    assert (sample.usage.gpu_utilisation, sample.usage.gpu_memory_bytes) == (pytest.approx(0.5), 7)


def test_series_stay_short_and_keep_their_peaks() -> None:
    series = Series()
    for second in range(100_000):
        series.add(float(second), 1000 if second == 77_777 else second % 100, 1 if second == 5 else 0)
    assert 100 <= len(series.points) <= 200
    assert (77_777, 1000, 0) in series.points
    assert max(point[2] for point in series.points) == 1
    moments = [point[0] for point in series.points]
    assert moments == sorted(moments)


def test_few_points_are_not_merged() -> None:
    series = Series()
    points = [(0.1 * count, count) for count in range(150)]
    for point in points:
        series.add(*point)
    assert series.points == points


def test_records_survive_writing_and_reading(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    run("true")
    sample = find_sample(tmp_path)
    assert sample is not None
    write_sample(tmp_path, sample)
    assert find_sample(tmp_path) == sample
    assert [path.name for path in tmp_path.iterdir()] == [SAMPLE]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"usage": {}, "memory": [], "gpus": []}', "null"])
def test_an_invalid_record_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / SAMPLE).write_text(text)
    assert find_sample(tmp_path) is None


def test_a_record_without_a_machine_is_read(tmp_path: Path) -> None:
    (tmp_path / SAMPLE).write_text(json.dumps({"usage": {"elapsed_s": 2}, "memory": [[1, 5]], "gpus": []}))
    sample = find_sample(tmp_path)
    assert isinstance(sample, Sample)
    assert (sample.usage.elapsed_s, sample.memory) == (2.0, ((1.0, 5.0),))
