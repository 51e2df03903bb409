"""Passes over memory: devices left out in turn, without and with a few calls of them, and models never seen."""

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


def compare_passes(devices: Sequence[str] = ()) -> list[Result]:
    """The errors of passes on each device, or on each of these."""
    names = tuple(devices)
    unseen = judge_devices("passes, device left out", leave_out_devices(names), convolves=False, most=_MOST)
    known = judge_devices(
        "passes, device calibrated", calibrate_devices(names), convolves=False, most=None, note=_CALIBRATED
    )
    return [*unseen, *known, *_compare_models()]


def _compare_models() -> list[Result]:
    some = [one for one in leave_out_models(_FOLDED) if not one.observation.convolves]
    devices = sorted({one.observation.device for one in some})
    return [
        judge_some("passes, models never seen", name, [one for one in some if one.observation.device == name])
        for name in devices
    ]
