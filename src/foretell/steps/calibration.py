"""Calibrates a device: measures chosen kernels on it, and makes the models of kernels know them."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.core.device_figures import is_device_file, open_device
from foretell.core.device_names import spell_name
from foretell.core.devices import Device, find_device, get_device
from foretell.core.errors import Mistake, SpecError, WorkloadError
from foretell.core.private_files import FOLDER, keep_file, make_kept_folder
from foretell.measure.gpus import GpuState, find_gpus, read_state
from foretell.measure.other_load import LoadMeter, OtherLoad
from foretell.steps.kernels.calibration_file import (
    SUFFIX,
    Calibration,
    CalibrationFile,
    MeasuredKernel,
    build_conditions_line,
    build_header,
    build_host_line,
    build_key,
    build_line,
    load_calibration,
)
from foretell.steps.kernels.calibration_kernels import Chosen, choose_kernels
from foretell.steps.kernels.shipped_models import KernelModels
from foretell.steps.kernels.step_times import KernelStepModel
from foretell.workloads.api import require_torch

if TYPE_CHECKING:
    import torch

DEVICES = "devices"  # the folder of learned devices
KEPT = Path(FOLDER)
BUDGET_S = 120.0
LEAST_KERNELS = 20
LEAST_OF_A_TYPE = 8  # fewer would replace what is known from other measurements of such a device
_MOST_HOST = 1.5  # of the logarithm of the host's ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedDevice:
    """A device that was calibrated, and the file that says so."""

    calibration: Calibration
    path: Path
    left: int = 0  # chosen kernels for which the budget was too short

    @property
    def device(self) -> Device:
        """The device."""
        return self.calibration.device


def calibrate_device(
    *,
    name: str | None = None,
    budget_s: float = BUDGET_S,
    folder: Path = KEPT,
    output: Path | None = None,
    on_progress: Callable[[Calibration, int], None] = lambda _known, _count: None,
) -> CalibratedDevice:
    """Measure chosen kernels on the GPU of this machine, and keep them; predictions for it use them from then on.

    Each kernel is kept as soon as it is measured: after an interruption the same call continues, and with a larger
    budget it measures more. ``name`` is that of the GPU in the catalogue, or a file that describes it.

    Raises:
        MissingExtraError: PyTorch is not installed.
        NotFoundError: The GPU is not in the catalogue.
        SpecError: There is no GPU here, or the budget was too short.
        ImportDataError: The file of that device has another format.
        OutputError: A file cannot be written.
    """
    require_torch()
    target, driver_name = find_gpu()
    device = open_device(name) if name and is_device_file(name) else get_device(name or driver_name)
    path = find_path(device.name, make_kept_folder(folder, DEVICES))
    calibration, left = measure_kernels(path, device, target, budget_s=budget_s, on_progress=on_progress)
    if len(calibration.kernels) < LEAST_KERNELS:
        found = f"{budget_s:g} s, enough for {len(calibration.kernels)} kernels"
        expected = f"time for {LEAST_KERNELS} or more, for example 2m; the measured ones are kept"
        raise SpecError("options", [Mistake(place="budget", found=found, expected=expected)])
    if output is not None:
        keep_file(output, path.read_bytes())
    return CalibratedDevice(calibration=calibration, path=output or path, left=left)


def find_gpu() -> "tuple[torch.device, str]":
    """The GPU of this machine, and its name by the driver.

    Raises:
        SpecError: There is none.
    """
    from foretell.workloads.profile import name_device
    from foretell.workloads.training_step import find_device as find_own_device

    found = find_own_device()
    if found.type == "cpu":
        expected = "a machine with a GPU that PyTorch can use; 'foretell device learn' measures a CPU"
        raise SpecError("options", [Mistake(place="device", found="no GPU here", expected=expected)])
    return found, name_device(found)


def measure_kernels(
    path: Path,
    device: Device,
    target: "torch.device",
    *,
    budget_s: float,
    chosen: Sequence[Chosen] | None = None,
    on_progress: Callable[[Calibration, int], None] = lambda _known, _count: None,
) -> tuple[Calibration, int]:
    """Measure kernels until the budget is used, in a file that keeps them; also how many were left.

    Raises:
        ImportDataError: The file has another format.
        OutputError: The file cannot be written, or another process writes it.
    """
    from foretell.steps.kernels.calibration_runs import describe_gpu, warm_up

    wanted = choose_kernels(device) if chosen is None else tuple(chosen)
    file = CalibrationFile(path)
    file.open(lambda: build_header(device, describe_gpu(target)))
    with file.locked():
        known = file.read()
        todo = [each for each in wanted if build_key(each) not in known.done]
        before = _find_state(target)
        if todo or known.host_ratio is None:
            warm_up(target)
        try:
            with LoadMeter(1) as meter:
                if known.host_ratio is None:
                    known = _measure_host(file, known, target)
                while todo and known.seconds < budget_s:
                    known = _measure_next(file, known, todo.pop(0), target)
                    on_progress(known, len(wanted))
        finally:
            line = build_conditions_line(_describe_conditions(meter.load, before, _find_state(target)))
            file.append(line)
    return replace(known, conditions=(*known.conditions, line["conditions"])), len(todo)


def _find_state(target: "torch.device") -> GpuState | None:
    """The state of an NVIDIA GPU."""
    gpus = find_gpus() if target.type == "cuda" else ()
    place = target.index or 0
    return read_state(gpus[place]) if place < len(gpus) else None


def _describe_conditions(load: OtherLoad, before: GpuState | None, after: GpuState | None) -> dict[str, float]:
    """What other processes used, and the clock at the end, when the GPU has worked."""
    found = {"busy_cores": load.busy_cores, "cores": float(load.cores)}
    if before and after:
        found |= {"gpu_busy": before.utilisation, "gpu_others": float(after.others), "clock_mhz": after.clock_hz / 1e6}
    return found


def _measure_host(file: CalibrationFile, known: Calibration, target: "torch.device") -> Calibration:
    from foretell.steps.kernels.calibration_runs import measure_host

    begin = time.perf_counter()
    ratio = measure_host(target)
    line = build_host_line(ratio, time.perf_counter() - begin)
    file.append(line)
    return replace(known, host_ratio=ratio, seconds=known.seconds + line["took"])


def _measure_next(file: CalibrationFile, known: Calibration, chosen: Chosen, target: "torch.device") -> Calibration:
    from foretell.steps.kernels.calibration_runs import describe_kernel, measure_kernel

    begin, key = time.perf_counter(), build_key(chosen)
    measured: MeasuredKernel | str
    try:
        timing = measure_kernel(chosen, target, l2_bytes=known.device.l2_bytes)
        call = describe_kernel(chosen)
        measured = MeasuredKernel(call=call, seconds=timing.seconds, spread=timing.spread)
    except WorkloadError as exc:
        measured = str(exc)
    line = build_line(key, measured, time.perf_counter() - begin)
    file.append(line)
    added = (measured,) if isinstance(measured, MeasuredKernel) else ()
    return replace(
        known,
        kernels=(*known.kernels, *added),
        seconds=known.seconds + line["took"],
        skipped=known.skipped + (not added),
        done=known.done | {key},
    )


# Using it


def find_path(device: str, folder: Path) -> Path:
    """The file of a device's calibration in the folder of learned devices."""
    return folder / f"{device}{SUFFIX}"


