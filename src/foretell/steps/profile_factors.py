"""A model of a device, brought closer to one network by profiles of it: operators keep the factors they showed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretell.core.workload import Floats, MeasuredStep, Operator, Workload
from foretell.steps.device_tasks import DeviceTask, TaskKind, split_operator
from foretell.steps.host_times import HostTimes, name_operator

_DEEP_S = 200e-6  # a device that far behind its host never waits for it
_CROWDED_S = 5e-3  # a device that far behind may have no room for more launches
_MUCH = 3.0  # times as long as foreseen: the host may have waited for that room
_SHORT_S = 100e-6  # an operator of that length is half work, half all that comes with a launch
_FADING = 4.0  # a step e**4 times as long as the profile keeps 1/e of its factor
_MOST = 5.0  # the largest logarithm of a factor that is believed
_WEIGHT = 0.3  # of what is expected without a profile, in operators just like the one asked for
_USUAL = 0.15  # the logarithm by which a model is off as a rule; where it is off by more, it weighs less
_OFTEN = 4  # repeats of an operator that count

# By how much, in powers of two, an operator's sizes may differ to be like another: see _place
_SCALES = np.array([1.4, 1.5, 1.5, 0.7, 1.0, 1.5])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTimes:
    """What a model expects of a step, before any profile."""

    kernel_s: Floats
    host: HostTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFactors:
    """What a profile showed against what was expected, position by position; not a number where nothing can be told."""

    words: NDArray[np.str_]
    places: Floats  # see _place
    expected_s: Floats  # kernels
    kernel: Floats  # logarithms
    overall: float
    step_s: Floats  # the host's own steps
    host: float  # factor on all of the host's times


def compare_profile(profile: MeasuredStep, expected: ExpectedTimes) -> ProfileFactors:
    """A profile against what a model expects of the same step."""
    kernel = _compare_kernels(profile, expected.kernel_s)
    known = np.isfinite(kernel)
    seconds = expected.kernel_s[known]
    overall = float((kernel[known] * seconds * _believe(seconds)).sum() / seconds.sum()) if known.any() else 0.0
    steps, factor = _compare_steps(profile, expected.host)
    operators = profile.workload.operators
    return ProfileFactors(
        words=np.array([name_operator(operator) for operator in operators]),
        places=_place_all(operators),
        expected_s=expected.kernel_s,
        kernel=kernel,
        overall=overall,
        step_s=steps,
        host=factor,
    )


def _believe(seconds: Floats) -> Floats:
    """How far an operator's factor tells of its work: what is over at once is all launch, and tells of that."""
    return seconds / (seconds + _SHORT_S)


def _compare_kernels(profile: MeasuredStep, expected_s: Floats) -> Floats:
    """Operators without a record share the factor of the gap they stand in."""
    found = np.full(len(expected_s), np.nan)
    recorded = np.flatnonzero(np.isfinite(profile.start_s))
    busy = np.minimum(profile.kernel_s, profile.span_s)
    end = profile.start_s + profile.span_s
    for i, j in zip(recorded.tolist(), [*recorded.tolist(), len(expected_s)][1:], strict=True):
        own, between = slice(i, i + 1), slice(i + 1, j)
        deep = j < len(expected_s) and profile.start_s[j] - profile.launch_s[j] > _DEEP_S
        gap = max(profile.start_s[j] - end[i], 0.0) if deep else 0.0
        if j == i + 1:
            _note(found, own, busy[i] + gap, expected_s)
        else:
            _note(found, own, busy[i], expected_s)
            if deep:
                _note(found, between, gap, expected_s)
    return found


def _note(found: Floats, where: slice, seconds: float, expected_s: Floats) -> None:
    expected = float(expected_s[where].sum())
    if expected > 0 and seconds > 0:
        found[where] = np.clip(np.log(seconds / expected), -_MOST, _MOST)


def _compare_steps(profile: MeasuredStep, host: HostTimes) -> tuple[Floats, float]:
    """The host's steps as they were where it did not wait, and the factor on those it is known to have taken."""
    found = np.full(len(host.step_s), np.nan)
    recorded = np.flatnonzero(np.isfinite(profile.launch_s))
    ratios, weights = [1.0], [1e-9]
    for i, j in zip(recorded[:-1].tolist(), recorded[1:].tolist(), strict=True):
        step = float(profile.launch_s[j] - profile.launch_s[i])
        foreseen = float(host.step_s[i + 1 : j + 1].sum())
        behind = profile.start_s[i] + profile.span_s[i] - profile.launch_s[i]
        if foreseen <= 0 or (behind > foreseen and host.waits[i + 1 : j + 1].any()):
            continue
        ratios.append(step / foreseen)
        weights.append(foreseen)
        if behind < _CROWDED_S or step < _MUCH * foreseen:
            found[i + 1 : j + 1] = host.step_s[i + 1 : j + 1] * (step / foreseen)
    order = np.argsort(ratios)
    below = np.cumsum(np.array(weights)[order])
    return found, float(np.array(ratios)[order][np.searchsorted(below, below[-1] / 2)])


