"""Predicts the time of a training step on a device, with an interval; finds, fits and saves the models of devices."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path

import numpy as np

from foretell.core.device_names import find_similar, spell_name
from foretell.core.devices import (
    Device,
    describe_known,
    find_device,
    get_device,
    list_devices,
    read_device,
    suggest_devices,
)
from foretell.core.errors import Mistake, NotFoundError, SpecError, StoreError
from foretell.core.intervals import NO_SPREAD, QuantileSpread, build_estimate
from foretell.core.model_files import load_model, read_rising, save_model
from foretell.core.prediction import Estimate
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import MeasuredStep, StepEstimate, StepPhase, Workload
from foretell.steps import DEFAULT_METHODS, get_method
from foretell.steps._base import Bounding, Refinable, StepModel, StepTimer, StepTimes
from foretell.steps.calibration import build_calibrated_model, choose_calibration
from foretell.steps.kernels.calibration_file import Calibration
from foretell.steps.step_results import KnownDevice

SUFFIX = ".safetensors"
_QUANTILES = 201
_FOLDS = 2
_MOST_PROFILES = 2  # more profiles do not narrow the interval
_UNKNOWN = np.log(1.5)  # half width of the interval if no steps were held out
_REMEDY = "learn the device again"

# Quantiles of log(measured / predicted) of models by public figures, on the iterations of both GPUs of the ETS traces:
# minimum, 5 %, 50 %, 95 %, maximum.
_FIGURE_ERRORS = {"roofline": (-1.17, -0.68, 0.57, 2.45, 4.3), "paleo": (-0.53, -0.05, 1.22, 4.53, 7.09)}


class StepPredictor:
    """A model of a device, with the distribution of its errors on unseen steps for each number of profiles."""

    def __init__(
        self,
        model: StepModel,
        *,
        device: Device,
        spreads: Mapping[int, QuantileSpread],
        notes: Sequence[str] = (),
        warnings: Sequence[PredictionWarning] = (),
    ) -> None:
        self.model = model
        self.device = device
        self.spreads = dict(spreads)
        self.notes = tuple(notes)
        self._warnings = tuple(warnings)

    @property
    def method(self) -> str:
        """The name of its method."""
        return self.model.kind

    @property
    def warnings(self) -> tuple[PredictionWarning, ...]:
        """Warnings of every prediction for this device."""
        limits = (build_warning("limited-model", note, device=self.device.name) for note in self.notes)
        return (*self._warnings, *limits)

    def predict(self, workload: Workload, *, profiles: Sequence[MeasuredStep] = (), level: float = 0.9) -> StepEstimate:
        """The time of a step; more accurate with profiles of the same network, at this or at other sizes.

        Raises:
            SpecError: The method cannot use profiles.
        """
        timer = self._refine(profiles) if profiles else self.model
        times = timer.predict([workload])[0]
        if isinstance(timer, Bounding):
            return _build_estimate(workload, times, timer.bound(times, level))
        return _build_estimate(workload, times, self.bound(times.iteration_s, profiles=len(profiles), level=level))

    def _refine(self, profiles: Sequence[MeasuredStep]) -> StepTimer:
        if not isinstance(self.model, Refinable):
            found, expected = f"with method {self.method!r}", f"no profile, or method {' or '.join(DEFAULT_METHODS)}"
            raise SpecError("options", [Mistake(place="profile", found=found, expected=expected)])
        return self.model.refine(profiles)

    def bound(self, iteration_s: float, *, profiles: int = 0, level: float) -> Estimate:
        """An iteration with its interval, which is narrower with profiles."""
        known = [count for count in sorted(self.spreads) if count <= min(profiles, _MOST_PROFILES)]
        if not known:
            return build_estimate(iteration_s, NO_SPREAD, level=level, shift=_UNKNOWN)
        return build_estimate(iteration_s, self.spreads[known[-1]], level=level)

    def save(self, path: Path) -> None:
        """Write it to a file.

        Raises:
            StoreError: The file cannot be written.
        """
        spreads = {str(count): spread.round() for count, spread in self.spreads.items()}
        save_model(path, self.model, {"spreads": spreads, "notes": list(self.notes), "device": asdict(self.device)})


def load_step_predictor(path: Path, *, method: str | None = None) -> StepPredictor:
    """The predictor in a file: of this method, or of a default method.

    Raises:
        StoreError: The file is not one.
    """
    kinds = [get_method(name) for name in ([method] if method else DEFAULT_METHODS)]
    model, facts = load_model(path, kinds, remedy=_REMEDY)
    try:
        spreads = {
            int(count): QuantileSpread(quantiles=tuple(read_rising(values, count=_QUANTILES).tolist()))
            for count, values in facts["spreads"].items()
        }
        # Files of earlier versions have the device in the model only.
        device = read_device(facts["device"]) if "device" in facts else getattr(model, "device")  # noqa: B009
        return StepPredictor(model, device=device, spreads=spreads, notes=[str(note) for note in facts["notes"]])
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        raise StoreError(f"{path}: a model of training steps without its errors ({exc}); {_REMEDY}") from exc


def find_step_predictor(
    device: str,
    *,
    learned: Path | None = None,
    method: str | None = None,
    calibrations: Sequence[Calibration] = (),
) -> StepPredictor:
    """The predictor of a device: learned here, shipped, or by public figures if the method needs no measurements.

    A calibration of the device is used by the model of kernels: one of ``calibrations``, else that which was made here.

    Raises:
        NotFoundError: There is none, or no such method.
        ImportDataError: The calibration that was made here cannot be read.
    """
    if method in (None, "kernels"):
        calibration = choose_calibration(device, calibrations, learned)
        if calibration is not None:
            return StepPredictor(build_calibrated_model(calibration), device=calibration.device, spreads={})
    own = _find_file(device, learned)
    shipped = _find_file(device, _find_shipped())
    figures = find_device(device)
    if method is None:
        return _find_default(device, own, shipped, figures, learned=learned)
    kind = get_method(method)
    for path in (own, shipped):
        known = load_step_predictor(path) if path else None
        if known and known.method == method:
            return known
        figures = figures or (known.device if known else None)
    path = _find_file(device, learned and learned / method) or _find_file(device, _find_shipped() / method)
    if path:
        return load_step_predictor(path, method=method)
    if figures is None:
        figures = get_device(device)
    model = kind.from_figures(figures)
    if model is not None:
        return _build_from_figures(model, figures)
    known_devices = list(_list_files(learned, method=method))
    raise NotFoundError(f"{method} model of a device", device, known=known_devices, hint=_describe_fit(method))


def _find_default(
    device: str, own: Path | None, shipped: Path | None, figures: Device | None, *, learned: Path | None
) -> StepPredictor:
    """The model that was learned here, else that of the kernels of any GPU, else the shipped one of a CPU."""
    if own:
        return load_step_predictor(own)
    model = get_method("kernels").from_figures(figures) if figures else None
    if model and figures:
        return _build_from_figures(model, figures)
    if shipped:
        return load_step_predictor(shipped)
    learned_ones = {spell_name(name): name for name in _list_files(learned)}
    similar = dict.fromkeys([*find_similar(device, learned_ones), *suggest_devices(device)])
    known = dict.fromkeys([*_list_files(learned), *(each.name for each in list_devices())])
    raise NotFoundError("device", device, known=list(known), similar=similar, hint=describe_known())


def build_figure_predictor(device: Device, *, method: str | None = None) -> StepPredictor:
    """The predictor of a device that is known by its figures alone.

    Raises:
        NotFoundError: There is no such method, or it needs measurements.
    """
    name = method or DEFAULT_METHODS[0]
    model = get_method(name).from_figures(device)
    if model is None:
        raise NotFoundError(f"{name} model of a device", device.name, hint=_describe_fit(name))
    return _build_from_figures(model, device)


def _describe_fit(method: str) -> str:
    return (
        f"On that device, 'foretell device learn --method {method}' measures and fits one; from profiles made there, "
        f"'foretell device learn --method {method} --profile FILE --profile FILE ...' does so anywhere."
    )


def _build_from_figures(model: StepModel, device: Device) -> StepPredictor:
    if isinstance(model, Bounding):
        return StepPredictor(model, device=device, spreads={})
    text = (
        f"The {model.kind} model uses the public figures of the device only; nothing was measured on it. "
        "Its interval is that of such predictions for the T4 and the 2080 Ti."
    )
    return StepPredictor(
        model,
        device=device,
        spreads={0: _read_figure_errors(model.kind)},
        warnings=[build_warning("operators-not-measured", text, device=device.name)],
    )


def _read_figure_errors(method: str) -> QuantileSpread:
    shares = np.linspace(0.0, 1.0, _QUANTILES)
    values = np.interp(shares, (0.0, 0.05, 0.5, 0.95, 1.0), _FIGURE_ERRORS[method])
    return QuantileSpread(quantiles=tuple(values.tolist()))


def load_shipped_predictors() -> list[StepPredictor]:
    """The predictors that ship with the package."""
    return [load_step_predictor(path) for path in sorted(_find_shipped().glob(f"*{SUFFIX}"))]


def list_step_predictors(*, learned: Path | None = None) -> list[KnownDevice]:
    """Devices with known times, those learned here first."""
    loaded = ((load_step_predictor(path).device, times) for path, times in _list_files(learned).values())
    catalogue = {device.name: device for device in list_devices()}  # files of earlier versions have fewer figures
    return [KnownDevice(device=catalogue.get(device.name, device), times=times) for device, times in loaded]


def fit_step_predictor(
    steps: Sequence[MeasuredStep],
    device: Device,
    *,
    method: str | None = None,
    groups: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    seed: int = 0,
) -> StepPredictor:
    """Fit the model of a device on measured steps; its errors come from groups of steps that are held out.

    Steps that resemble each other, such as those of a family of networks, are one group. By default, each step is its
    own group, and the method is ``serial`` for a CPU and ``replay`` for a GPU.

    Raises:
        NotFoundError: There is no such method.
    """
    kind = get_method(method or _choose_method(steps))
    names = list(groups or map(str, range(len(steps))))
    return StepPredictor(
        kind.build(device, seed=seed).fit(steps),
        device=device,
        spreads=measure_spreads(kind, steps, names, device, seed=seed),
        notes=notes,
    )


def _choose_method(steps: Sequence[MeasuredStep]) -> str:
    """On a CPU, each operator starts when it is launched."""
    return "serial" if all(np.array_equal(s.launch_s, s.start_s, equal_nan=True) for s in steps) else "replay"


def measure_spreads(
    kind: type[StepModel],
    steps: Sequence[MeasuredStep],
    groups: Sequence[str],
    device: Device,
    *,
    seed: int = 0,
) -> dict[int, QuantileSpread]:
    """Quantiles of log(measured / predicted) on held-out groups, without and with profiles."""
    names = sorted(set(groups))
    random = np.random.default_rng(seed)
    fold_of = dict(zip(random.permutation(names).tolist(), [n % _FOLDS for n in range(len(names))], strict=True))
    errors: dict[int, list[float]] = {count: [] for count in range(_MOST_PROFILES + 1)}
    for fold in range(_FOLDS if len(names) > 1 else 0):
        inside = [step for step, group in zip(steps, groups, strict=True) if fold_of[group] != fold]
        held_out = [step for step, group in zip(steps, groups, strict=True) if fold_of[group] == fold]
        model = kind.build(device, seed=seed).fit(inside)
        errors[0] += _compare(held_out, model.predict([step.workload for step in held_out]))
        if isinstance(model, Refinable):
            for count in range(1, _MOST_PROFILES + 1):
                errors[count] += _try_profiles(model, held_out, count, random)
    return {count: QuantileSpread.learn(values, count=_QUANTILES) for count, values in errors.items() if values}


def _try_profiles(
    model: Refinable, held_out: Sequence[MeasuredStep], count: int, random: np.random.Generator
) -> list[float]:
    """Errors on the other steps of a network, with profiles of some."""
    networks: dict[str, list[MeasuredStep]] = {}
    for step in held_out:
        networks.setdefault(step.workload.name, []).append(step)
    errors: list[float] = []
    for same in networks.values():
        if len(same) > count:
            chosen = set(random.choice(len(same), count, replace=False).tolist())
            rest = [step for number, step in enumerate(same) if number not in chosen]
            refined = model.refine([same[number] for number in chosen])
            errors += _compare(rest, refined.predict([step.workload for step in rest]))
    return errors


def _compare(steps: Sequence[MeasuredStep], predicted: Sequence[StepTimes]) -> list[float]:
    return [float(np.log(step.iteration_s / times.iteration_s)) for step, times in zip(steps, predicted, strict=True)]


def _build_estimate(workload: Workload, times: StepTimes, iteration: Estimate) -> StepEstimate:
    whole = times.kernel_s + times.gap_s
    phases = {
        phase: float(sum(whole[n] for n, operator in enumerate(workload.operators) if operator.phase is phase))
        for phase in StepPhase
    }
    value = times.iteration_s
    busy = min(float(times.kernel_s.sum()), value)
    return StepEstimate(
        iteration=iteration,
        phases=phases,
        busy_s=busy,
        overhead_s=value - busy,
        kernel_s=times.kernel_s,
        gap_s=times.gap_s,
        evidence=times.evidence,
        limits=times.limits,
        mfu=times.mfu,
    )


def find_method_file(folder: Path, device: str, method: str | None) -> Path:
    """The path of the model of a device: models of methods that are not the default have folders of their own."""
    return (folder / method if method and method not in DEFAULT_METHODS else folder) / f"{device}{SUFFIX}"


def _find_file(device: str, folder: Path | None) -> Path | None:
    named = {_normalize(path.stem): path for path in _list_folder(folder)}
    return named.get(_normalize(device))


def _list_folder(folder: Path | None) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}")) if folder and folder.is_dir() else []


def _list_files(learned: Path | None, *, method: str | None = None) -> dict[str, tuple[Path, str]]:
    """Files by the name of the device; learned ones replace shipped ones."""
    found: dict[str, tuple[Path, str]] = {}
    for folder, times in ((learned, "learned"), (_find_shipped(), "shipped")):
        for path in _list_folder(folder / method if folder and method else folder):
            found.setdefault(path.stem, (path, times))
    return found


def _find_shipped() -> Path:
    return Path(str(resources.files("foretell.steps") / "weights"))


def _normalize(name: str) -> str:
    """Lower-case letters and digits only."""
    return "".join(filter(str.isalnum, name.lower()))


__all__ = [
    "StepPredictor",
    "build_figure_predictor",
    "find_method_file",
    "find_step_predictor",
    "fit_step_predictor",
    "list_step_predictors",
    "load_shipped_predictors",
    "load_step_predictor",
    "measure_spreads",
]
