"""From what a profiler saw of a step to the times of its operators. No PyTorch in here: events go in, times come out.

The rules are those of the capture. A call of the model's code that computes is an operator; what a node of the
backward phase computes belongs to the forward call whose numbers it bears; a sum after a call's last node adds up
gradients; in the update, each computing call is an operator.
"""

import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum

import numpy as np

from foretell.core.workload import Floats, MeasuredStep, Operator, StepPhase, Workload
from foretell.workloads.profile_files import Profile

ACCUMULATE = "accumulate"
ADDITIONS = frozenset({"add", "add_"})


class Role(StrEnum):
    """What an event tells of."""

    STEP = "step"  # one whole training step
    PHASE = "phase"  # named as the phase
    CALL = "call"  # of the model's code, named by its kind
    NODE = "node"  # of the backward phase
    FREE = "free"  # a call of the framework that computes nothing itself
    COMPUTE = "compute"  # a computing call of the framework
    LAUNCH = "launch"  # of a kernel, on the host
    KERNEL = "kernel"  # on the device


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a profiler saw, in nanoseconds of one clock."""

    role: Role
    name: str
    begin: int
    end: int
    thread: int = 0
    sequence: int = -1  # the number of the backward phase's node that it makes, or is
    link: int = -1  # the same for a launch and its kernel


@dataclass(slots=True)
class _Work:
    """What one operator did."""

    kind: str
    parts: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """When each operator of one step ran, in seconds from the step's begin; not a number where it was not seen."""

    begin_s: Floats
    span_s: Floats
    kernel_s: Floats
    launch_s: Floats
    step_s: float
    phases_s: Mapping[StepPhase, float]  # of the host


def time_steps(events: Iterable[Event], workload: Workload) -> list[StepTiming]:
    """The times of a workload's operators in each step that was seen."""
    ordered = sorted(events, key=lambda event: (event.begin, -event.end))
    steps = [event for event in ordered if event.role is Role.STEP]
    begins = [step.begin for step in steps]
    parts: list[list[Event]] = [[] for _ in steps]
    kernels = {event.link: event for event in ordered if event.role is Role.KERNEL}
    for event in ordered:
        place = bisect_right(begins, event.begin) - 1
        if place >= 0 and event.role not in (Role.STEP, Role.KERNEL):
            parts[place].append(event)
    return [_time_step(step, part, kernels, workload) for step, part in zip(steps, parts, strict=True)]


def _time_step(step: Event, events: Sequence[Event], kernels: dict[int, Event], workload: Workload) -> StepTiming:
    works = _Reader(events).read()
    count = len(workload.operators)
    begin, span, kernel, launch = (np.full(count, np.nan) for _ in range(4))
    launches = [event for event in events if event.role is Role.LAUNCH and event.link in kernels]
    zero = min((kernels[event.link].begin for event in launches), default=step.begin)
    for place, work in _match(workload.operators, works):
        spans, sent = _find_spans(work.parts, launches, kernels) if launches else (work.parts, work.parts)
        if not spans:
            continue
        begin[place] = (min(event.begin for event in spans) - zero) / 1e9
        span[place] = (max(event.end for event in spans) - zero) / 1e9 - begin[place]
        kernel[place] = sum(event.end - event.begin for event in spans) / 1e9
        launch[place] = (min(event.begin for event in sent) - zero) / 1e9
    return StepTiming(
        begin_s=begin,
        span_s=span,
        kernel_s=kernel,
        launch_s=launch,
        step_s=(step.end - step.begin) / 1e9,
        phases_s=_add_phases(events),
    )


def _add_phases(events: Sequence[Event]) -> dict[StepPhase, float]:
    """A phase has as many parts as the step has batches."""
    total = dict.fromkeys(StepPhase, 0.0)
    for event in events:
        if event.role is Role.PHASE:
            total[StepPhase(event.name)] += (event.end - event.begin) / 1e9
    return total


def _find_spans(
    parts: Sequence[Event], launches: Sequence[Event], kernels: dict[int, Event]
) -> tuple[list[Event], list[Event]]:
    """The kernels that were launched within these parts, and their launches."""
    begins = [event.begin for event in launches]
    sent = [
        launch
        for part in parts
        for launch in launches[bisect_right(begins, part.begin - 1) : bisect_right(begins, part.end)]
        if launch.thread == part.thread
    ]
    return [kernels[launch.link] for launch in sent], sent


