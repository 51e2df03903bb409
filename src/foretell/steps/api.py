"""Training steps: read from the code of a model, measured here, predicted for a device; and learned devices."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.core import devices as catalogue
from foretell.core.app import ParameterType, Value
from foretell.core.device_figures import open_device
from foretell.core.device_names import spell_name
from foretell.core.devices import Device
from foretell.core.errors import Mistake, SpecError, WorkloadError
from foretell.core.generation import Generation
from foretell.core.private_files import FOLDER, keep_file, make_kept_folder
from foretell.core.run import Allocation, Run, RunSpec, State, Usage
from foretell.core.workload import MeasuredStep, Workload
from foretell.steps import get_method
from foretell.steps.step_results import KnownDevice, LearnedDevice, find_phases
from foretell.stores.opening import StoreLike, using_store
from foretell.workloads.api import INPUTS_UNKNOWN, require_torch
from foretell.workloads.api import read_generation as read_text_steps
from foretell.workloads.api import read_workload as read_step
from foretell.workloads.measurement_files import Profile, load_profile, render_profile, save_profile
from foretell.workloads.step_options import InputSpec, StepOptions, parse_input, resize

if TYPE_CHECKING:
    from foretell.steps.step_predictor import StepPredictor
    from foretell.workloads.device_measurements import MeasuredNetworks

__all__ = [
    "StepOptions",
    "get_known_device",
    "learn_device",
    "list_devices",
    "load_profile",
    "profile_workload",
    "read_generation",
    "read_workload",
    "save_profile",
]

APP = "workload"  # the app of the runs of measured steps
DEVICES, PROFILES = "devices", "profiles"
KEPT = Path(FOLDER)  # learned devices and profiles
LEAST_NETWORKS = 5
BUDGET_S = 300.0
SECONDS = 0.5
BYTES_FOR_FLOPS = 8  # operations in the time that a byte takes, where the bandwidth is unknown

_NAME = re.compile(r"[A-Za-z0-9][\w. -]*")

Input = InputSpec | str


def read_workload(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    batch: int | None = None,
) -> Workload:
    """The operators of the training step of a model, without running it.

    Raises:
        MissingExtraError: PyTorch, or the library for a configuration, is not installed.
        NotFoundError: There is no such file, module or factory.
        SpecError: An input, an option or a batch cannot be used.
        WorkloadError: The code fails, or the step cannot be read from it.
    """
    check_batch(batch)
    return read_step(source, read_inputs(inputs), arguments=read_arguments(arguments), options=options, batch=batch)


def read_generation(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    batch: int | None = None,
) -> Generation:
    """The steps in which a causal language model generates text, without running it.

    Raises:
        MissingExtraError, NotFoundError, SpecError: As :func:`read_workload`.
        WorkloadError: The code fails, or the model is not a causal language model.
    """
    check_batch(batch)
    given = read_inputs(inputs)
    return read_text_steps(source, given, arguments=read_arguments(arguments), options=options, batch=batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptProfile:
    """A profile, the run it was stored as, and its file."""

    profile: Profile
    run: Run
    path: Path


def profile_workload(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    batch: int | None = None,
    seconds: float = SECONDS,
    store: StoreLike = None,
    folder: Path = KEPT,
) -> KeptProfile:
    """Measure a few real steps on this machine, operator by operator, and store them as a run.

    Raises:
        MissingExtraError, NotFoundError, SpecError, WorkloadError: As :func:`read_workload`.
        OutputError, StoreError: The profile or the store cannot be written.
    """
    require_torch()
    from foretell.apps.api import store_repeated
    from foretell.workloads.model_loading import load_model
    from foretell.workloads.profile import profile

    check_batch(batch)
    kept = make_kept_folder(folder, PROFILES)
    began = datetime.now(UTC)
    with using_store(store, create=True) as opened:
        given = read_arguments(arguments)
        loaded = load_model(source, arguments=given, on_meta=False)
        chosen = resize(read_inputs(inputs) or loaded.inputs, batch)
        if not chosen:
            raise WorkloadError(f"{source}: {INPUTS_UNKNOWN}")
        found = profile(loaded.model, chosen, options=options, name=source, seconds=seconds)
        run = _build_run(found, given, chosen, began)
        types = {name: ParameterType.INTEGER if name == "batch" else ParameterType.TEXT for name in run.spec.parameters}
        run = store_repeated(run, types, opened)
    path = kept / f"{run.id}.json"
    keep_file(path, render_profile(found).encode())
    return KeptProfile(profile=found, run=run, path=path)


def _build_run(profile: Profile, arguments: Mapping[str, object], inputs: Sequence[InputSpec], began: datetime) -> Run:
    from foretell.measure.machine import detect_machine

    step = profile.step
    machine = detect_machine()
    parameters: dict[str, Value] = {
        "source": step.workload.name,
        "arguments": " ".join(f"{name}={value}" for name, value in arguments.items()),
        "inputs": " ".join(map(str, inputs)),
        "batch": step.workload.batch,
        "device": step.device,
        **step.workload.settings,
    }
    allocation = Allocation(cores=int(profile.facts["threads"]), gpus=0 if step.device == "cpu" else 1)
    return Run(
        spec=RunSpec(app=APP, parameters=parameters, allocation=allocation),
        state=State.COMPLETED,
        usage=Usage(elapsed_s=step.iteration_s),
        phases={phase.value: seconds for phase, seconds in find_phases(step).items()},
        machine=replace(machine, load=profile.load),
        started_at=began,
        ended_at=datetime.now(UTC),
        source="profile",
    )


# Devices


def list_devices(*, folder: Path = KEPT) -> list[KnownDevice]:
    """All devices of the catalogue and all with known times; those with known times come first."""
    from foretell.steps.calibration import find_path
    from foretell.steps.step_predictor import list_step_predictors

    with_times = list_step_predictors(learned=folder / DEVICES)
    known = {known.device.name for known in with_times if known.times == "learned"}
    rest = [each for each in catalogue.list_devices() if each.name not in known]
    calibrated = [each for each in rest if find_path(each.name, folder / DEVICES).is_file()]
    first = [KnownDevice(device=each, times="calibrated") for each in calibrated]
    names = {each.name for each in calibrated}
    others = [each for each in with_times if each.device.name not in names]
    names |= {each.device.name for each in others}
    found = [*first, *others, *(KnownDevice(device=each) for each in rest if each.name not in names)]
    return list(map(_add_evidence, found))


def _add_evidence(known: KnownDevice) -> KnownDevice:
    """With what its matrix products are predicted from."""
    from foretell.steps.kernels.shipped_models import load_kernel_models

    if known.device.kind != "gpu":
        return known
    if known.times == "calibrated":
        return replace(known, evidence=dict.fromkeys(catalogue.list_precisions(known.device), "measured"))
    model = load_kernel_models()["product"]
    return replace(
        known,
        evidence={
            each: str(model.find_evidence(known.device, each)) for each in catalogue.list_precisions(known.device)
        },
    )


def get_known_device(name: str, *, folder: Path = KEPT) -> KnownDevice:
    """A device by its name: of the catalogue, with known times, or described in a TOML file.

    Raises:
        NotFoundError: There is no such device or file.
        SpecError: The file cannot be used.
    """
    known = {spell_name(each.device.name): each for each in list_devices(folder=folder)}
    catalogued = catalogue.find_device(name)
    found = known.get(spell_name(catalogued.name if catalogued else name))
    return found or _add_evidence(KnownDevice(device=open_device(name)))


def learn_device(
    *,
    name: str | None = None,
    budget_s: float = BUDGET_S,
    method: str | None = None,
    profiles: Sequence[Profile] = (),
    folder: Path = KEPT,
    on_progress: "Callable[[MeasuredNetworks], None]" = lambda _: None,
) -> LearnedDevice:
    """Measure this machine's GPU or CPU for some minutes and fit a model on it, also on profiles made here.

    With ``profiles``, nothing is measured: the model is fitted on them alone. Measurements are saved at once; after an
    interruption, the same call continues them. Networks that were measured while other processes used the machine are
    left out; if too few others remain they are used, and every prediction has a warning. ``method`` as in
    :func:`predict_workload`.

    Raises:
        MissingExtraError: PyTorch is not installed.
        NotFoundError: There is no such method.
        SpecError: The name cannot be used, the budget was too short, or there are too few profiles of one device.
        ImportDataError: The measurements under that name are of another device.
        OutputError: The files cannot be written.
    """
    if method is not None:
        get_method(method)
    if profiles:
        return _learn_from_profiles(profiles, name=name, method=method, folder=folder)
    require_torch()
    from foretell.measure.other_load import describe_load, summarize_load
    from foretell.workloads.device_measurements import DeviceFile, measure_networks
    from foretell.workloads.profile import name_device
    from foretell.workloads.training_step import find_device

    own = name_device(find_device())
    catalogued = catalogue.find_device(own)
    chosen = check_name(name or (catalogued.name if catalogued else own))
    path = make_kept_folder(folder, DEVICES) / f"{chosen}.jsonl"
    measured = measure_networks(path, budget_s=budget_s, on_progress=on_progress)
    _check_enough(measured, budget_s)
    header = DeviceFile(path).open(dict)
    mine = _find_profiles(folder / PROFILES, device=measured.device, threads=int(header["threads"]))
    device = _describe_device(path.stem, catalogued, header)
    quiet = measured.quiet_steps
    too_few = len(quiet) < LEAST_NETWORKS
    used = measured.steps if too_few else quiet
    load = summarize_load(measured.loads)
    notes = [describe_load(load)] if too_few and load else []
    predictor, kept = _fit([*used, *mine], device, path.parent, method, notes=notes)
    return LearnedDevice(
        device=device,
        method=predictor.method,
        networks=len(used),
        profiles=len(mine),
        seconds=measured.seconds,
        path=kept,
        load=load,
        disturbed=len(measured.steps) - len(quiet),
        disturbed_used=too_few,
    )


def _learn_from_profiles(
    profiles: Sequence[Profile], *, name: str | None, method: str | None, folder: Path
) -> LearnedDevice:
    steps = [profile.step for profile in profiles]
    named = sorted({step.device for step in steps})
    if len(named) > 1 or len(steps) < LEAST_NETWORKS:
        found = f"{len(steps)} of {' and '.join(named)}"
        expected = f"{LEAST_NETWORKS} or more of one device"
        raise SpecError("options", [Mistake(place="profile", found=found, expected=expected)])
    catalogued = catalogue.find_device(named[0])
    chosen = check_name(name or (catalogued.name if catalogued else named[0]))
    header = {
        "device": named[0],
        "flops_per_s": max(step.workload.flops / step.iteration_s for step in steps),
        "threads": profiles[0].facts.get("threads", "1"),
    }
    device = _describe_device(chosen, catalogued, header)
    predictor, kept = _fit(steps, device, make_kept_folder(folder, DEVICES), method)
    return LearnedDevice(
        device=device, method=predictor.method, networks=0, profiles=len(steps), seconds=0.0, path=kept
    )


def _fit(
    steps: Sequence[MeasuredStep], device: Device, folder: Path, method: str | None, *, notes: Sequence[str] = ()
) -> "tuple[StepPredictor, Path]":
    """The fitted predictor, and its file."""
    from foretell.steps.step_predictor import find_method_file, fit_step_predictor

    predictor = fit_step_predictor(steps, device, method=method, notes=notes)
    path = find_method_file(folder, device.name, method)
    predictor.save(path)
    return predictor, path


def _check_enough(measured: "MeasuredNetworks", budget_s: float) -> None:
    if len(measured.profiles) < LEAST_NETWORKS:
        found = f"{budget_s:g} s, enough for {len(measured.profiles)} networks"
        expected = f"time for {LEAST_NETWORKS} or more, for example 5m; the measured ones are kept"
        raise SpecError("options", [Mistake(place="budget", found=found, expected=expected)])


def _find_profiles(folder: Path, *, device: str, threads: int) -> list[MeasuredStep]:
    """Steps measured under the same conditions."""
    found = [load_profile(path) for path in sorted(folder.glob("*.json"))]
    return [
        profile.step
        for profile in found
        if profile.step.device == device and profile.facts.get("threads") == str(threads)
    ]


def _describe_device(name: str, known: Device | None, header: Mapping[str, Any]) -> Device:
    """The device by its public figures, or else by what was measured."""
    if known is not None:
        return replace(known, name=name)
    from foretell.measure.machine import detect_machine

    return Device(
        name=name,
        kind="cpu" if header["device"] == "cpu" else "gpu",
        peak_flops=float(header["flops_per_s"]),
        bandwidth_bytes=float(header["flops_per_s"]) / BYTES_FOR_FLOPS,
        units=int(header["threads"]),
        memory_bytes=detect_machine().memory_bytes or 0,
    )


# Values given by users


def read_inputs(inputs: Sequence[Input]) -> list[InputSpec]:
    """Inputs of a model, from texts as :func:`foretell.workloads.step_options.parse_input` reads them."""
    return [parse_input(given) if isinstance(given, str) else given for given in inputs]


def read_arguments(arguments: Mapping[str, object] | None) -> dict[str, object]:
    """Texts as Python values; other texts stay as they are."""
    return {name: _read_value(value) if isinstance(value, str) else value for name, value in (arguments or {}).items()}


def _read_value(text: str) -> object:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def check_batch(batch: int | None) -> None:
    """Check a batch that a user gave.

    Raises:
        SpecError: It is below 1.
    """
    if batch is not None and batch < 1:
        raise SpecError("options", [Mistake(place="batch", found=str(batch), expected="a whole number from 1")])


def check_name(name: str) -> str:
    """Check the name of a learned model, which is also the name of its file.

    Raises:
        SpecError: It cannot be the name of a file.
    """
    if _NAME.fullmatch(name) is None:
        expected = "letters, digits, spaces and the signs . _ -, beginning with a letter or digit"
        raise SpecError("options", [Mistake(place="name", found=repr(name), expected=expected)])
    return name
