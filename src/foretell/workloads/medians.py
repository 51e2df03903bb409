"""One measured step from many: medians, with what looking on cost taken out."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from foretell.entities.workload import Floats, MeasuredStep, StepPhase, Workload
from foretell.workloads.events import StepTiming
from foretell.workloads.trace import Profile

KEPT_GAP = 0.3  # the share of a gap that is left to it, however much looking on cost


@dataclass(frozen=True, slots=True, kw_only=True)
class BareStep:
    """A step that nobody looked at; its phases where the host is the device."""

    step_s: float
    phases_s: Mapping[StepPhase, float] = field(default_factory=dict)


def build_profile(
    workload: Workload,
    timings: Sequence[StepTiming],
    bare: Sequence[BareStep],
    *,
    device: str,
    load: float | None = None,
    facts: Mapping[str, str] | None = None,
) -> Profile:
    """The steps' medians. Operators and gaps add up to the time of the steps that nobody looked at."""
    times = [each.step_s for each in bare]
    iteration = statistics.median(times)
    watched = statistics.median(timing.step_s for timing in timings)
    low, high = np.percentile(times, [25, 75])
    return Profile(
        step=_combine(workload, timings, bare, device=device, iteration_s=iteration),
        steps=len(times),
        spread=float(high - low) / 2 / iteration,
        overhead=watched / iteration - 1,
        load=load,
        facts=facts or {},
    )


def _combine(
    workload: Workload, timings: Sequence[StepTiming], bare: Sequence[BareStep], *, device: str, iteration_s: float
) -> MeasuredStep:
    order = _find_order(timings)
    kernel = _median([timing.kernel_s[order] for timing in timings])
    span = _median([timing.span_s[order] for timing in timings])
    period = _median([_find_periods(timing, order) for timing in timings])
    steps = _median([np.diff(timing.launch_s[order], prepend=0.0) for timing in timings])
    same = all(np.array_equal(timing.begin_s, timing.launch_s, equal_nan=True) for timing in timings)
    if same:  # the host is the device
        kernel, span, period = _correct(workload, order, kernel, span, period, timings=timings, bare=bare)
    period, scale = _fit(period, span, iteration_s, only_gaps=not same)
    kernel, span = kernel * scale, span * scale
    start = np.cumsum(period) - period
    launch = start if same else np.cumsum(steps) * _ratio(iteration_s, timings)
    return MeasuredStep(
        workload=workload,
        device=device,
        iteration_s=iteration_s,
        **{
            name: _spread_out(values, order, len(workload.operators))
            for name, values in (("kernel_s", kernel), ("span_s", span), ("start_s", start), ("launch_s", launch))
        },
    )


def _find_order(timings: Sequence[StepTiming]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Operators that were seen in all steps, in the order in which they began."""
    begins = np.array([timing.begin_s for timing in timings])
    seen = np.flatnonzero(~np.isnan(begins).any(axis=0))
    return seen[np.argsort(np.median(begins[:, seen], axis=0), kind="stable")]


def _find_periods(timing: StepTiming, order: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Floats:
    """From each operator's begin to the next one's; after the last one comes the next step's first one."""
    begins = timing.begin_s[order]
    return np.diff(begins, append=begins[0] + timing.step_s if begins.size else 0.0)


def _median(values: Sequence[Floats]) -> Floats:
    return np.asarray(np.median(np.array(values), axis=0), dtype=np.float64)


def _correct(
    workload: Workload,
    order: np.ndarray[tuple[int], np.dtype[np.intp]],
    kernel: Floats,
    span: Floats,
    period: Floats,
    *,
    timings: Sequence[StepTiming],
    bare: Sequence[BareStep],
) -> tuple[Floats, Floats, Floats]:
    """Phase by phase: looking on lengthens the gaps; a phase that was quicker while watched had luck as a whole."""
    phases = np.array([workload.operators[place].phase for place in order])
    gap = np.maximum(period - span, 0.0)
    factor, kept = np.ones_like(period), np.ones_like(period)
    for phase in StepPhase:
        mine = phases == phase
        watched = statistics.median(timing.phases_s[phase] for timing in timings)
        alone = statistics.median(each.phases_s.get(phase, watched) for each in bare)
        if not mine.any() or watched <= 0:
            continue
        excess, gaps = watched - alone, float(gap[mine].sum())
        if excess <= 0:
            factor[mine] = alone / watched
        elif gaps > 0:
            kept[mine] = max(KEPT_GAP, 1 - excess / gaps)
    inner = kernel + (span - kernel) * kept  # gaps there are within an operator, too
    return kernel * factor, inner * factor, (period - span - gap + inner + gap * kept) * factor


def _fit(period: Floats, span: Floats, iteration_s: float, *, only_gaps: bool) -> tuple[Floats, float]:
    """Periods that add up to the iteration, and by how much the operators' own times change for that."""
    total = float(period.sum())
    if total <= 0:
        return period, 1.0
    if not only_gaps:
        return period * (iteration_s / total), iteration_s / total
    gap = np.maximum(period - span, 0.0)
    if gap.sum() <= 0:
        return period * (iteration_s / total), 1.0
    return period + gap * ((iteration_s - total) / gap.sum()), 1.0


def _ratio(iteration_s: float, timings: Sequence[StepTiming]) -> float:
    return iteration_s / statistics.median(timing.step_s for timing in timings)


def _spread_out(values: Floats, order: np.ndarray[tuple[int], np.dtype[np.intp]], count: int) -> Floats:
    found = np.full(count, np.nan)
    found[order] = values
    return found
