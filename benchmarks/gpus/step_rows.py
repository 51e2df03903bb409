"""Rows of whole steps, and the corrections that ship.

Levels of groups of kernels are learned from timm's and torchvision's models and from NeuSight's steps on AMD; every
reported step comes from levels of other families, or of other families on other devices. NeuSight's steps on NVIDIA
take no part in them.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks.ets.comparison import Plan, compare
from benchmarks.gpus import neusight_steps, own_steps, timm_steps, torchvision_steps
from benchmarks.gpus.models import build_torchvision
from benchmarks.gpus.results import Result, judge
from benchmarks.gpus.step_labels import StepLabel
from benchmarks.gpus.step_spreads import fit_spread, measure_coverage
from benchmarks.gpus.whole_steps import (
    StepCase,
    UnseenStep,
    apply_levels,
    build_cases,
    fit_levels,
    leave_devices_out,
    leave_families_out,
)
from foretell.core.devices import get_device, list_devices
from foretell.core.model_files import save_model
from foretell.steps.kernels.shipped_models import find_weights, load_kernel_models
from foretell.steps.kernels.step_corrections import StepCorrections, load_corrections
from foretell.steps.kernels.step_levels import StepLevels
from foretell.steps.kernels.step_times import KernelStepModel
from foretell.workloads.capture import capture
from foretell.workloads.step_options import InputSpec, StepOptions

# Families of torchvision and the ones of timm with the same networks.
_SAME = {"resnet": "resnet", "resnetwide": "resnet", "resnext": "resnet", "mnasnet": "efficientnet"}
_SHIFTS = tuple(np.linspace(0.4, 1.4, 6).tolist())  # of the host, tried
_SPEED_DEVICES = 50


# Cases


@cache
def _build_timm() -> tuple[StepCase, ...]:
    return tuple(build_cases(timm_steps.list_labels()))


@cache
def _build_neusight() -> tuple[StepCase, ...]:
    return tuple(build_cases(neusight_steps.list_labels()))


@cache
def _build_torchvision(host_shift: float) -> tuple[StepCase, ...]:
    return tuple(build_cases(torchvision_steps.list_labels(), host_shift=host_shift))


def _is_amd(case: StepCase) -> bool:
    return case.device.vendor == "AMD"


# Rows


def judge_whole(devices: Sequence[str] = ()) -> list[Result]:
    """timm's models of unseen families, on a seen device and on one left out; and the intervals of all."""
    seen, left_out = _predict_timm()
    found = []
    for name, some, goals in (
        ("other families", seen, {"inference": 8.0, "training": 10.0}),
        ("device left out too", left_out, {"inference": 12.0}),
    ):
        for mode in ("inference", "training"):
            kept = _keep([each for each in some if each.case.label.mode == mode], devices)
            found += _judge(f"timm {mode}, {name}", "all", kept, goals.get(mode), by="median")
            for device in sorted({each.case.device.name for each in kept}):
                own = [each for each in kept if each.case.device.name == device]
                found += _judge(f"timm {mode}, {name}", device, own, None)
    return [*found, *measure_coverage([*_list_seen(), *seen], left_out_steps=[*_list_left_out(), *left_out])]


@cache
def _predict_timm() -> tuple[tuple[UnseenStep, ...], tuple[UnseenStep, ...]]:
    cases = list(_build_timm())
    return tuple(leave_families_out(cases)), tuple(leave_devices_out(cases))


def _list_seen() -> list[UnseenStep]:
    """NeuSight's steps on devices whose operators it measured."""
    cases = [case for case in _build_neusight() if case.device.name in neusight_steps.SEEN]
    return [UnseenStep(case=case, predicted_s=case.predicted_s, seen=True) for case in cases]


def _list_left_out() -> list[UnseenStep]:
    return leave_devices_out([case for case in _build_neusight() if _is_amd(case)])


def judge_torchvision(devices: Sequence[str] = ()) -> list[Result]:
    """torchvision's models on an A100, by levels and a speed of the host from other families."""
    found: list[UnseenStep] = []
    for family in sorted({label.family for label in torchvision_steps.list_labels()}):
        timm = [case for case in _build_timm() if case.label.family != _SAME.get(family)]
        shift, levels = _fit_host(timm, partial(_is_other, family))
        cases = [case for case in _build_torchvision(shift) if case.label.family == family]
        found += [UnseenStep(case=case, predicted_s=apply_levels(case, levels), seen=True) for case in cases]
    rows = []
    for mode in ("inference", "training"):
        for precision in ("fp32", "pure-fp16"):
            kept = [each for each in found if (each.case.label.mode, each.case.label.precision) == (mode, precision)]
            rows += _judge(f"torchvision {mode} {precision}", "A100-40", _keep(kept, devices), 10.0, by="median")
    return rows


def _is_other(family: str, label: StepLabel) -> bool:
    return label.family != family