class _Reader:
    """Who did what, from which event lies within which."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._calls: list[_Work] = []  # of the forward phase
        self._starts: list[int] = []  # first numbers of their nodes, and whose they are
        self._owners: list[_Work] = []
        self._backward: dict[int, _Work] = {}
        self._trailing: list[tuple[_Work | None, Event]] = []
        self._works: dict[StepPhase, list[_Work]] = {phase: [] for phase in StepPhase}

    def read(self) -> dict[StepPhase, list[_Work]]:
        """The works of each phase in order."""
        stacks: dict[int, list[tuple[Event, _Work | None]]] = {}
        phase = StepPhase.FORWARD
        for event in self._events:
            if event.role is Role.PHASE:
                phase = StepPhase(event.name)
                continue
            stack = stacks.setdefault(event.thread, [])
            while stack and stack[-1][0].end <= event.begin:
                stack.pop()
            work = self._place(event, stack, phase)
            if event.role is not Role.LAUNCH:
                stack.append((event, work))
        self._flush(None)
        self._works[StepPhase.FORWARD] = [work for work in self._calls if work.parts]
        return self._works

    def _place(self, event: Event, stack: Sequence[tuple[Event, _Work | None]], phase: StepPhase) -> _Work | None:
        """Give the event to the work it belongs to."""
        if event.role is Role.CALL:
            self._calls.append(_Work(event.name))
            return self._calls[-1]
        outer = next((pair for pair in reversed(stack) if pair[0].role is not Role.FREE), None)
        if event.role not in (Role.FREE, Role.COMPUTE) or (outer is not None and outer[0].role is Role.COMPUTE):
            return None
        if outer is not None and outer[1] is not None:
            self._add_to_call(outer[1], event)
        elif event.role is Role.FREE:
            return None
        elif outer is not None and outer[0].role is Role.NODE:
            self._add_to_node(outer[0], event)
        elif phase is StepPhase.UPDATE:
            self._works[phase].append(_Work(event.name, [event]))
        return None

    def _add_to_call(self, call: _Work, event: Event) -> None:
        if event.role is Role.COMPUTE:
            call.parts.append(event)
        if event.sequence < 0:
            return
        if not self._starts or event.sequence > self._starts[-1]:
            self._starts.append(event.sequence)
            self._owners.append(call)
        elif event.sequence == self._starts[-1]:
            self._owners[-1] = call  # the one before made no node

    def _add_to_node(self, node: Event, event: Event) -> None:
        if node.sequence < 0:  # the end of the way: the gradient of a parameter
            self._flush(None)
            self._works[StepPhase.BACKWARD].append(_Work(ACCUMULATE, [event]))
            return
        place = bisect_right(self._starts, node.sequence) - 1
        owner = self._owners[place] if place >= 0 else None
        if event.name in ADDITIONS:
            self._trailing.append((owner, event))
            return
        self._flush(owner)
        if owner is None:
            self._works[StepPhase.BACKWARD].append(_Work(node.name, [event]))
            return
        work = self._backward.get(id(owner))
        if work is None:
            work = self._backward[id(owner)] = _Work(owner.kind)
            self._works[StepPhase.BACKWARD].append(work)
        work.parts.append(event)

    def _flush(self, owner: _Work | None) -> None:
        for summed, event in self._trailing:
            if summed is not None and summed is owner and id(summed) in self._backward:
                self._backward[id(summed)].parts.append(event)
            else:
                self._works[StepPhase.BACKWARD].append(_Work(ACCUMULATE, [event]))
        self._trailing.clear()


def _match(operators: Sequence[Operator], works: dict[StepPhase, list[_Work]]) -> list[tuple[int, _Work]]:
    """Each operator's place with what it did; what is nobody's joins the operator that comes next."""
    pairs: list[tuple[int, _Work]] = []
    for phase, seen in works.items():
        places = [place for place, operator in enumerate(operators) if operator.phase is phase]
        pairs += _match_phase(places, [operators[place].kind for place in places], seen)
    return pairs


def _match_phase(places: Sequence[int], kinds: Sequence[str], seen: Sequence[_Work]) -> list[tuple[int, _Work]]:
    found = _find_each(kinds, [work.kind for work in seen])
    pairs: list[tuple[int, _Work]] = []
    spare: list[Event] = []
    expected = {place: number for number, place in found}
    for place, work in enumerate(seen):
        if place not in expected:
            spare += work.parts
            continue
        pairs.append((places[expected[place]], _Work(work.kind, [*spare, *work.parts])))
        spare = []
    if spare and pairs:
        pairs[-1][1].parts.extend(spare)
    return pairs


def _find_each(expected: Sequence[str], seen: Sequence[str]) -> list[tuple[int, int]]:
    """Which of those that were seen is which of the expected: all in order, or else as many as there are."""
    pairs = []
    place = 0
    for number, kind in enumerate(expected):
        while place < len(seen) and seen[place] != kind:
            place += 1
        if place == len(seen):
            break
        pairs.append((number, place))
        place += 1
    if len(pairs) == len(expected):
        return pairs
    blocks = SequenceMatcher(None, expected, seen, autojunk=False).get_matching_blocks()
    return [(block.a + step, block.b + step) for block in blocks for step in range(block.size)]


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
