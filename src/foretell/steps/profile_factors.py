"""Corrects the prediction of a network by its profiles: operators keep their measured factors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretell.core.workload import Floats, MeasuredStep, Operator, Workload
from foretell.steps.device_tasks import DeviceTask, TaskKind, split_operator
from foretell.steps.host_times import HostTimes, name_operator

_DEEP_S = 200e-6  # a device this far behind never waits for its host
_FULL_QUEUE_S = 5e-3  # if the device is this far behind, its launch queue may be full
_QUEUE_RATIO = 3.0  # measured over expected time of a host that may have waited for the queue
_SHORT_S = 100e-6  # half of the time of such an operator is launch
_FADING = 4.0  # a step e**4 times as long as the profile has 1/e of its factor
_LARGEST = 5.0  # log factor
_WEIGHT = 0.3  # of the prediction without a profile, in equal operators
_USUAL_ERROR = 0.15  # log ratio; where the error is larger, the prediction has less weight
_MOST_REPEATS = 4  # repeats of an operator that count

# Distances in powers of two at which operators are similar: see _locate
_SCALES = np.array([1.4, 1.5, 1.5, 0.7, 1.0, 1.5])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTimes:
    """The times that a model expects without a profile."""

    kernel_s: Floats
    host: HostTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFactors:
    """Ratios of measured to expected times, position by position; NaN where unknown."""

    names: NDArray[np.str_]
    places: Floats  # see _locate
    expected_s: Floats  # kernels
    kernel: Floats  # log ratios
    overall: float
    step_s: Floats  # of the host
    host: float  # ratio of all times of the host


def compare_profile(profile: MeasuredStep, expected: ExpectedTimes) -> ProfileFactors:
    """The ratios of a profile to the expected times of the same step."""
    kernel = _compare_kernels(profile, expected.kernel_s)
    known = np.isfinite(kernel)
    seconds = expected.kernel_s[known]
    overall = float((kernel[known] * seconds * _weigh(seconds)).sum() / seconds.sum()) if known.any() else 0.0
    steps, factor = _compare_host(profile, expected.host)
    operators = profile.workload.operators
    return ProfileFactors(
        names=np.array([name_operator(operator) for operator in operators]),
        places=_locate_all(operators),
        expected_s=expected.kernel_s,
        kernel=kernel,
        overall=overall,
        step_s=steps,
        host=factor,
    )


def _weigh(seconds: Floats) -> Floats:
    """The weight of an operator by its time: short operators are mostly launch."""
    return seconds / (seconds + _SHORT_S)


def _compare_kernels(profile: MeasuredStep, expected_s: Floats) -> Floats:
    """Log ratios of operators; unrecorded ones share that of the gap they are in."""
    found = np.full(len(expected_s), np.nan)
    recorded = np.flatnonzero(np.isfinite(profile.start_s))
    busy = np.minimum(profile.kernel_s, profile.span_s)
    end = profile.start_s + profile.span_s
    for i, j in zip(recorded.tolist(), [*recorded.tolist(), len(expected_s)][1:], strict=True):
        own, between = slice(i, i + 1), slice(i + 1, j)
        deep = j < len(expected_s) and profile.start_s[j] - profile.launch_s[j] > _DEEP_S
        gap = max(profile.start_s[j] - end[i], 0.0) if deep else 0.0
        if j == i + 1:
            _set_ratio(found, own, busy[i] + gap, expected_s)
        else:
            _set_ratio(found, own, busy[i], expected_s)
            if deep:
                _set_ratio(found, between, gap, expected_s)
    return found


def _set_ratio(found: Floats, where: slice, seconds: float, expected_s: Floats) -> None:
    expected = float(expected_s[where].sum())
    if expected > 0 and seconds > 0:
        found[where] = np.clip(np.log(seconds / expected), -_LARGEST, _LARGEST)


def _compare_host(profile: MeasuredStep, host: HostTimes) -> tuple[Floats, float]:
    """The times of the host where it did not wait, and the median ratio to expected times."""
    found = np.full(len(host.step_s), np.nan)
    recorded = np.flatnonzero(np.isfinite(profile.launch_s))
    ratios, weights = [1.0], [1e-9]
    for i, j in zip(recorded[:-1].tolist(), recorded[1:].tolist(), strict=True):
        step = float(profile.launch_s[j] - profile.launch_s[i])
        expected = float(host.step_s[i + 1 : j + 1].sum())
        behind = profile.start_s[i] + profile.span_s[i] - profile.launch_s[i]
        if expected <= 0 or (behind > expected and host.waits[i + 1 : j + 1].any()):
            continue
        ratios.append(step / expected)
        weights.append(expected)
        if behind < _FULL_QUEUE_S or step < _QUEUE_RATIO * expected:
            found[i + 1 : j + 1] = host.step_s[i + 1 : j + 1] * (step / expected)
    order = np.argsort(ratios)
    below = np.cumsum(np.array(weights)[order])
    return found, float(np.array(ratios)[order][np.searchsorted(below, below[-1] / 2)])


def apply_factors(
    factors: Sequence[ProfileFactors], workload: Workload, expected: ExpectedTimes
) -> tuple[Floats, HostTimes]:
    """The expected times of a step, corrected by profiles of the same network at other sizes."""
    names = np.array([name_operator(operator) for operator in workload.operators])
    kernel = expected.kernel_s * np.exp(_blend(factors, names, _locate_all(workload.operators), expected.kernel_s))
    speed = float(np.mean([one.host for one in factors]))
    usual = expected.host.step_s * speed
    steps = [one.step_s for one in factors if np.array_equal(one.names, names)]
    if steps:  # else it is another network: only the speed of the host is used
        measured = np.isfinite(steps)
        mean = np.where(measured, steps, 0.0).sum(axis=0) / np.maximum(measured.sum(axis=0), 1)
        usual = np.where(measured.any(axis=0), mean, usual)
    host = expected.host
    return kernel, replace(host, step_s=usual, within_s=host.within_s * speed, after_wait_s=host.after_wait_s * speed)


def _blend(factors: Sequence[ProfileFactors], names: NDArray[np.str_], places: Floats, expected_s: Floats) -> Floats:
    """The log factor of each operator: that of similar operators, or of the whole network."""
    total = max(float(expected_s.sum()), 1e-12)
    near = np.array([math.exp(-abs(math.log(total / max(one.expected_s.sum(), 1e-12))) / _FADING) for one in factors])
    common = float(np.array([one.overall for one in factors]) @ near**2 / near.sum())
    found = np.full(len(names), common)
    for name in np.unique(names):
        mine = np.flatnonzero(names == name)
        distinct, back = np.unique(places[mine], axis=0, return_inverse=True)
        sums, weights = np.zeros(len(distinct)), np.zeros(len(distinct))
        for one in factors:
            ratios, seconds, counts, where = _gather(one, name)
            if len(ratios):
                distance = (((distinct[:, None] - where[None]) / _SCALES) ** 2).sum(axis=2)
                weight = np.exp(-distance / 2) * _weigh(seconds) * np.minimum(counts, _MOST_REPEATS)
                sums += weight @ (ratios - common)
                weights += weight.sum(axis=1)
        off = np.abs(sums) / np.maximum(weights, 1e-9)
        held = _WEIGHT * np.minimum(1.0, _USUAL_ERROR / np.maximum(off, 1e-6))
        found[mine] += (sums / (weights + held))[back.ravel()]
    return found


def _gather(one: ProfileFactors, name: str) -> tuple[Floats, Floats, Floats, Floats]:
    """The distinct operators of a kind in a profile: log factors, expected seconds, counts, places."""
    chosen = np.flatnonzero((one.names == name) & np.isfinite(one.kernel))
    places, first, counts = np.unique(one.places[chosen], axis=0, return_index=True, return_counts=True)
    at = chosen[first]
    return one.kernel[at], one.expected_s[at], counts.astype(float), places


def _locate_all(operators: Sequence[Operator]) -> Floats:
    known = {operator: _locate(split_operator(operator)) for operator in dict.fromkeys(operators)}
    return np.array([known[operator] for operator in operators]).reshape(len(operators), len(_SCALES))


def _locate(tasks: Sequence[DeviceTask]) -> tuple[float, ...]:
    """The position of an operator among its kind, in powers of two, by the sizes of its largest task."""
    if not tasks:
        return (0.0,) * len(_SCALES)
    task = max(tasks, key=lambda one: one.flops * one.repeats + one.bytes_moved)
    size = [math.log2(max(value, 1e-9)) for value in task.sizes]
    if task.task_kind is TaskKind.CONVOLUTION:
        images, channels, made, groups, _, out, kernel, _, stride, *_ = size
        return (images + 2 * out, channels, made, out, 4 * stride + 2 * kernel, groups + math.log2(task.repeats))
    if task.task_kind is TaskKind.PRODUCT:
        return (*size[:4], 0.0, 0.0)
    return (size[4], size[3], 0.0, 0.0, 0.0, 0.0)
