"""Convolutions in single precision, and passes: devices left out in turn, with and without a few calls, and models."""

from collections.abc import Sequence

from benchmarks.gpus.results import Result
from benchmarks.gpus.unseen_kernels import (
    Predicted,
    calibrate_devices,
    judge_devices,
    judge_some,
    leave_out_devices,
    leave_out_models,
)

_MOST = 15.0
_FOLDED = 100  # observations of each device, source and label, where models are left out
_CALIBRATED = "64 calls of the device are known"


def compare_convolutions(devices: Sequence[str] = ()) -> list[Result]:
    """The errors of convolutions on each device, or on each of these; those of models by class and direction."""
    return [*_compare_devices("convolutions", devices), *_compare_models(convolves=True)]


def compare_passes(devices: Sequence[str] = ()) -> list[Result]:
    """The errors of passes on each device, or on each of these."""
    return [*_compare_devices("passes", devices), *_compare_models(convolves=False)]


def _compare_devices(what: str, devices: Sequence[str]) -> list[Result]:
    names, convolves = tuple(devices), what == "convolutions"
    unseen, known = leave_out_devices(names), calibrate_devices(names)
    return [
        *judge_devices(f"{what}, device left out", unseen, convolves=convolves, most=_MOST),
        *judge_devices(f"{what}, device calibrated", known, convolves=convolves, most=None, note=_CALIBRATED),
    ]


def _compare_models(*, convolves: bool) -> list[Result]:
    groups: dict[tuple[str, str], list[Predicted]] = {}
    for one in leave_out_models(_FOLDED):
        if one.observation.convolves == convolves:
            label = one.observation.label if convolves else "passes"
            groups.setdefault((label, one.observation.device), []).append(one)
    most = _MOST if convolves else None
    return [
        judge_some(f"{label}, models never seen", device, some, most=most)
        for (label, device), some in sorted(groups.items(), key=lambda item: item[0])
    ]
