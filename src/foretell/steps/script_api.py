"""Training scripts as they are: their first step, recorded from their command, and its time on one or many devices."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from foretell.core.devices import Device
from foretell.core.errors import SpecError
from foretell.steps.api import KEPT
from foretell.steps.prediction_api import choose
from foretell.steps.step_results import StepPredictions
from foretell.workloads.api import SCRIPT_TIMEOUT_S
from foretell.workloads.api import read_script as record_script
from foretell.workloads.measurement_files import Profile
from foretell.workloads.scripts.script_facts import RecordedScript

__all__ = ["predict_script", "read_script"]


def read_script(
    command: Sequence[str],
    *,
    timeout_s: float = SCRIPT_TIMEOUT_S,
    on_progress: Callable[[str], None] | None = None,
) -> RecordedScript:
    """The first training step of a script, as ``["python", "train.py", "--batch-size", "64"]`` takes it.

    The command starts in this folder and ends with that step. It needs no GPU: PyTorch answers as if there was one.

    Raises:
        MissingExtraError: The Python of the command has no PyTorch.
        NotFoundError: The program, the script or a file that it needs does not exist.
        WorkloadError: It takes no step, fails, asks for several processes, or takes longer than ``timeout_s``.
    """
    return record_script(command, timeout_s=timeout_s, on_progress=on_progress)


def predict_script(
    command: Sequence[str],
    *,
    device: str | Device | None = None,
    devices: Sequence[str | Device] | str = (),
    profiles: Sequence[Profile] = (),
    calibrations: Sequence[Path] = (),
    method: str | None = None,
    level: float = 0.9,
    folder: Path = KEPT,
    timeout_s: float = SCRIPT_TIMEOUT_S,
    on_progress: Callable[[str], None] | None = None,
) -> StepPredictions:
    """The time of the first training step of a script on each device, as :func:`predict_workload` gives it.

    The script finds the device as its GPU if there is only one; otherwise an H100.

    Raises:
        NotFoundError, SpecError, ImportDataError: As :func:`predict_workload`.
        MissingExtraError, NotFoundError, WorkloadError: As :func:`read_script`.
    """
    # A name that is not known is refused before the script starts.
    chosen = choose(device, devices, "fp32", profiles, calibrations, method=method, folder=folder)
    found_devices = [each.device for each in chosen.predictors]
    only = found_devices[0] if len(found_devices) == 1 and not chosen.left_out else None
    script = record_script(command, timeout_s=timeout_s, on_progress=on_progress, device=only)
    precision = script.workload.settings["precision"]
    try:
        chosen = choose(device, devices, precision, profiles, calibrations, method=method, folder=folder)
    except SpecError as exc:  # the options are those of the script
        raise SpecError(script.workload.name, exc.mistakes) from exc
    found = chosen.predict([script.workload], profiles=[profile.step for profile in profiles], level=level)
    warned = (replace(each, warnings=(*each.warnings, *script.warnings)) for each in found)
    return replace(found, predictions=tuple(warned))