def find_calibration(device: str, folder: Path | None) -> Calibration | None:
    """What was measured of a device, if there is enough of it.

    Raises:
        ImportDataError: The file is not one of a calibration.
    """
    if folder is None or not find_path(device, folder).is_file():
        return None
    found = load_calibration(find_path(device, folder))
    return found if len(found.kernels) >= LEAST_KERNELS else None


def choose_calibration(device: str, given: Sequence[Calibration], folder: Path | None) -> Calibration | None:
    """The calibration of a device: the last that is given, else the one that was made here.

    Raises:
        ImportDataError: The file of the one made here cannot be read.
    """
    known = find_device(device)
    name = known.name if known else device
    own = [each for each in given if spell_name(each.device.name) == spell_name(name)]
    return own[-1] if own else find_calibration(name, folder)


def calibrate_models(models: KernelModels, calibration: Calibration) -> KernelModels:
    """The models of kernels, which also know the kernels that were measured on the device."""
    calibrated = dict(models)
    for kind, model in models.items():
        calls, seconds = calibration.select(kind, least=LEAST_OF_A_TYPE)
        if calls:
            calibrated[kind] = model.calibrate(calls, calibration.device, seconds)
    return calibrated


def build_calibrated_model(calibration: Calibration, device: Device | None = None) -> KernelStepModel:
    """The model of steps on the device, with its measured kernels and host."""
    plain = KernelStepModel(device or calibration.device)
    model = KernelStepModel(plain.device, models=calibrate_models(plain.models, calibration))
    if calibration.host_ratio is not None:
        model.host_shift_ = max(-_MOST_HOST, min(_MOST_HOST, math.log(calibration.host_ratio)))
    return model
