"""The times of operators from the events of a profiler. Does not import PyTorch.

The rules are those of the capture. A call of the model's code that computes is an operator. What an autograd node
computes belongs to the forward call with its sequence number. An addition after the last node of a call accumulates
gradients. In the update, each computing call is an operator.
"""

import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum

import numpy as np

from foretell.core.workload import Floats, MeasuredStep, Operator, StepPhase, Workload
from foretell.workloads.measurement_files import Profile

ACCUMULATE = "accumulate"
ADDITIONS = frozenset({"add", "add_"})


class Role(StrEnum):
    """The kind of an event."""

    STEP = "step"  # one whole training step
    PHASE = "phase"  # its name is that of the phase
    CALL = "call"  # of the model's code; its name is the kind of operator
    NODE = "node"  # of autograd, in the backward phase
    FREE = "free"  # an ATen call that computes nothing itself
    COMPUTE = "compute"  # an ATen call that computes
    LAUNCH = "launch"  # of a kernel, on the host
    KERNEL = "kernel"  # on the device


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a profiler, in nanoseconds of one clock."""

    role: Role
    name: str
    begin: int
    end: int
    thread: int = 0
    sequence: int = -1  # sequence number of the autograd node that it is or makes
    link: int = -1  # the same for a launch and its kernel


@dataclass(slots=True)
class _OperatorEvents:
    """The events of one operator."""

    kind: str
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """When each operator of one step ran, in seconds from the start of the step; NaN where it was not recorded."""

    begin_s: Floats
    span_s: Floats
    kernel_s: Floats
    launch_s: Floats
    step_s: float
    phases_s: Mapping[StepPhase, float]  # on the host


def time_steps(events: Iterable[Event], workload: Workload) -> list[StepTiming]:
    """The times of the operators of a workload in each profiled step."""
    ordered = sorted(events, key=lambda event: (event.begin, -event.end))
    steps = [event for event in ordered if event.role is Role.STEP]
    begins = [step.begin for step in steps]
    within: list[list[Event]] = [[] for _ in steps]
    kernels = {event.link: event for event in ordered if event.role is Role.KERNEL}
    for event in ordered:
        position = bisect_right(begins, event.begin) - 1
        if position >= 0 and event.role not in (Role.STEP, Role.KERNEL):
            within[position].append(event)
    return [_time_step(step, own, kernels, workload) for step, own in zip(steps, within, strict=True)]


def _time_step(step: Event, events: Sequence[Event], kernels: dict[int, Event], workload: Workload) -> StepTiming:
    recorded = _Reader(events).read()
    count = len(workload.operators)
    begin, span, kernel, launch = (np.full(count, np.nan) for _ in range(4))
    launches = [event for event in events if event.role is Role.LAUNCH and event.link in kernels]
    zero = min((kernels[event.link].begin for event in launches), default=step.begin)
    for position, found in _match(workload.operators, recorded):
        spans, sent = _find_spans(found.events, launches, kernels) if launches else (found.events, found.events)
        if not spans:
            continue
        begin[position] = (min(event.begin for event in spans) - zero) / 1e9
        span[position] = (max(event.end for event in spans) - zero) / 1e9 - begin[position]
        kernel[position] = sum(event.end - event.begin for event in spans) / 1e9
        launch[position] = (min(event.begin for event in sent) - zero) / 1e9
    return StepTiming(
        begin_s=begin,
        span_s=span,
        kernel_s=kernel,
        launch_s=launch,
        step_s=(step.end - step.begin) / 1e9,
        phases_s=_add_phases(events),
    )


def _add_phases(events: Sequence[Event]) -> dict[StepPhase, float]:
    """Seconds of each phase, summed over the batches of the step."""
    total = dict.fromkeys(StepPhase, 0.0)
    for event in events:
        if event.role is Role.PHASE:
            total[StepPhase(event.name)] += (event.end - event.begin) / 1e9
    return total


def _find_spans(
    events: Sequence[Event], launches: Sequence[Event], kernels: dict[int, Event]
) -> tuple[list[Event], list[Event]]:
    """The kernels that were launched within these events, and their launches."""
    begins = [event.begin for event in launches]
    sent = [
        launch
        for event in events
        for launch in launches[bisect_right(begins, event.begin - 1) : bisect_right(begins, event.end)]
        if launch.thread == event.thread
    ]
    return [kernels[launch.link] for launch in sent], sent


class _Reader:
    """Assigns events to operators by their nesting."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._calls: list[_OperatorEvents] = []  # of the forward phase
        self._starts: list[int] = []  # first sequence numbers of the calls in _owners
        self._owners: list[_OperatorEvents] = []
        self._backward: dict[int, _OperatorEvents] = {}
        self._trailing: list[tuple[_OperatorEvents | None, Event]] = []
        self._operators: dict[StepPhase, list[_OperatorEvents]] = {phase: [] for phase in StepPhase}

    def read(self) -> dict[StepPhase, list[_OperatorEvents]]:
        """The operators of each phase in order."""
        stacks: dict[int, list[tuple[Event, _OperatorEvents | None]]] = {}
        phase = StepPhase.FORWARD
        for event in self._events:
            if event.role is Role.PHASE:
                phase = StepPhase(event.name)
                continue
            stack = stacks.setdefault(event.thread, [])
            while stack and stack[-1][0].end <= event.begin:
                stack.pop()
            found = self._assign(event, stack, phase)
            if event.role is not Role.LAUNCH:
                stack.append((event, found))
        self._flush(None)
        self._operators[StepPhase.FORWARD] = [found for found in self._calls if found.events]
        return self._operators

    def _assign(
        self, event: Event, stack: Sequence[tuple[Event, _OperatorEvents | None]], phase: StepPhase
    ) -> _OperatorEvents | None:
        """Add the event to the operator it belongs to."""
        if event.role is Role.CALL:
            self._calls.append(_OperatorEvents(event.name))
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
            self._operators[phase].append(_OperatorEvents(event.name, [event]))
        return None

    def _add_to_call(self, call: _OperatorEvents, event: Event) -> None:
        if event.role is Role.COMPUTE:
            call.events.append(event)
        if event.sequence < 0:
            return
        if not self._starts or event.sequence > self._starts[-1]:
            self._starts.append(event.sequence)
            self._owners.append(call)
        elif event.sequence == self._starts[-1]:
            self._owners[-1] = call  # the call before made no node

    def _add_to_node(self, node: Event, event: Event) -> None:
        if node.sequence < 0:  # accumulates the gradient of a parameter
            self._flush(None)
            self._operators[StepPhase.BACKWARD].append(_OperatorEvents(ACCUMULATE, [event]))
            return
        position = bisect_right(self._starts, node.sequence) - 1
        owner = self._owners[position] if position >= 0 else None
        if event.name in ADDITIONS:
            self._trailing.append((owner, event))
            return
        self._flush(owner)
        if owner is None:
            self._operators[StepPhase.BACKWARD].append(_OperatorEvents(node.name, [event]))
            return
        found = self._backward.get(id(owner))
        if found is None:
            found = self._backward[id(owner)] = _OperatorEvents(owner.kind)
            self._operators[StepPhase.BACKWARD].append(found)
        found.events.append(event)

    def _flush(self, owner: _OperatorEvents | None) -> None:
        for summed, event in self._trailing:
            if summed is not None and summed is owner and id(summed) in self._backward:
                self._backward[id(summed)].events.append(event)
            else:
                self._operators[StepPhase.BACKWARD].append(_OperatorEvents(ACCUMULATE, [event]))
        self._trailing.clear()