def apply_factors(
    factors: Sequence[ProfileFactors], workload: Workload, expected: ExpectedTimes
) -> tuple[Floats, HostTimes]:
    """What is expected of a step after profiles of the same network at other sizes."""
    words = np.array([name_operator(operator) for operator in workload.operators])
    kernel = expected.kernel_s * np.exp(_blend(factors, words, _place_all(workload.operators), expected.kernel_s))
    pace = float(np.mean([one.host for one in factors]))
    usual = expected.host.step_s * pace
    steps = [one.step_s for one in factors if np.array_equal(one.words, words)]
    if steps:  # else another network after all: only how fast the host is can be carried over
        measured = np.isfinite(steps)
        mean = np.where(measured, steps, 0.0).sum(axis=0) / np.maximum(measured.sum(axis=0), 1)
        usual = np.where(measured.any(axis=0), mean, usual)
    host = expected.host
    return kernel, replace(host, step_s=usual, within_s=host.within_s * pace, after_wait_s=host.after_wait_s * pace)


def _blend(factors: Sequence[ProfileFactors], words: NDArray[np.str_], places: Floats, expected_s: Floats) -> Floats:
    """Each operator's logarithm of a factor: what like operators showed, or else the whole network."""
    total = max(float(expected_s.sum()), 1e-12)
    near = np.array([math.exp(-abs(math.log(total / max(one.expected_s.sum(), 1e-12))) / _FADING) for one in factors])
    common = float(np.array([one.overall for one in factors]) @ near**2 / near.sum())
    found = np.full(len(words), common)
    for word in np.unique(words):
        mine = np.flatnonzero(words == word)
        distinct, back = np.unique(places[mine], axis=0, return_inverse=True)
        sums, weights = np.zeros(len(distinct)), np.zeros(len(distinct))
        for one in factors:
            shown, seconds, counts, where = _gather(one, word)
            if len(shown):
                far = (((distinct[:, None] - where[None]) / _SCALES) ** 2).sum(axis=2)
                weight = np.exp(-far / 2) * _believe(seconds) * np.minimum(counts, _OFTEN)
                sums += weight @ (shown - common)
                weights += weight.sum(axis=1)
        off = np.abs(sums) / np.maximum(weights, 1e-9)
        held = _WEIGHT * np.minimum(1.0, _USUAL / np.maximum(off, 1e-6))
        found[mine] += (sums / (weights + held))[back.ravel()]
    return found


def _gather(one: ProfileFactors, word: str) -> tuple[Floats, Floats, Floats, Floats]:
    """A profile's distinct operators of a kind: logarithms of factors, expected seconds, how many there are, places."""
    chosen = np.flatnonzero((one.words == word) & np.isfinite(one.kernel))
    places, first, counts = np.unique(one.places[chosen], axis=0, return_index=True, return_counts=True)
    at = chosen[first]
    return one.kernel[at], one.expected_s[at], counts.astype(float), places


def _place_all(operators: Sequence[Operator]) -> Floats:
    known = {operator: _place(split_operator(operator)) for operator in dict.fromkeys(operators)}
    return np.array([known[operator] for operator in operators]).reshape(len(operators), len(_SCALES))


def _place(parts: Sequence[DeviceTask]) -> tuple[float, ...]:
    """Where an operator lies among its kind, in powers of two: by its largest part's sizes."""
    if not parts:
        return (0.0,) * len(_SCALES)
    part = max(parts, key=lambda one: one.flops * one.repeats + one.bytes_moved)
    size = [math.log2(max(value, 1e-9)) for value in part.sizes]
    if part.work is TaskKind.CONVOLUTION:
        images, channels, made, groups, _, out, kernel, _, stride, *_ = size
        return (images + 2 * out, channels, made, out, 4 * stride + 2 * kernel, groups + math.log2(part.repeats))
    if part.work is TaskKind.PRODUCT:
        return (*size[:4], 0.0, 0.0)
    return (size[4], size[3], 0.0, 0.0, 0.0, 0.0)
