"""NeuSight's steps without the GPUs that its authors leave out: no kernel of H100 or A100-80 is known, and no step.

For AMD's devices no kernel of AMD is known; a second row has levels from steps of other families on the other one of
them. NVIDIA's have a second row without kernels of AMD: products in single precision are then NeuSight's own, of the
GPUs that it was fitted on. The note of each row has the error of NeuSight itself, as published, on the same steps.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from benchmarks.gpus import neusight_steps
from benchmarks.gpus.protocol_kernels import load_protocol_models
from benchmarks.gpus.results import Result, judge
from benchmarks.gpus.whole_steps import StepCase, UnseenStep, build_case, leave_devices_out
from foretell.core.devices import get_device

_GOALS = {("training", "NVIDIA"): 5.0, ("training", "AMD"): 10.0, ("inference", "NVIDIA"): 7.0}
_MODES = ("training", "inference")


def judge_neusight(devices: Sequence[str] = ()) -> list[Result]:
    """Steps of language models, of all devices and of those that NeuSight has seen or not."""
    steps = _predict(_build_protocol())
    corrected = leave_devices_out([case for case in _build_protocol() if case.device.vendor == "AMD"])
    without_amd = _predict(_build_protocol(amd=False))
    found: list[Result] = []
    for mode in _MODES:
        found += _judge_vendors(mode, _keep(steps, mode, devices))
        some = _keep(corrected, mode, devices)
        found += _judge(mode, "AMD, with steps of the other AMD device", some, _GOALS.get((mode, "AMD")))
        nvidia = _choose(without_amd, lambda each: each.case.device.vendor == "NVIDIA")
        found += _judge(mode, "NVIDIA, without kernels of AMD", _keep(nvidia, mode, devices))
    return found


@cache
def _build_protocol(*, amd: bool = True) -> tuple[StepCase, ...]:
    """The steps; without ``amd``, no kernels of AMD for devices of NVIDIA either."""
    cases = [
        build_case(label, models=load_protocol_models(get_device(label.device).vendor if amd else "AMD"))
        for label in neusight_steps.list_labels()
    ]
    return tuple(case for case in cases if case is not None)


def _predict(cases: Sequence[StepCase]) -> list[UnseenStep]:
    return [UnseenStep(case=case, predicted_s=case.predicted_s, seen=_was_fitted(case)) for case in cases]


def _was_fitted(case: StepCase) -> bool:
    return case.device.name in neusight_steps.SEEN


def _judge_vendors(mode: str, steps: Sequence[UnseenStep]) -> list[Result]:
    nvidia = _choose(steps, lambda each: each.case.device.vendor == "NVIDIA")
    found = [
        *_judge(mode, "NVIDIA", nvidia, _GOALS[mode, "NVIDIA"]),
        *_judge(mode, "NVIDIA, seen by NeuSight", _choose(nvidia, lambda each: each.seen)),
        *_judge(mode, "NVIDIA, unseen", _choose(nvidia, lambda each: not each.seen)),
        *_judge(mode, "AMD", _choose(steps, lambda each: each.case.device.vendor == "AMD")),
    ]
    for name in sorted({each.case.device.name for each in steps}):
        own = [each for each in steps if each.case.device.name == name]
        found += _judge(mode, name, own)
    return found


def _choose(steps: Sequence[UnseenStep], condition: Callable[[UnseenStep], bool]) -> list[UnseenStep]:
    return [each for each in steps if condition(each)]


def _keep(steps: Sequence[UnseenStep], mode: str, devices: Sequence[str]) -> list[UnseenStep]:
    own = [each for each in steps if each.case.label.mode == mode]
    return [each for each in own if not devices or each.case.device.name in devices]


def _judge(mode: str, group: str, steps: Sequence[UnseenStep], goal: float | None = None) -> list[Result]:
    if not steps:
        return []
    predicted, measured = [each.predicted_s for each in steps], [each.case.label.seconds for each in steps]
    return [judge(f"NeuSight {mode}", group, predicted, measured, most=goal, note=_describe_published(steps))]


def _describe_published(steps: Sequence[UnseenStep]) -> str:
    """The mean error of NeuSight on those of the steps that it predicts."""
    published = neusight_steps.find_published()
    names = [neusight_steps.name_published(each.case.label) for each in steps]
    errors = [
        100 * abs(published[name] / each.case.label.seconds - 1)
        for name, each in zip(names, steps, strict=True)
        if name in published
    ]
    if not errors:
        return ""
    return f"NeuSight: mean {np.mean(errors):.1f}, median {np.median(errors):.1f}, of {len(errors)}"