def _match(
    operators: Sequence[Operator], recorded: dict[StepPhase, list[_OperatorEvents]]
) -> list[tuple[int, _OperatorEvents]]:
    """The position of each operator with its events; unmatched events are added to the next operator."""
    pairs: list[tuple[int, _OperatorEvents]] = []
    for phase, found in recorded.items():
        positions = [position for position, operator in enumerate(operators) if operator.phase is phase]
        pairs += _match_phase(positions, [operators[position].kind for position in positions], found)
    return pairs


def _match_phase(
    positions: Sequence[int], kinds: Sequence[str], recorded: Sequence[_OperatorEvents]
) -> list[tuple[int, _OperatorEvents]]:
    matched = _match_kinds(kinds, [each.kind for each in recorded])
    pairs: list[tuple[int, _OperatorEvents]] = []
    spare: list[Event] = []
    expected = {position: number for number, position in matched}
    for position, found in enumerate(recorded):
        if position not in expected:
            spare += found.events
            continue
        pairs.append((positions[expected[position]], _OperatorEvents(found.kind, [*spare, *found.events])))
        spare = []
    if spare and pairs:
        pairs[-1][1].events.extend(spare)
    return pairs


def _match_kinds(expected: Sequence[str], recorded: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of expected and recorded operators: all in order, or as many as can be matched."""
    pairs = []
    position = 0
    for number, kind in enumerate(expected):
        while position < len(recorded) and recorded[position] != kind:
            position += 1
        if position == len(recorded):
            break
        pairs.append((number, position))
        position += 1
    if len(pairs) == len(expected):
        return pairs
    blocks = SequenceMatcher(None, expected, recorded, autojunk=False).get_matching_blocks()
    return [(block.a + step, block.b + step) for block in blocks for step in range(block.size)]


KEPT_GAP = 0.3  # least share of a gap that remains after the overhead of the profiler is removed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainStep:
    """A step without a profiler; with its phases if the device is the CPU."""

    step_s: float
    phases_s: Mapping[StepPhase, float] = field(default_factory=dict)


def build_profile(
    workload: Workload,
    timings: Sequence[StepTiming],
    plain: Sequence[PlainStep],
    *,
    device: str,
    load: float | None = None,
    facts: Mapping[str, str] | None = None,
) -> Profile:
    """The medians of the steps. Operators and gaps add up to the time of the plain steps."""
    times = [each.step_s for each in plain]
    iteration = statistics.median(times)
    profiled = statistics.median(timing.step_s for timing in timings)
    low, high = np.percentile(times, [25, 75])
    return Profile(
        step=_combine(workload, timings, plain, device=device, iteration_s=iteration),
        steps=len(times),
        spread=float(high - low) / 2 / iteration,
        overhead=profiled / iteration - 1,
        load=load,
        facts=facts or {},
    )


def _combine(
    workload: Workload, timings: Sequence[StepTiming], plain: Sequence[PlainStep], *, device: str, iteration_s: float
) -> MeasuredStep:
    order = _find_order(timings)
    kernel = _median([timing.kernel_s[order] for timing in timings])
    span = _median([timing.span_s[order] for timing in timings])
    period = _median([_find_periods(timing, order) for timing in timings])
    steps = _median([np.diff(timing.launch_s[order], prepend=0.0) for timing in timings])
    same = all(np.array_equal(timing.begin_s, timing.launch_s, equal_nan=True) for timing in timings)
    if same:  # the device is the CPU
        kernel, span, period = _correct(workload, order, kernel, span, period, timings=timings, plain=plain)
    period, scale = _fit(period, span, iteration_s, only_gaps=not same)
    kernel, span = kernel * scale, span * scale
    start = np.cumsum(period) - period
    launch = start if same else np.cumsum(steps) * _ratio(iteration_s, timings)
    return MeasuredStep(
        workload=workload,
        device=device,
        iteration_s=iteration_s,
        **{
            name: _fill_positions(values, order, len(workload.operators))
            for name, values in (("kernel_s", kernel), ("span_s", span), ("start_s", start), ("launch_s", launch))
        },
    )


def _find_order(timings: Sequence[StepTiming]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Operators recorded in all steps, in the order in which they began."""
    begins = np.array([timing.begin_s for timing in timings])
    recorded = np.flatnonzero(~np.isnan(begins).any(axis=0))
    return recorded[np.argsort(np.median(begins[:, recorded], axis=0), kind="stable")]


def _find_periods(timing: StepTiming, order: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Floats:
    """Seconds from the start of each operator to the start of the next; the first follows the last."""
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
    plain: Sequence[PlainStep],
) -> tuple[Floats, Floats, Floats]:
    """Remove the overhead of the profiler from the gaps of each phase; scale phases that were faster under it."""
    phases = np.array([workload.operators[position].phase for position in order])
    gap = np.maximum(period - span, 0.0)
    factor, kept = np.ones_like(period), np.ones_like(period)
    for phase in StepPhase:
        mine = phases == phase
        profiled = statistics.median(timing.phases_s[phase] for timing in timings)
        alone = statistics.median(each.phases_s.get(phase, profiled) for each in plain)
        if not mine.any() or profiled <= 0:
            continue
        excess, gaps = profiled - alone, float(gap[mine].sum())
        if excess <= 0:
            factor[mine] = alone / profiled
        elif gaps > 0:
            kept[mine] = max(KEPT_GAP, 1 - excess / gaps)
    inner = kernel + (span - kernel) * kept  # operators contain gaps as well
    return kernel * factor, inner * factor, (period - span - gap + inner + gap * kept) * factor


def _fit(period: Floats, span: Floats, iteration_s: float, *, only_gaps: bool) -> tuple[Floats, float]:
    """Periods scaled to the time of the iteration, and the factor on the times of operators."""
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


def _fill_positions(values: Floats, order: np.ndarray[tuple[int], np.dtype[np.intp]], count: int) -> Floats:
    found = np.full(count, np.nan)
    found[order] = values
    return found
