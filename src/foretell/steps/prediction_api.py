"""Predictions from the code of a model: its steps, or the text that it generates, on one or many devices."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.core.devices import Device
from foretell.core.errors import Mistake, SpecError
from foretell.steps.api import DEVICES, KEPT, Input, read_generation, read_workload
from foretell.steps.generation_results import GenerationPredictions
from foretell.steps.step_results import StepPredictions
from foretell.workloads.measurement_files import Profile
from foretell.workloads.step_options import StepOptions

if TYPE_CHECKING:
    from foretell.steps.device_predictions import ChosenDevices

__all__ = ["predict_generation", "predict_workload"]

_ONE_STEP = "training or inference; predict_generation predicts generated text"


def predict_workload(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    device: str | Device | None = None,
    devices: Sequence[str | Device] | str = (),
    batches: Sequence[int] = (),
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    profiles: Sequence[Profile] = (),
    calibrations: Sequence[Path] = (),
    method: str | None = None,
    level: float = 0.9,
    folder: Path = KEPT,
) -> StepPredictions:
    """The time of a step on each device, for each batch; by default for the batch of the inputs.

    Devices are names, files (``mine.toml``), figures, or ``"all"`` for the catalogue, sorted by speed. Of several,
    those that cannot be predicted are in ``left_out``. ``calibrations`` are files that ``foretell device calibrate``
    made on machines with those devices; one made here is used without being named. ``method`` is a name of
    ``foretell.steps.METHODS``.

    Raises:
        NotFoundError: There is no such device, method, file, module or factory, or the method has no fitted model.
        SpecError: The device lacks the precision, a profile is of another device or cannot be used by the method; and
            as :func:`read_workload`.
        ImportDataError: A calibration cannot be read.
        MissingExtraError, WorkloadError: As :func:`read_workload`.
    """
    options = options or StepOptions()
    if options.mode == "generate":
        raise SpecError("the step", [Mistake(place="mode", found="generate", expected=_ONE_STEP)])
    chosen = choose(device, devices, options.precision, profiles, calibrations, method=method, folder=folder)
    workloads = [
        read_workload(source, inputs, arguments=arguments, options=options, batch=batch) for batch in batches or (None,)
    ]
    return chosen.predict(workloads, profiles=[profile.step for profile in profiles], level=level)


def predict_generation(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    device: str | Device | None = None,
    devices: Sequence[str | Device] | str = (),
    batches: Sequence[int] = (),
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    calibrations: Sequence[Path] = (),
    method: str | None = None,
    level: float = 0.9,
    folder: Path = KEPT,
) -> GenerationPredictions:
    """The times in which a causal language model generates text on each device, for each batch.

    ``options`` have the mode ``generate``, the tokens of the prompt and those to generate. Everything else is as for
    :func:`predict_workload`.

    Raises:
        NotFoundError, SpecError, ImportDataError, MissingExtraError: As :func:`predict_workload`.
        WorkloadError: The code fails, or the model is not a causal language model.
    """
    options = options or StepOptions(mode="generate")
    chosen = choose(device, devices, options.precision, (), calibrations, method=method, folder=folder)
    generations = [
        read_generation(source, inputs, arguments=arguments, options=options, batch=batch)
        for batch in batches or (None,)
    ]
    return chosen.predict_generations(generations, level=level)


def choose(
    device: str | Device | None,
    devices: Sequence[str | Device] | str,
    precision: str,
    profiles: Sequence[Profile],
    calibrations: Sequence[Path],
    *,
    method: str | None,
    folder: Path,
) -> "ChosenDevices":
    """The predictors of the requested devices, in this precision."""
    from foretell.steps.device_predictions import choose_devices
    from foretell.steps.kernels.calibration_file import load_calibration

    return choose_devices(
        list(_list_devices(device, devices)),
        precision=precision,
        method=method,
        learned=folder / DEVICES,
        profiles=[profile.step for profile in profiles],
        calibrations=[load_calibration(Path(path)) for path in calibrations],
    )


def _list_devices(device: str | Device | None, devices: Sequence[str | Device] | str) -> Iterator[str | Device]:
    if device is not None:
        yield device
    yield from [devices] if isinstance(devices, str) else devices
