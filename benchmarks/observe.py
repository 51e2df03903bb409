"""The accuracy and the cost of ``foretell observe``.

``no_cycle_``: the share of series without a cycle where it finds none (goal: 0.98): shuffled values of cycles,
constants with and without noise, random walks, autocorrelated noise. ``cycle_``: of cycles with noise (periods of 6
to 100 samples, bursts in 0.1 to 0.9 of them, noise up to 20 % of the height, jitter up to 4 % of the period, either
part two samples or longer), the share that is found, whose burst and idle time are right within one sample, whose
amount within 3 %; and the medians of these errors. ``short_``: the same with bursts or idle times shorter than two
samples. All series have 1,500 samples; the seed is fixed.

``job_``: wall time of a child that computes for about two seconds, run without and with sampling every 20 ms, in
turns. Reported are the median of the ratios, each to the mean of the runs without sampling before and after, and the
ratio of the shortest runs, which noise affects least; and the CPU time of sampling as a share of a core, with one
process and with eight of four threads. Wall times need an otherwise idle machine.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np

from benchmarks.observe_series import STEP_S, Truth, Wave, draw_wave, make_wave, make_without
from foretell.measure.consumption_sampler import sample
from foretell.measure.watch import watch_command
from foretell.observations.cycles import search_cycle

_SEED = 20
_SAMPLES = 1500
_SERIES = 200
_TURNS = 7
_COMPUTE = (sys.executable, "-I", "-S", "-c", "n = 30_000_000\nwhile n: n -= 1\n")
_MANY = (
    sys.executable, "-I", "-S", "-c",
    "import os, threading, time\n"
    "for _ in range(3): os.fork()\n"
    "threads = [threading.Thread(target=time.sleep, args=(8,)) for _ in range(3)]\n"
    "[thread.start() for thread in threads]\n"
    "[thread.join() for thread in threads]\n",
)  # fmt: skip


def run() -> dict[str, float]:
    """Shares and errors as fractions; durations in samples."""
    rng = np.random.default_rng(_SEED)
    figures: dict[str, float] = {}
    for kind in ("shuffled", "constant", "walk", "memory"):
        found = [
            search_cycle(make_without(kind, rng, samples=_SAMPLES), seed=number).cycle for number in range(_SERIES)
        ]
        figures[f"no_cycle_{kind}"] = found.count(None) / _SERIES
    figures |= _judge("cycle", (draw_wave(rng) for _ in range(_SERIES)), rng)
    figures |= _judge("short", (_draw_short(rng) for _ in range(_SERIES // 4)), rng)
    return figures | _measure_cost()


def _draw_short(rng: np.random.Generator) -> Wave:
    while True:
        wave = draw_wave(rng, least=0.6)
        if min(wave.duty, 1 - wave.duty) * wave.period < 2:
            return wave


def _judge(name: str, waves: Iterable[Wave], rng: np.random.Generator) -> dict[str, float]:
    errors, count = [], 0
    for count, wave in enumerate(waves, start=1):  # noqa: B007
        truth = make_wave(wave, rng, samples=_SAMPLES)
        error = _compare(wave, truth)
        errors += [error] if error is not None else []
    duration, amount = np.array(errors).T
    return {
        f"{name}_found": len(errors) / count,
        f"{name}_durations_within_a_sample": float((duration <= 1).sum()) / count,
        f"{name}_amounts_within_3_percent": float((amount <= 0.03).sum()) / count,
        f"{name}_duration_error_samples": float(np.median(duration)),
        f"{name}_amount_error": float(np.median(amount)),
    }


def _compare(wave: Wave, truth: Truth) -> tuple[float, float] | None:
    """How far the worse of burst and idle is off, in samples, and the amount, as a share."""
    cycle = search_cycle(truth.series).cycle
    if cycle is None:
        return None
    burst = abs(cycle.burst_s / STEP_S - truth.burst)
    idle = abs(cycle.idle_s / STEP_S - (truth.period - truth.burst))
    return max(burst, idle), abs(cycle.burst_amount / wave.high - 1)


def _measure_cost() -> dict[str, float]:
    plain = [_time(lambda: subprocess.run(_COMPUTE, check=True))]
    observed, shares = [], []
    for _ in range(_TURNS):
        watched = watch_command(_COMPUTE)
        assert watched.exit_code == 0
        observed.append(watched.usage.elapsed_s)
        shares.append(watched.recorded.sampling_cpu_s / watched.recorded.elapsed_s)
        plain.append(_time(lambda: subprocess.run(_COMPUTE, check=True)))
    between = [(before + after) / 2 for before, after in pairwise(plain)]
    many = subprocess.Popen(_MANY)
    recorded = sample([many.pid])
    many.wait()
    return {
        "job_plain_s": statistics.median(plain),
        "job_observed_s": statistics.median(observed),
        "job_overhead": statistics.median(took / bare - 1 for took, bare in zip(observed, between, strict=True)),
        "job_overhead_best": min(observed) / min(plain) - 1,
        "job_sampling_core_share": statistics.median(shares),
        "job_processes": recorded.processes,
        "job_processes_sampling_core_share": recorded.sampling_cpu_s / recorded.elapsed_s,
    }


def _time(call: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    call()
    return time.perf_counter() - started_s
