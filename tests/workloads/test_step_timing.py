"""Times of operators from the events of a profiler."""

import numpy as np
import pytest

from foretell.core.workload import Operator, StepPhase, Workload
from foretell.workloads.step_timing import Event, Role, StepTiming, time_steps

FORWARD, BACKWARD, UPDATE = StepPhase


def build_workload(*operators: tuple[str, StepPhase]) -> Workload:
    return Workload(
        name="made", operators=tuple(Operator(kind=kind, phase=phase, inputs=((1,),)) for kind, phase in operators)
    )


def compute(name: str, begin: int, end: int, *, sequence: int = -1, thread: int = 0) -> Event:
    return Event(Role.COMPUTE, name, begin, end, thread, sequence)


def node(name: str, begin: int, end: int, sequence: int, *, thread: int = 0) -> Event:
    return Event(Role.NODE, name, begin, end, thread, sequence)


STEP = [
    Event(Role.STEP, "", 0, 1000),
    Event(Role.PHASE, "forward", 10, 300),
    Event(Role.CALL, "linear", 20, 100),
    Event(Role.FREE, "linear", 25, 95, sequence=7),
    compute("addmm", 30, 90, sequence=8),
    Event(Role.CALL, "index", 110, 120),  # gives a part, and computes only when it goes back
    Event(Role.FREE, "select", 112, 118, sequence=9),
    Event(Role.CALL, "__iadd__", 130, 140),  # counts batches; no operator of the workload
    compute("add_", 132, 138, sequence=10),
    Event(Role.CALL, "batch_norm", 150, 200),
    compute("native_batch_norm", 160, 190, sequence=10),
    compute("empty_inside", 165, 170),  # a part of the one around
    Event(Role.PHASE, "backward", 300, 700),
    node("NativeBatchNormBackward0", 310, 400, 10),
    compute("native_batch_norm_backward", 320, 380),
    node("SelectBackward0", 400, 450, 9),
    compute("zeros", 405, 410),
    compute("copy_", 415, 425),
    compute("add_", 430, 440),  # of two gradients, once the node is done
    node("AddmmBackward0", 450, 600, 8),
    compute("mm", 460, 500),
    compute("mm", 510, 560),
    node("torch::autograd::AccumulateGrad", 600, 650, -1),
    compute("add_", 610, 640),
    Event(Role.PHASE, "update", 700, 900),
    compute("mul_", 710, 740),
    compute("add_", 750, 790),
]
WORKLOAD = build_workload(
    ("linear", FORWARD),
    ("batch_norm", FORWARD),
    ("batch_norm", BACKWARD),
    ("index", BACKWARD),
    ("accumulate", BACKWARD),
    ("linear", BACKWARD),
    ("accumulate", BACKWARD),
    ("mul_", UPDATE),
    ("add_", UPDATE),
)


def time_one(events: list[Event], workload: Workload) -> StepTiming:
    (timing,) = time_steps(events, workload)
    return timing


def test_each_operator_has_the_times_of_what_it_ran() -> None:
    timing = time_one(STEP, WORKLOAD)
    begins = [30, 132, 320, 405, 430, 460, 610, 710, 750]
    assert (timing.begin_s * 1e9).round().tolist() == begins
    assert (timing.kernel_s * 1e9).round().tolist() == [60, 36, 60, 15, 10, 90, 30, 30, 40]
    assert (timing.span_s * 1e9).round().tolist() == [60, 58, 60, 20, 10, 100, 30, 30, 40]
    assert np.array_equal(timing.launch_s, timing.begin_s)
    assert {phase: round(seconds * 1e9) for phase, seconds in timing.phases_s.items()} == {
        FORWARD: 290,
        BACKWARD: 400,
        UPDATE: 200,
    }


def test_order_of_events_does_not_matter() -> None:
    assert np.array_equal(time_one(STEP[::-1], WORKLOAD).kernel_s, time_one(STEP, WORKLOAD).kernel_s)


def test_additions_between_events_of_a_call_belong_to_it() -> None:
    events = [
        Event(Role.STEP, "", 0, 100),
        Event(Role.CALL, "lstm", 0, 20),
        compute("mm", 0, 10, sequence=1),
        compute("mm", 10, 20, sequence=2),
        node("MmBackward0", 30, 50, 2),
        compute("mm", 30, 35),
        compute("add_", 40, 45),
        node("MmBackward0", 50, 70, 1),
        compute("mm", 50, 60),
    ]
    timing = time_one(events, build_workload(("lstm", FORWARD), ("lstm", BACKWARD)))
    assert (timing.kernel_s * 1e9).round().tolist() == [20, 20]


def test_unrecorded_operators_are_nan() -> None:
    workload = build_workload(("linear", FORWARD), ("to", FORWARD), ("batch_norm", FORWARD))
    timing = time_one(STEP, workload)
    assert np.isnan(timing.kernel_s).tolist() == [False, True, False]


def test_each_step_is_timed_separately() -> None:
    later = [
        Event(
            each.role,
            each.name,
            each.begin + 2000,
            each.end + 2000,
            each.thread,
            each.sequence + 100 * (each.sequence >= 0),
        )
        for each in STEP
    ]
    first, second = time_steps(STEP + later, WORKLOAD)
    np.testing.assert_allclose(first.begin_s, second.begin_s)
    assert first.step_s == second.step_s == 1e-6


def test_a_device_has_a_timeline_of_its_own() -> None:
    """Kernels run later than they were launched, backward ones from another thread."""
    events = [
        Event(Role.STEP, "", 0, 500),
        Event(Role.PHASE, "forward", 0, 100),
        Event(Role.CALL, "conv2d", 0, 50),
        compute("convolution", 10, 40, sequence=3),
        Event(Role.LAUNCH, "cudaLaunchKernel", 15, 18, link=1),
        Event(Role.LAUNCH, "cudaLaunchKernel", 25, 28, link=2),
        Event(Role.PHASE, "backward", 100, 200),
        node("ConvolutionBackward0", 120, 160, 3, thread=2),
        compute("convolution_backward", 125, 155, thread=2),
        Event(Role.LAUNCH, "cudaLaunchKernel", 130, 133, 2, link=3),
        Event(Role.LAUNCH, "cudaStreamSynchronize", 170, 400, 0, link=99),
        Event(Role.KERNEL, "implicit_gemm", 115, 215, link=1),
        Event(Role.KERNEL, "add_bias", 225, 235, link=2),
        Event(Role.KERNEL, "wgrad", 240, 390, link=3),
    ]
    timing = time_one(events, build_workload(("conv2d", FORWARD), ("conv2d", BACKWARD)))
    assert (timing.begin_s * 1e9).round().tolist() == [0, 125]
    assert (timing.kernel_s * 1e9).round().tolist() == [110, 150]
    assert (timing.span_s * 1e9).round().tolist() == [120, 150]
    assert (timing.launch_s * 1e9).round().tolist() == [-100, 15]


@pytest.mark.parametrize("phase", list(StepPhase))
def test_no_events_are_no_error(phase: StepPhase) -> None:
    timing = time_one([Event(Role.STEP, "", 0, 10)], build_workload(("relu", phase)))
    assert np.isnan(timing.begin_s).all()
