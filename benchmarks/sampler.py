"""What measuring costs a run, and us.

Wall time of a child that computes for about two seconds, and of one with twenty child processes of its own: started
and waited for plainly, against the time :class:`LocalRunner` reports. Both pinned to the same
CPU, in turns, the median of each. Beside it the CPU time all of Foretell's threads took, as a share of a core.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from foretell.entities.run import Launch, RunSpec
from foretell.runners.local import LocalRunner

_TURNS = 6
_COMPUTE = "n = {rounds}\nwhile n: n -= 1\n"
_ONE = (sys.executable, "-I", "-S", "-c", _COMPUTE.format(rounds=30_000_000))
_MANY = (
    sys.executable, "-I", "-S", "-c",
    "import subprocess, sys\n"
    f"words = [sys.executable, '-I', '-S', '-c', {_COMPUTE.format(rounds=1_700_000)!r}]\n"
    "children = [subprocess.Popen(words) for _ in range(20)]\n"
    "assert not any(child.wait() for child in children)\n",
)  # fmt: skip


def run() -> dict[str, float]:
    """Overheads and costs as fractions (0.01 is one percent), wall times in seconds."""
    figures: dict[str, float] = {}
    for name, argv in (("one_process", _ONE), ("twenty_processes", _MANY)):
        pairs = _run_in_turns(argv)
        figures[f"{name}_plain_s"] = statistics.median(pair.plain_s for pair in pairs)
        figures[f"{name}_measured_s"] = statistics.median(pair.measured_s for pair in pairs)
        # Of pairs, because the two of a pair had the same neighbours on the machine.
        figures[f"{name}_wall_overhead"] = statistics.median(pair.measured_s / pair.plain_s - 1 for pair in pairs)
        fastest_s = min(pair.measured_s for pair in pairs), min(pair.plain_s for pair in pairs)
        figures[f"{name}_wall_overhead_of_fastest"] = fastest_s[0] / fastest_s[1] - 1
        figures[f"{name}_cpu_share"] = statistics.median(pair.own_cpu_s / pair.measured_s for pair in pairs)
    return figures


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    plain_s: float
    measured_s: float
    own_cpu_s: float


def _run_in_turns(argv: tuple[str, ...]) -> list[_Pair]:
    cpu = max(os.sched_getaffinity(0))
    with LocalRunner(cpus={cpu}) as runner, tempfile.TemporaryDirectory() as folder:
        return [_run_pair(argv, cpu=cpu, runner=runner, folder=folder, odd=turn % 2 == 1) for turn in range(_TURNS)]


def _run_pair(argv: tuple[str, ...], *, cpu: int, runner: LocalRunner, folder: str, odd: bool) -> _Pair:
    plain_s = _time_plain(argv, cpu=cpu) if odd else None
    own_s = time.process_time()
    measured_s = _time_measured(argv, runner=runner, folder=folder)
    own_s = time.process_time() - own_s
    return _Pair(plain_s=plain_s or _time_plain(argv, cpu=cpu), measured_s=measured_s, own_cpu_s=own_s)


def _time_plain(argv: tuple[str, ...], *, cpu: int) -> float:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    started_s = time.perf_counter()
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
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
