"""Predicts steps on many devices: the step is captured once, and every device is predicted from it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from foretell.core import devices
from foretell.core.device_figures import open_device
from foretell.core.devices import Device
from foretell.core.errors import Mistake, NotFoundError, SpecError
from foretell.core.generation import Generation
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import MeasuredStep, StepEstimate, StepPhase, Workload
from foretell.steps.generation_results import GenerationPrediction, GenerationPredictions
from foretell.steps.kernels.calibration_file import Calibration
from foretell.steps.step_predictor import StepPredictor, build_figure_predictor, find_step_predictor
from foretell.steps.step_results import LeftOutDevice, StepPrediction, StepPredictions
from foretell.workloads.workload_warnings import find_generation_warnings, find_warnings

_P = TypeVar("_P", StepPrediction, GenerationPrediction)

ALL = "all"  # of the catalogue
_LEAST_SHARE = 0.05  # of the work, for a warning


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenDevices:
    """The predictors of the requested devices, and devices that have none."""

    predictors: tuple[StepPredictor, ...]
    left_out: tuple[LeftOutDevice, ...] = ()
    ranked: bool = False  # the fastest first, instead of as requested

    def predict(
        self, workloads: Iterable[Workload], *, profiles: Sequence[MeasuredStep] = (), level: float
    ) -> StepPredictions:
        """Each step on each device."""
        found = [each for workload in workloads for each in self._predict(workload, profiles, level)]
        return StepPredictions(
            predictions=tuple(self._sort(found, lambda each: each.examples_per_s)), left_out=self.left_out
        )

    def predict_generations(self, generations: Iterable[Generation], *, level: float) -> GenerationPredictions:
        """Each text on each device."""
        found = []
        for generation in generations:
            steps = [self._predict(step, (), level) for step in (generation.prefill, *generation.decodes)]
            limits = find_generation_warnings(generation)
            for parts in zip(*steps, strict=True):
                first = replace(parts[0], warnings=(*parts[0].warnings, *limits))
                found.append(GenerationPrediction(generation=generation, steps=(first, *parts[1:])))
        return GenerationPredictions(
            predictions=tuple(self._sort(found, lambda each: each.tokens_per_s)), left_out=self.left_out
        )

    def _predict(self, workload: Workload, profiles: Sequence[MeasuredStep], level: float) -> list[StepPrediction]:
        """A step on each device."""
        found = []
        common = find_warnings(workload)
        for predictor in self.predictors:
            own = [step for step in profiles if _is_of(step, predictor.device)]
            estimate = predictor.predict(workload, profiles=own, level=level)
            limits = (*predictor.warnings, *_warn_of_evidence(estimate, predictor.device))
            found.append(
                StepPrediction(
                    workload=workload,
                    device=predictor.device.name,
                    method=predictor.method,
                    estimate=estimate,
                    warnings=(*limits, *common, *_warn_of_profiles(own, workload)),
                )
            )
        return found

    def _sort(self, predictions: Sequence[_P], rate: Callable[[_P], float]) -> list[_P]:
        """By device, and batches of a device as requested; the fastest device first, or as requested."""
        order = {predictor.device.name: place for place, predictor in enumerate(self.predictors)}
        if self.ranked:
            best: dict[str, float] = {}
            for each in predictions:
                best[each.device] = max(rate(each), best.get(each.device, 0.0))
            order = {name: place for place, name in enumerate(sorted(best, key=lambda name: -best[name]))}
        return sorted(predictions, key=lambda each: order[each.device])


def choose_devices(
    names: Sequence[str | Device],
    *,
    precision: str,
    method: str | None,
    learned: Path,
    profiles: Sequence[MeasuredStep] = (),
    calibrations: Sequence[Calibration] = (),
) -> ChosenDevices:
    """The predictors of devices by name, file or figures; ``all`` is every device of the catalogue.

    A single device that cannot be predicted is an error; of several, those that can are predicted.

    Raises:
        NotFoundError: There is no such device or method, or the only device has no model.
        SpecError: The only device lacks the precision, all devices do, or a profile or a
            calibration is of none of them.
    """
    wanted = _list_wanted(names)
    found: list[StepPredictor] = []
    left_out: list[LeftOutDevice] = []
    for name in wanted:
        try:
            predictor = _find_predictor(name, learned=learned, method=method, calibrations=calibrations)
            _check_precision(predictor.device, precision)
        except (NotFoundError, SpecError) as exc:
            if len(wanted) == 1 or not _is_known(name):
                raise
            left_out.append(LeftOutDevice(device=_get_name(name), reason=_describe_reason(exc, name, precision)))
        else:
            found.append(predictor)
    if not found:
        _refuse_all(left_out)
    _check_profiles(profiles, [predictor.device for predictor in found])
    _check_calibrations(calibrations, [predictor.device for predictor in found], method)
    return ChosenDevices(predictors=tuple(found), left_out=tuple(left_out), ranked=ALL in names)


def _list_wanted(names: Sequence[str | Device]) -> list[str | Device]:
    """Each device once, by its own name."""
    wanted: dict[str, str | Device] = {}
    for given in names:
        name = open_device(given) if isinstance(given, str) and given.lower().endswith(".toml") else given
        if name == ALL:
            wanted |= {device.name: device.name for device in devices.list_devices()}
            continue
        known = devices.find_device(name) if isinstance(name, str) else name
        own = known.name if known else str(name)
        wanted[own] = name if isinstance(name, Device) else own
    return list(wanted.values())


def _find_predictor(
    name: str | Device, *, learned: Path, method: str | None, calibrations: Sequence[Calibration]
) -> StepPredictor:
    own = [each for each in calibrations if isinstance(name, Device) and each.device.name == name.name]
    if isinstance(name, Device) and not (own and method in (None, "kernels")):
        return build_figure_predictor(name, method=method)
    return find_step_predictor(_get_name(name), learned=learned, method=method, calibrations=calibrations)


def _is_known(name: str | Device) -> bool:
    """Whether it is a device, and not a mistyped name of one."""
    return isinstance(name, Device) or devices.find_device(name) is not None


def _get_name(name: str | Device) -> str:
    return name.name if isinstance(name, Device) else name


def _check_precision(device: Device, precision: str) -> None:
    """Check it by the figures of the catalogue, which models that were fitted earlier do not have."""
    devices.check_precision(devices.find_device(device.name) or device, precision)


def _describe_reason(exc: NotFoundError | SpecError, name: str | Device, precision: str) -> str:
    """In a few words, for a list of many devices."""
    if isinstance(exc, NotFoundError):
        return f"no {exc.kind.removesuffix(' of a device')} of it"
    device = devices.get_device(name) if isinstance(name, str) else name
    types = devices.list_precisions(device)
    return (
        f"no {precision.removeprefix('pure-')}, only {' and '.join(filter(None, (', '.join(types[:-1]), types[-1])))}"
    )


def _refuse_all(left_out: Sequence[LeftOutDevice]) -> None:
    names = ", ".join(each.device for each in left_out)
    expected = left_out[0].reason if left_out else "the name of a device, as 'foretell device list' shows them"
    raise SpecError("options", [Mistake(place="device", found=names or "no device", expected=expected)])


# Profiles and warnings


def _check_profiles(profiles: Sequence[MeasuredStep], known: Sequence[Device]) -> None:
    """Each profile must be of a device that is predicted."""
    for step in profiles:
        if not any(_is_of(step, device) for device in known):
            names = ", ".join(device.name for device in known)
            found = f"one of {step.workload.name} on {step.device}"
            expected = f"one that was measured on {names}, with 'foretell workload profile' there"
            raise SpecError("options", [Mistake(place="profile", found=found, expected=expected)])


def _check_calibrations(calibrations: Sequence[Calibration], known: Sequence[Device], method: str | None) -> None:
    """Each calibration must be of a device that is predicted, and of a method that uses it."""
    if calibrations and method not in (None, "kernels"):
        mistake = Mistake(place="calibration", found=f"with method {method!r}", expected="method 'kernels', or none")
        raise SpecError("options", [mistake])
    names = [device.name for device in known]
    for each in calibrations:
        if each.device.name not in names:
            expected = f"one of {', '.join(names)}; 'foretell device calibrate' makes one on a machine with that GPU"
            found = f"one of {each.device.name}"
            raise SpecError("options", [Mistake(place="calibration", found=found, expected=expected)])


def _is_of(step: MeasuredStep, device: Device) -> bool:
    known, measured = devices.find_device(device.name), devices.find_device(step.device)
    same_kind = (step.device == "cpu") == (device.kind == "cpu")
    return same_kind and not (known and measured and known != measured)


def _warn_of_evidence(estimate: StepEstimate, device: Device) -> list[PredictionWarning]:
    share = estimate.evidence.get("figures", 0.0)
    if share < _LEAST_SHARE:
        return []
    part = "Nothing was" if share > 1 - _LEAST_SHARE else f"{100 * share:.0f} % of the work was not"
    text = (
        f"{part} measured on {device.name} or on its architecture: its data sheet is used, and the interval is wider."
    )
    return [build_warning("evidence-figures", text, device=device.name, share=round(share, 3))]


def _warn_of_profiles(steps: Sequence[MeasuredStep], workload: Workload) -> list[PredictionWarning]:
    kinds = _list_forward(workload)
    return [
        build_warning(
            "other-profile",
            f"The profile of {step.workload.name} has other operators in its forward phase: "
            "it may be of another model.",
            profile=step.workload.name,
        )
        for step in steps
        if _list_forward(step.workload) != kinds
    ]


def _list_forward(workload: Workload) -> list[str]:
    return [operator.kind for operator in workload.operators if operator.phase is StepPhase.FORWARD]
