"""Convolutions in single precision: devices left out in turn, without and with a few calls, and models never seen."""

from collections.abc import Sequence

from benchmarks.gpus.results import Result
from benchmarks.gpus.unseen_kernels import (
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
    """The errors of convolutions on each device, or on each of these."""
    names = tuple(devices)
    unseen = judge_devices("convolutions, device left out", leave_out_devices(names), convolves=True, most=_MOST)
    known = judge_devices(
        "convolutions, device calibrated", calibrate_devices(names), convolves=True, most=None, note=_CALIBRATED
    )
    return [*unseen, *known, *_compare_models()]


def _compare_models() -> list[Result]:
    """By class and direction."""
    some = [one for one in leave_out_models(_FOLDED) if one.observation.convolves]
    groups = sorted({(one.observation.label, one.observation.device) for one in some})
    return [
        judge_some(
            f"{label}, models never seen",
            device,
            [one for one in some if (one.observation.label, one.observation.device) == (label, device)],
            most=_MOST,
        )
        for label, device in groups
    ]
