"""A model of a device, brought closer to one network by profiles of it: each operator keeps the factor it showed there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretell.entities.workload import Floats, MeasuredStep, Workload
from foretell.models.operators._base import StepTimes
from foretell.models.operators.hosts import HostTimes, name_word

_DEEP_S = 200e-6  # a device that far behind its host never waits for it
_FADING = 4.0  # an operator e**4 times as long as in the profile keeps 1/e of its own factor; the rest is the network's
_FADING_WHOLE = 2.0  # the same for the network's
_SHORT_S = 200e-6
_CROWDED_S = 5e-3  # a device that far behind may have no room for more launches
_MUCH = 3.0
_LIKE = 0.1
_DOUBT = 0.3
_MOST = 5.0  # the largest logarithm of a factor that is believed


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a model expects of a step, before any profile."""

    kernel_s: Floats
    least_s: Floats  # the roofline
    host: HostTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """What a profile showed against what was expected, position by position; not a number where nothing can be told."""

    words: tuple[str, ...]
    expected: Expectation
    kernel: Floats  # logarithms
    overall: float
    step_s: Floats  # the host's own steps
    host: float  # factor on all of the host's times


def compare(profile: MeasuredStep, expected: Expectation) -> Factors:
    """A profile against what a model expects of the same step."""
    kernel = _compare_kernels(profile, expected.kernel_s)
    known = np.isfinite(kernel)
    seconds = expected.kernel_s[known]
    overall = float((kernel[known] * seconds * _believe(seconds)).sum() / seconds.sum()) if known.any() else 0.0
    steps, factor = _compare_steps(profile, expected.host)
    return Factors(
        words=tuple(map(name_word, profile.workload.operators)),
        expected=expected,
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
    for i, j in zip(recorded.tolist(), [*recorded[1:].tolist(), len(expected_s)], strict=True):
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
        if behind < _CROWDED_S or step < _MUCH * foreseen:  # or the host waited for room in the device's queue
            found[i + 1 : j + 1] = host.step_s[i + 1 : j + 1] * (step / foreseen)
    order = np.argsort(ratios)
    below = np.cumsum(np.array(weights)[order])
    return found, float(np.array(ratios)[order][np.searchsorted(below, below[-1] / 2)])


def apply(factors: Sequence[Factors], workload: Workload, expected: Expectation) -> tuple[Floats, HostTimes]:
    """What is expected of a step after profiles of the same network at other sizes."""
    words = tuple(map(name_word, workload.operators))
    fitting = [one for one in factors if one.words == words]
    pace = float(np.mean([one.host for one in factors]))
    if not fitting:  # another network after all: only how the device and the host fare is carried over
        overall = float(np.mean([one.overall for one in factors]))
        return expected.kernel_s * np.exp(overall), _scale(expected.host, pace, expected.host.step_s * pace)
    steps = np.array([one.step_s for one in fitting])
    measured = np.isfinite(steps)
    mean = np.where(measured, steps, 0.0).sum(axis=0) / np.maximum(measured.sum(axis=0), 1)
    usual = expected.host.step_s * pace
    host = _scale(expected.host, pace, np.where(measured.any(axis=0), mean, usual))
    return expected.kernel_s * np.exp(_blend(fitting, expected)), host


def _blend(factors: Sequence[Factors], expected: Expectation) -> Floats:
    """What all profiles say together; the ones at a like size say more."""
    far = np.array([_log_ratio(expected.kernel_s, one.expected.kernel_s) for one in factors])
    shown = np.array([_carry(one, away, expected) for one, away in zip(factors, far, strict=True)])
    weight = np.exp(-np.abs(far)) + 1e-9
    return np.asarray((shown * weight).sum(axis=0) / weight.sum(axis=0))


def _carry(one: Factors, away: Floats, expected: Expectation) -> Floats:
    """A profile's factors at another size: each operator's own as far as its time is like, and the network's beyond.

    Where the model was far off, it hardly knows how the time grows: then it grows as the roofline does.
    """
    whole = abs(float(np.log(expected.kernel_s.sum() / one.expected.kernel_s.sum())))
    common = one.overall * np.exp(-whole / _FADING_WHOLE)
    own = np.where(np.isfinite(one.kernel), one.kernel, common)
    doubt = np.abs(own) / (np.abs(own) + _DOUBT) * np.isfinite(one.kernel)
    growth = _log_ratio(expected.least_s, one.expected.least_s) - away
    near = np.exp(-np.abs(away) / _FADING) * np.where(np.abs(away) < _LIKE, 1.0, _believe(one.expected.kernel_s))
    return np.asarray(common + near * (own + doubt * growth - common))


def _log_ratio(above: Floats, below: Floats) -> Floats:
    return np.asarray(np.log((above + 1e-9) / (below + 1e-9)))


def _scale(host: HostTimes, pace: float, steps: Floats) -> HostTimes:
    return replace(host, step_s=steps, within_s=host.within_s * pace, after_wait_s=host.after_wait_s * pace)
