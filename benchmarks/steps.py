"""Predicts training steps of ten networks on this machine, after fitting on random networks, and measures them.

Each network is measured in its own process, before this machine is learned and again after, in turns. Set
FORETELL_STEPS to a folder to keep the measurements; they are not repeated.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from benchmarks.step_networks import CASES
from foretell.core.devices import Device
from foretell.core.workload import Workload
from foretell.steps._base import StepModel
from foretell.steps.replay import ReplayModel
from foretell.steps.serial_replay import SerialModel
from foretell.workloads.capture import capture
from foretell.workloads.device_measurements import (
    BYTES_FOR_FLOPS,
    DeviceFile,
    MeasuredNetworks,
    measure_networks,
    run_in_process,
)
from foretell.workloads.measurement_files import Profile, load_profile, save_profile
from foretell.workloads.profile import find_load, profile

BUDGET_S = 300.0
ROUNDS = 4
FIRST_ROUNDS = 2  # before the machine is learned
SECONDS = 1.0  # of each measurement
QUIET = 0.3  # processes that want to run
PATIENCE_S = 300.0

METHODS: Mapping[str, Callable[[Device], StepModel]] = {"serial": SerialModel, "replay": ReplayModel}


def build_device(speed: float) -> Device:
    """This machine by what was measured of it."""
    return Device(
        name="cpu",
        kind="cpu",
        peak_flops=speed,
        bandwidth_bytes=speed / BYTES_FOR_FLOPS,
        units=torch.get_num_threads(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def run() -> dict[str, object]:
    kept = os.environ.get("FORETELL_STEPS")
    if kept:
        return _run(Path(kept))
    with tempfile.TemporaryDirectory() as folder:
        return _run(Path(folder))


def _run(folder: Path) -> dict[str, object]:
    folder.mkdir(parents=True, exist_ok=True)
    waited = wait_for_quiet()
    measured: dict[str, list[Profile]] = {name: [] for name in CASES}
    _measure(folder, measured, range(FIRST_ROUNDS))
    known = measure_networks(folder / "device.jsonl", budget_s=BUDGET_S)
    _measure(folder, measured, range(FIRST_ROUNDS, ROUNDS))
    device = build_device(float(DeviceFile(folder / "device.jsonl").open(dict)["flops_per_s"]))
    begin = time.perf_counter()
    workloads = {name: _capture(name) for name in CASES}
    captured = time.perf_counter() - begin
    return {
        "threads": torch.get_num_threads(),
        "waited for quiet (s)": waited,
        "networks learned from": len(known.profiles),
        "learned in (s)": known.seconds,
        **_describe_measuring(known, measured),
        **{
            name: value
            for method in METHODS
            for name, value in _judge(method, device, known, measured, workloads, captured).items()
        },
    }


def wait_for_quiet() -> float:
    """Seconds until the machine had little else to do; a busy one is not waited for forever."""
    begin = time.perf_counter()
    while find_load() > QUIET and time.perf_counter() - begin < PATIENCE_S:
        time.sleep(5.0)
    return time.perf_counter() - begin


def _measure(folder: Path, measured: dict[str, list[Profile]], rounds: range) -> None:
    for number in rounds:
        for name in CASES:
            path = folder / f"{name}-{number}.json"
            if not path.exists():
                save_profile(run_in_process(measure_case, name, torch.get_num_threads()), path)
            measured[name].append(load_profile(path))


def measure_case(name: str, threads: int) -> Profile:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    case = CASES[name]
    return profile(case.build(), [case.input], options=case.options, name=name, seconds=SECONDS)


def _capture(name: str) -> Workload:
    case = CASES[name]
    with torch.device("meta"):
        model = case.build()
    return capture(model, [case.input], options=case.options, name=name)


def _describe_measuring(known: MeasuredNetworks, measured: Mapping[str, list[Profile]]) -> dict[str, object]:
    """How far the same network's steps lie apart, within a measurement and between them, and what looking on costs."""
    profiles = [each for some in measured.values() for each in some]
    apart = [_find_range([each.step.iteration_s for each in some]) for some in measured.values()]
    return {
        "load while measured, median": statistics.median(each.load or 0.0 for each in profiles),
        "spread of steps, median": statistics.median(each.spread for each in profiles),
        "spread of measurements, median": statistics.median(apart),
        "spread of measurements, worst": max(apart),
        "overhead of looking on, median": statistics.median(each.overhead for each in profiles),
        "overhead of looking on, learned networks": statistics.median(
            each.overhead for each in known.profiles.values()
        ),
    }


def _find_range(times: list[float]) -> float:
    return (max(times) - min(times)) / 2 / statistics.median(times)


def _judge(
    method: str,
    device: Device,
    known: MeasuredNetworks,
    measured: Mapping[str, list[Profile]],
    workloads: Mapping[str, Workload],
    captured_s: float,
) -> dict[str, object]:
    begin = time.perf_counter()
    model = METHODS[method](device).fit(known.steps)
    fitted = time.perf_counter()
    predicted = dict(zip(workloads, model.predict(list(workloads.values())), strict=True))
    predicted_s = time.perf_counter() - fitted
    figures: dict[str, object] = {f"{method}: fitted in (s)": fitted - begin}
    figures[f"{method}: predicted in, share of the capture's time"] = predicted_s / captured_s
    errors = []
    for name, some in measured.items():
        truth = statistics.median(each.step.iteration_s for each in some)
        errors.append(predicted[name].iteration_s / truth - 1)
        figures[f"{method}: {name}"] = (
            f"{truth * 1e3:.2f} ms, predicted {predicted[name].iteration_s * 1e3:.2f} ms ({errors[-1]:+.1%})"
        )
    absolute = [abs(error) for error in errors]
    figures[f"{method}: median error"] = statistics.median(absolute)
    figures[f"{method}: mean error"] = statistics.fmean(absolute)
    figures[f"{method}: worst error"] = max(absolute)
    return figures