def _fit_host(timm: Sequence[StepCase], keep: Callable[[StepLabel], bool]) -> tuple[float, StepLevels]:
    """The speed of the host of torchvision's steps, and the levels of all with it."""
    plain = fit_levels(timm)
    errors = {}
    for shift in _SHIFTS:
        own = [case for case in _build_torchvision(shift) if keep(case.label)]
        errors[shift] = np.mean([abs(np.log(apply_levels(case, plain) / case.label.seconds)) for case in own])
    best = min(errors, key=lambda shift: float(errors[shift]))
    own = [case for case in _build_torchvision(best) if keep(case.label)]
    return best, fit_levels([*timm, *own])


def judge_ets(devices: Sequence[str] = ()) -> list[Result]:
    """ETS's traces of unseen families by the replay, without and with profiles."""
    if devices and "T4" not in devices:
        return []
    rows, _about = compare(Plan(), ["replay"])
    goals = {"zero-shot": 9.0, "+ 1 profile": 6.0, "+ 2 profiles": 5.0}
    return [
        Result(
            what=f"ETS, replay, {row.seen}",
            group="T4",
            cases=row.all_traces.traces,
            mean=row.all_traces.mre,
            median=row.all_traces.median,
            worst=row.all_traces.p90,
            most=goals[row.seen],
            note="median and worst: of signed errors, and their 90 % quantile",
        )
        for row in rows
        if row.seen in goals
    ]


def judge_speed(devices: Sequence[str] = ()) -> list[Result]:
    """The time of answers for a catalogue of devices, relative to one capture."""
    options = StepOptions(precision="bf16")
    gpus = [device for device in list_devices() if device.kind == "gpu"]
    chosen = [get_device(name) for name in devices] or gpus[:_SPEED_DEVICES]
    load_kernel_models()
    load_corrections()
    ratios = []
    for name in ("resnet50", "vit_b_16", "mobilenet_v3_large"):
        build_torchvision(name)
        begin = time.process_time()
        given = [InputSpec(shape=(64, 3, 224, 224))]
        workload = capture(build_torchvision(name), given, options=options, name=name)
        captured = time.process_time() - begin
        begin = time.process_time()
        for device in chosen:
            KernelStepModel(device).predict([workload])
        ratios.append(100 * (time.process_time() - begin) / captured)
    return [
        Result(
            what=f"answers for {len(chosen)} devices, % of one capture",
            group="all",
            cases=len(ratios),
            mean=float(np.mean(ratios)),
            median=float(np.median(ratios)),
            worst=float(max(ratios)),
            most=15.0,
        )
    ]


def judge_labels(path: Path, devices: Sequence[str] = ()) -> list[Result]:
    """Measured steps of the user's own, by the model as it ships."""
    found: list[Result] = []
    for label in own_steps.read_labels(path):
        if devices and label.device not in devices:
            continue
        found += _judge_own(label)
    return found


def _judge_own(label: StepLabel) -> list[Result]:
    workload = label.read()
    what = f"{label.model} {label.mode} {label.precision} batch {label.batch}"
    if workload is None:
        return []
    model = KernelStepModel(get_device(label.device))
    times = model.predict([workload])[0]
    interval = model.bound(times, 0.9)
    result = judge(what, label.device, [times.iteration_s], [label.seconds], note=max(times.evidence, default=""))
    inside = 100.0 * interval.contains(label.seconds)
    return [replace(result, inside=inside, width=100 * (interval.high - interval.low) / interval.value)]


def _judge(what: str, group: str, steps: Sequence[UnseenStep], goal: float | None, *, by: str = "mean") -> list[Result]:
    if not steps:
        return []
    predicted, measured = [each.predicted_s for each in steps], [each.case.label.seconds for each in steps]
    return [judge(what, group, predicted, measured, most=goal, by=by)]


def _keep(steps: Iterable[UnseenStep], devices: Sequence[str]) -> list[UnseenStep]:
    return [each for each in steps if not devices or each.case.device.name in devices]


# Weights


def write_corrections() -> None:
    """Fit levels on all whole models and intervals on steps that were left out, and save them with the package."""
    amd = [case for case in _build_neusight() if _is_amd(case)]
    shift, _ = _fit_host(_build_timm(), lambda _label: True)
    used = [*_build_timm(), *amd, *_build_torchvision(shift)]
    seen, left_out = _predict_timm()
    spread = fit_spread([*_list_seen(), *seen], left_out_steps=[*_list_left_out(), *left_out])
    corrections = StepCorrections(
        levels=fit_levels(used),
        spread=spread,
        seen={f"{case.device.name}/{_find_class(case)}": case.device.architecture for case in used},
    )
    save_model(find_weights("step"), corrections, {"steps": len(used)})


def _find_class(case: StepCase) -> str:
    return "half" if "16" in case.label.precision else "single"
