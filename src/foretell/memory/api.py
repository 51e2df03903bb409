"""The GPU memory of a training step, an inference or generated text: from the code of a model, or from a script."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from foretell.core.device_figures import open_device
from foretell.core.devices import Device, check_precision, get_device, list_devices
from foretell.core.errors import Mistake, SpecError
from foretell.core.layouts import parse_layout
from foretell.core.warning import PredictionWarning, build_warning
from foretell.memory.allocator_settings import AllocatorSettings
from foretell.memory.fitting import find_largest
from foretell.memory.forecast import UNSEEN_SHARE, forecast
from foretell.memory.layout_shards import apply_layout
from foretell.memory.measured_peaks import read_peaks
from foretell.memory.memory_results import DeviceFit, MemoryPrediction
from foretell.memory.model_memory import ModelMemory
from foretell.memory.remedies import find_remedies
from foretell.memory.usage import MemoryUsage, measure_usage
from foretell.steps.api import Input, check_batch, read_arguments, read_inputs
from foretell.steps.step_results import LeftOutDevice
from foretell.workloads.api import SCRIPT_TIMEOUT_S, read_script
from foretell.workloads.measurement_files import Profile
from foretell.workloads.scripts.script_facts import estimate_host_bytes
from foretell.workloads.step_options import StepOptions
from foretell.workloads.workload_warnings import find_note_warnings

__all__ = ["predict_memory", "predict_script_memory"]

RISK = 0.05  # that a step does not fit, which is allowed
_NAMED = 5  # operators of a warning
USUAL = ("T4", "RTX4090", "A100-40", "L40S", "H100", "H200", "B200", "MI300X")  # devices, where none is named


def predict_memory(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    devices: Sequence[str | Device] | str = (),
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    batch: int | None = None,
    gpus: int | None = None,
    layout: str = "",
    offload: str = "",
    profiles: Sequence[Profile] = (),
    allocator: str = "",
    risk: float = RISK,
    level: float = 0.9,
    longest: bool = False,
) -> MemoryPrediction:
    """The memory of a GPU that a step of a model needs, on which devices it fits, and the largest batch on each.

    ``devices`` are as for :func:`foretell.predict_workload`, by default some usual ones. ``gpus`` share the step by a
    ``layout`` such as ``fsdp`` or ``tp=4,pp=2``, each with the batch; ``offload`` is ``optimizer`` or ``parameters``,
    which the host then keeps. ``profiles`` of the same model that were measured on a GPU correct the peaks.
    ``allocator`` is a value of ``PYTORCH_CUDA_ALLOC_CONF``; ``risk`` is the chance of not fitting that is allowed. With
    ``longest``, also the longest sequence that fits. If a device is named on which the step does not fit,
    ``remedies`` would make it fit.

    Raises:
        NotFoundError: There is no such device, file, module or factory.
        SpecError: A device has no memory or lacks the precision, or an option cannot be used.
        MissingExtraError, WorkloadError: As :func:`foretell.read_workload`.
    """
    check_batch(batch)
    options = options or StepOptions()
    chosen, left_out = choose_devices(devices, options.precision)
    model = ModelMemory(
        source,
        read_inputs(inputs),
        arguments=read_arguments(arguments),
        options=options,
        batch=batch,
        settings=AllocatorSettings.parse(allocator),
        layout=parse_layout(layout, gpus=gpus, offload=offload),
        measured=read_peaks(profiles),
    )
    model.correct()
    usage = model.measure()
    fits = _fit_all(chosen, usage, model, risk=risk, level=level, longest=longest)
    small = _find_too_small(chosen, fits, named=bool(devices))
    return _build_prediction(
        usage,
        _find_only(chosen, named=bool(devices)),
        risk=risk,
        level=level,
        devices=tuple(fits),
        left_out=left_out,
        host_bytes=usage.trace.host_bytes or None,
        remedies=find_remedies(model, small, risk=risk, level=level) if small is not None else (),
        remedies_for=small.name if small is not None else "",
        warnings=tuple(_find_warnings(usage, assumed=model.read().notes)),
    )


def predict_script_memory(
    command: Sequence[str],
    *,
    devices: Sequence[str | Device] | str = (),
    gpus: int | None = None,
    layout: str = "",
    offload: str = "",
    allocator: str = "",
    risk: float = RISK,
    level: float = 0.9,
    timeout_s: float = SCRIPT_TIMEOUT_S,
    on_progress: Callable[[str], None] | None = None,
) -> MemoryPrediction:
    """The memory of a GPU that the steps of a script need, as ``["python", "train.py", "--batch-size", "64"]``.

    The command starts in this folder and ends after its second training step. It needs no GPU. A layout shares the
    step as the script runs it on one GPU. Everything else is as for :func:`predict_memory`.

    Raises:
        NotFoundError, SpecError: As :func:`predict_memory`.
        MissingExtraError, NotFoundError, WorkloadError: As :func:`foretell.read_script`.
    """
    settings = AllocatorSettings.parse(allocator)
    shared = parse_layout(layout, gpus=gpus, offload=offload)
    chosen, left_out = choose_devices(devices, "fp32")
    only = _find_only(chosen, named=bool(devices))
    script = read_script(command, timeout_s=timeout_s, on_progress=on_progress, device=only, memory=True)
    assert script.memory is not None
    usage = measure_usage(apply_layout(script.memory, shared), settings=settings)
    return _build_prediction(
        usage,
        only,
        risk=risk,
        level=level,
        devices=tuple(_fit(device, usage, risk=risk, level=level) for device in chosen),
        left_out=left_out,
        host_bytes=estimate_host_bytes(script.facts),
        warnings=(*_find_warnings(usage), *script.warnings),
    )


def _build_prediction(
    usage: MemoryUsage, device: Device | None, *, risk: float, level: float, **parts: Any
) -> MemoryPrediction:
    """A prediction whose need is that on a device, or on a usual one."""
    found = forecast(usage, device, level=level)
    return MemoryPrediction(
        usage=usage,
        needed=found.needed,
        context_bytes=found.context_bytes,
        workspace_bytes=found.workspace_bytes,
        risk_allowed=risk,
        **parts,
    )


def _find_only(devices: Sequence[Device], *, named: bool) -> Device | None:
    """The one device that was named."""
    return devices[0] if named and len(devices) == 1 else None


def choose_devices(
    devices: Sequence[str | Device] | str, precision: str
) -> tuple[list[Device], tuple[LeftOutDevice, ...]]:
    """The devices that were asked for, or the usual ones; of several, those without the precision are left out.

    Raises:
        NotFoundError: There is no such device.
        SpecError: The only one lacks the precision, or one has no memory.
    """
    words = [devices] if isinstance(devices, str) else list(devices)
    if not words:
        return [each for each in map(get_device, USUAL) if _has(each, precision)], ()
    if words == ["all"]:
        return sorted((each for each in list_devices() if _has(each, precision)), key=_sort_key), ()
    found = [each if isinstance(each, Device) else open_device(each) for each in words]
    for device in found:
        if device.memory_bytes <= 0:
            expected = "a device with a memory, as in --device-figures memory=48GB,..."
            raise SpecError("options", [Mistake(place="device", found=device.name, expected=expected)])
    kept = [each for each in found if _has(each, precision)]
    if not kept:
        check_precision(found[0], precision)
    lacking = [each for each in found if each not in kept]
    return kept, tuple(LeftOutDevice(device=each.name, reason=f"has no {precision}") for each in lacking)


def _has(device: Device, precision: str) -> bool:
    try:
        check_precision(device, precision)
    except SpecError:
        return False
    return True


def _sort_key(device: Device) -> tuple[int, str]:
    return device.memory_bytes, device.name


def _fit_all(
    devices: Sequence[Device], usage: MemoryUsage, model: ModelMemory, *, risk: float, level: float, longest: bool
) -> list[DeviceFit]:
    """Whether the step fits each device, and the largest batch that does."""
    fits = []
    for device in devices:

        def find_risk(used: MemoryUsage, device: Device = device) -> float:
            return forecast(used, device, level=level).find_risk(device.usable_memory_bytes)

        batch = find_largest(lambda size: find_risk(model.measure_batch(size)), allowed=risk, start=usage.trace.batch)
        length = None
        if longest:
            start = usage.trace.length or 1
            length = find_largest(lambda size: find_risk(model.measure_length(size)), allowed=risk, start=start)
        fits.append(_fit(device, usage, risk=risk, level=level, largest_batch=batch, longest_sequence=length))
    return fits


def _find_too_small(devices: Sequence[Device], fits: Sequence[DeviceFit], *, named: bool) -> Device | None:
    """The device for which to find remedies: the first that was named and is too small, or the largest if all are."""
    small = [device for device, fit in zip(devices, fits, strict=True) if not fit.fits]
    if named or len(small) < len(devices):
        return small[0] if named and small else None
    return max(small, key=_sort_key, default=None)


def _fit(device: Device, usage: MemoryUsage, *, risk: float, level: float, **sizes: int | None) -> DeviceFit:
    found = forecast(usage, device, level=level)
    chance = found.find_risk(device.usable_memory_bytes)
    return DeviceFit(
        device=device.name,
        usable_bytes=device.usable_memory_bytes,
        needed=found.needed,
        risk=chance,
        fits=chance <= risk,
        **sizes,
    )


def _find_warnings(usage: MemoryUsage, *, assumed: Sequence[str] = ()) -> Iterator[PredictionWarning]:
    """What was assumed of unknown values, what else was noted, and what is not seen."""
    yield from find_note_warnings(assumed)
    for note in usage.trace.notes:
        if note not in assumed:
            yield build_warning("memory-note", f"{note.rstrip('.')}.")
    extensions = usage.trace.extensions
    if extensions:
        more = f" and {len(extensions) - _NAMED} more" if len(extensions) > _NAMED else ""
        text = (
            f"{', '.join(extensions[:_NAMED])}{more}: operators of an extension. Their results are counted; what they "
            f"allocate inside is not seen, so that the upper bound is {UNSEEN_SHARE:.0%} higher."
        )
        yield build_warning("memory-not-seen", text, operators=list(extensions))
