"""Commands timed side by side: alternated, medians, one noisy machine for all."""

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence


def time_commands(commands: Mapping[str, Sequence[str]], *, repeats: int) -> dict[str, float]:
    """The median seconds of each command, after one run of each to warm up."""
    return time_calls({name: _runner(command) for name, command in commands.items()}, repeats=repeats)


def time_calls(calls: Mapping[str, Callable[[], object]], *, repeats: int) -> dict[str, float]:
    """The median seconds of each call, after one of each to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            if repeat:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _runner(command: Sequence[str]) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, capture_output=True)
