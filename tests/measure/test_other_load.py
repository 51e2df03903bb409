"""The load by other processes while something is measured."""

import os
import subprocess
import sys
import time

import pytest

from foretell.measure.other_load import LoadMeter, OtherLoad, describe_load, summarize_load


@pytest.mark.parametrize(
    ("busy", "cores", "threads", "too_long"),
    [
        (0.1, 2, 2, 0.0),  # what every machine does
        (1.0, 2, 2, 0.5),
        (1.0, 2, 1, 0.0),  # on the other core
        (2.0, 2, 1, 1.0),
        (3.0, 64, 64, 0.0),  # of so many cores
        (8.0, 64, 60, 4 / 60),
    ],
)
def test_measured_times_are_too_long_by_the_cores_that_were_missing(
    busy: float, cores: int, threads: int, too_long: float
) -> None:
    load = OtherLoad(busy_cores=busy, cores=cores, threads=threads)
    assert load.too_long == pytest.approx(too_long)
    assert load.is_disturbing == (too_long > 0.1)
    assert f"{busy:.1f} of {cores} cores" in describe_load(load)


def test_the_mean_of_several_is_their_load() -> None:
    loads = [OtherLoad(busy_cores=busy, cores=4, threads=2) for busy in (0.0, 3.0)]
    assert summarize_load(loads) == OtherLoad(busy_cores=1.5, cores=4, threads=2)
    assert summarize_load([]) is None


def test_only_other_processes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = iter([(10.0, 100.0, 5.0), (12.0, 103.5, 6.5)])
    monkeypatch.setattr(LoadMeter, "_read", lambda _self: next(clocks))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    with LoadMeter(2) as meter:
        pass
    assert meter.load == OtherLoad(busy_cores=1.0, cores=2, threads=2)


def test_a_process_next_to_it_is_measured() -> None:
    code = "while True: pass"
    with LoadMeter(1) as alone:
        time.sleep(0.5)
    with subprocess.Popen([sys.executable, "-c", code]) as other:
        try:
            with LoadMeter(1) as meter:
                time.sleep(1.0)
        finally:
            other.kill()
    cores = len(os.sched_getaffinity(0))
    assert 0 <= alone.load.busy_cores <= cores
    assert meter.load.busy_cores > 0.3
    assert meter.load.cores == cores
