"""What measuring costs a run, and us.

Wall time of a child that computes for about two seconds, and of one with twenty child processes of its own: started
and waited for plainly, against the time :class:`LocalRunner` reports. Both pinned to the same CPU, in turns, the
median of each. Also the CPU time that starting, sampling and recording took Foretell's own process, as a share
of a core. The wall times mean something on a quiet machine only.

The same for the sampler that jobs of a scheduler run inside (``job_``): seconds that its start and end add to a job,
and its CPU time from its first second on as a share of a core. It shares the command's CPU, as in a job of one core.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foretell.core.run import RUN_DIRECTORY, Launch, RunSpec
from foretell.measure.job_recorder import find_sample
from foretell.schedulers.local import LocalRunner

_TURNS = 7
_SAMPLER = (sys.executable, "-m", "foretell.measure.job_sampler")
_COMPUTE = "n = {rounds}\nwhile n: n -= 1\n"
_ONE = (sys.executable, "-I", "-S", "-c", _COMPUTE.format(rounds=30_000_000))
_MANY = (
    sys.executable, "-I", "-S", "-c",
    "import subprocess, sys\n"
    f"words = [sys.executable, '-I', '-S', '-c', {_COMPUTE.format(rounds=1_700_000)!r}]\n"
    "children = [subprocess.Popen(words) for _ in range(20)]\n"
    "assert not any(child.wait() for child in children)\n",
)  # fmt: skip
_IDLE_ONE = ("sleep", "10")
_IDLE_MANY = ("sh", "-c", "for i in $(seq 20); do sleep 10 & done; wait")


def run() -> dict[str, float]:
    """Overheads and costs as fractions (0.01 is one percent), wall times in seconds."""
    figures: dict[str, float] = {}
    for name, argv in (("one_process", _ONE), ("twenty_processes", _MANY)):
        turns = _take_turns(argv)
        figures[f"{name}_plain_s"] = statistics.median(turn.plain_s for turn in turns)
        figures[f"{name}_measured_s"] = statistics.median(turn.measured_s for turn in turns)
        figures[f"{name}_wall_overhead"] = statistics.median(turn.measured_s / turn.plain_s - 1 for turn in turns)
        figures[f"{name}_cpu_share"] = statistics.median(turn.own_cpu_s / turn.measured_s for turn in turns)
    return figures | _measure_jobs()


def _measure_jobs() -> dict[str, float]:
    start = _take_job_turns(("true",))
    figures = {
        "job_start_s": statistics.median(turn.measured_s - turn.plain_s for turn in start),
        "job_start_cpu_s": statistics.median(turn.own_cpu_s for turn in start),
    }
    for name, argv, idle in (("one_process", _ONE, _IDLE_ONE), ("twenty_processes", _MANY, _IDLE_MANY)):
        turns = _take_job_turns(argv)
        figures[f"job_{name}_plain_s"] = statistics.median(turn.plain_s for turn in turns)
        figures[f"job_{name}_sampled_s"] = statistics.median(turn.measured_s for turn in turns)
        figures[f"job_{name}_added_s"] = statistics.median(turn.measured_s - turn.plain_s for turn in turns)
        figures[f"job_{name}_cpu_share"] = _measure_share(idle)
    return figures


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """A measured run between two plain ones, whose mean stands against it: all three had the same neighbours."""

    plain_s: float
    measured_s: float
    own_cpu_s: float


def _take_turns(argv: tuple[str, ...]) -> list[_Turn]:
    cpu = max(os.sched_getaffinity(0))
    turns = []
    with LocalRunner(cpus={cpu}) as runner, tempfile.TemporaryDirectory() as folder:
        before_s = _time_plain(argv, cpu=cpu)
        for _ in range(_TURNS):
            own_s = time.process_time()
            measured_s = _time_measured(argv, runner=runner, folder=folder)
            own_s = time.process_time() - own_s
            after_s = _time_plain(argv, cpu=cpu)
            turns.append(_Turn(plain_s=(before_s + after_s) / 2, measured_s=measured_s, own_cpu_s=own_s))
            before_s = after_s
    return turns


def _take_job_turns(argv: tuple[str, ...]) -> list[_Turn]:
    cpu = max(os.sched_getaffinity(0))
    turns = []
    with tempfile.TemporaryDirectory() as folder:
        before_s = _time_plain(argv, cpu=cpu)
        for _ in range(_TURNS):
            measured_s = _time_plain((*_SAMPLER, *argv), cpu=cpu, environment={RUN_DIRECTORY: folder})
            sample = find_sample(Path(folder))
            assert sample is not None
            assert sample.sampler_cpu_s is not None
            after_s = _time_plain(argv, cpu=cpu)
            plain_s = (before_s + after_s) / 2
            turns.append(_Turn(plain_s=plain_s, measured_s=measured_s, own_cpu_s=sample.sampler_cpu_s))
            before_s = after_s
    return turns


def _measure_share(argv: tuple[str, ...]) -> float:
    """CPU time of the sampler between its first record and its last, as a share of a core."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen((*_SAMPLER, *argv), env=os.environ | {RUN_DIRECTORY: folder})
        while (first := find_sample(Path(folder))) is None:
            time.sleep(0.1)
        assert process.wait() == 0
        last = find_sample(Path(folder))
    assert last is not None
    assert last.sampler_cpu_s is not None
    assert first.sampler_cpu_s is not None
    return (last.sampler_cpu_s - first.sampler_cpu_s) / (last.usage.elapsed_s - first.usage.elapsed_s)


def _time_plain(argv: Sequence[str], *, cpu: int, environment: Mapping[str, str] | None = None) -> float:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    started_s = time.perf_counter()
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=os.environ | dict(environment or {}))
    os.sched_setaffinity(0, before)
    _, status, _ = os.wait4(process.pid, 0)
    elapsed_s = time.perf_counter() - started_s
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return elapsed_s


def _time_measured(argv: tuple[str, ...], *, runner: LocalRunner, folder: str) -> float:
    runner.start(RunSpec(app="benchmark", parameters={}), Launch(argv=argv, run_directory=folder))
    (run,) = runner.poll(timeout_s=600)
    assert run.usage is not None
    assert run.exit_code == 0
    return run.usage.elapsed_s
