"""What a step uses: peaks, parts and holders, steps that are repeated, and other batches and lengths."""

from dataclasses import replace

import numpy as np
import pytest

from foretell.core.errors import SpecError
from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.core.workload import MeasuredStep, StepPhase, Workload
from foretell.memory.batch_sizes import BatchTraces, NotAffineError
from foretell.memory.fitting import find_largest
from foretell.memory.length_sizes import LengthTraces, extrapolate
from foretell.memory.measured_peaks import compare_peaks, read_peaks
from foretell.memory.step_events import repeat_steps
from foretell.memory.usage import measure_usage
from foretell.workloads.measurement_files import Profile

MIB = 2**20


def build_trace(scale: int = 1, length: int | None = None) -> MemoryTrace:
    """A weight that is there; each step keeps an activation and a temporary block, and leaves its loss to the next.

    Blocks: 0 weight; 1, 2, 3 of the first step (activation, temporary, loss); 4, 5, 6 of the second.
    """
    sizes = np.array([64 * MIB, *[scale * 4 * MIB, scale * 2 * MIB, 512] * 2])
    kinds = [MemoryKind.ACTIVATIONS, MemoryKind.TEMPORARY, MemoryKind.TEMPORARY]
    events = np.array([2, 3, 4, -3, -2, 5, -4, 6, 7, -6, -5])
    return MemoryTrace(
        name="net",
        batch=scale,
        sizes=sizes,
        kinds=np.array([MemoryKind.WEIGHTS, *kinds * 2]),
        owners=np.array([0, 1, 2, 3, 1, 2, 3]),
        events=events,
        places=np.array([1, 2, 3, 2, 1, 1, 3, 2, 3, 2, 1]),
        owner_names=(("", ""), ("conv2d", "first"), ("relu", "second"), ("loss", "")),
        phases=((0, StepPhase.FORWARD), (3, StepPhase.BACKWARD), (5, StepPhase.FORWARD), (9, StepPhase.BACKWARD)),
        second=5,
        length=length,
    )


def test_what_a_step_leaves_is_freed_by_the_next() -> None:
    steps = repeat_steps(build_trace(), 5)
    live = np.cumsum(np.sign(steps.events))
    assert live[-1] == 1  # the loss of the last step
    assert live.max() == 3
    assert len(steps.events) == 5 + 4 * 6
    assert len(set(steps.events.tolist())) == len(steps.events)  # every block comes and goes once
    assert steps.find_initial().tolist() == [0]


def test_two_steps_are_those_that_were_recorded() -> None:
    trace = build_trace()
    assert np.array_equal(repeat_steps(trace, 2).events, trace.events)


def test_the_parts_add_up_to_the_peak() -> None:
    usage = measure_usage(build_trace())
    assert usage.allocated_bytes == sum(usage.parts.values()) + usage.rest_bytes == 70 * MIB + 512
    assert usage.parts[MemoryKind.ACTIVATIONS] == 4 * MIB
    assert sum(each.bytes_ for each in usage.holders) == usage.allocated_bytes
    assert usage.holders[0].kind is MemoryKind.WEIGHTS
    assert (
        usage.reserved_bytes == 64 * MIB + 20 * MIB + 2 * MIB
    )  # a large segment for both blocks, a small for the loss
    assert usage.unused_bytes == usage.reserved_bytes - usage.allocated_bytes


def test_the_moment_of_the_peak_is_named() -> None:
    usage = measure_usage(build_trace())
    assert (usage.operator, usage.phase) == ("loss", StepPhase.FORWARD)
    assert usage.allocated_curve.max() == usage.allocated_bytes
    assert [phase for _, phase in usage.phases] == [StepPhase.FORWARD, StepPhase.BACKWARD]


def test_another_batch_is_affine() -> None:
    traces = BatchTraces(build_trace(2), build_trace(6))
    assert np.array_equal(traces.resize(10).sizes, build_trace(10).sizes)


def test_another_length_is_quadratic() -> None:
    def build(length: int) -> MemoryTrace:
        trace = build_trace(1, length)
        return replace(trace, sizes=trace.sizes + np.array([0, length**2, 3 * length, 0, length**2, 3 * length, 0]))

    found = LengthTraces([build(64), build(128), build(256)]).resize(1000)
    assert np.array_equal(found.sizes, build(1000).sizes)
    assert found.length == 1000


def test_steps_that_do_something_else_are_refused_and_their_usage_is_extrapolated() -> None:
    other = replace(build_trace(4, 9), events=build_trace().events[:-1], places=build_trace().places[:-1])
    with pytest.raises(NotAffineError, match="allocates 11 times with batch 1 and 10"):
        BatchTraces(build_trace(), other)
    with pytest.raises(NotAffineError, match="tokens"):
        LengthTraces([build_trace(1, 3), other])
    usages = {scale: measure_usage(build_trace(scale)) for scale in (1, 2)}
    assert extrapolate(3, usages).allocated_bytes == measure_usage(build_trace(3)).allocated_bytes


@pytest.mark.parametrize("limit", [0, 1, 2, 7, 63, 64, 1000])
@pytest.mark.parametrize("start", [1, 64])
def test_the_largest_size_that_fits_is_found(limit: int, start: int) -> None:
    assert find_largest(lambda size: float(size > limit), allowed=0.05, start=start) == limit


def build_profile(batch: int, **facts: str) -> Profile:
    workload = Workload(name="net", operators=(), batch=batch)
    none = np.zeros(0)
    step = MeasuredStep(
        workload=workload, device="A100", iteration_s=1.0, kernel_s=none, span_s=none, start_s=none, launch_s=none
    )
    return Profile(step=step, steps=3, spread=0.0, overhead=0.0, facts=facts)


def test_measured_peaks_correct_those_of_other_batches() -> None:
    usage = measure_usage(build_trace(1))
    facts = {"allocated_bytes": str(2 * usage.allocated_bytes), "reserved_bytes": str(3 * usage.reserved_bytes)}
    peaks = read_peaks([build_profile(1, **facts)])
    assert peaks is not None
    other = measure_usage(build_trace(8))
    corrected = compare_peaks(peaks, usage).correct(other)
    assert corrected.allocated_bytes == pytest.approx(2 * other.allocated_bytes)
    assert corrected.reserved_bytes == pytest.approx(3 * other.reserved_bytes)


@pytest.mark.parametrize(
    "facts",
    [
        {"threads": "2"},
        {"allocated_bytes": "0", "reserved_bytes": "0"},
        {"allocated_bytes": "-1", "reserved_bytes": "8"},
        {"allocated_bytes": "many", "reserved_bytes": "8"},
        {"allocated_bytes": "1", "reserved_bytes": "9" * 30},
    ],
)
def test_a_profile_without_memory_is_refused(facts: dict[str, str]) -> None:
    with pytest.raises(SpecError, match="on a machine with a GPU"):
        read_peaks([build_profile(1, **facts)])
