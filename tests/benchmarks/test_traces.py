"""Recorded iterations: what was not recorded is put back, and nothing else changes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks.ets.traces import Trace, find_family, read_traces

from foretell.core.workload import Operator, StepPhase

FORWARD, BACKWARD, UPDATE = 1, 2, 3
LEAD_NS = 5000
IMAGES, WEIGHT, MADE = (8, 3, 8, 8), (16, 3, 3, 3), (8, 16, 8, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of a recording."""

    op: str
    phase: int
    params: Sequence[int]
    seq: int
    duration_ns: int = 100
    gap_ns: int = 10
    extra_ns: int = 0
    step_us: int = 1


def lay(*shapes: Sequence[int], width: int = 15) -> list[int]:
    """Tensors in slots, each after the size of its elements; zeros at the end are cut."""
    slots = [value for shape in shapes for value in [4, *shape, *[0] * (width - 1 - len(shape))]]
    return slots[: max(place for place, value in enumerate(slots) if value) + 1]


def update(*shape: int) -> list[Line]:
    both = lay(shape, shape)
    return [Line(op="mul_", phase=UPDATE, params=lay(shape), seq=-1)] + [
        Line(op="add_", phase=UPDATE, params=both, seq=-1)
    ] * 2


CONV = [8, 3, 8, 8, 16, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1, 4]
LINEAR = lay((8, 1024), (10, 1024), (10,), width=10)
SCORES = lay((8, 10), (8, 10))
STEP = [
    Line(op="conv2d", phase=FORWARD, params=CONV, seq=0, duration_ns=1000, gap_ns=50, extra_ns=20, step_us=0),
    Line(op="batch_norm", phase=FORWARD, params=[8, 1], seq=1),  # the counter's shape, not the images'
    Line(op="relu", phase=FORWARD, params=lay(MADE), seq=2),
    Line(op="linear", phase=FORWARD, params=LINEAR, seq=5, duration_ns=300, gap_ns=40),
    Line(op="linear", phase=FORWARD, params=LINEAR, seq=6, duration_ns=200, extra_ns=5),
    Line(op="cross_entropy", phase=FORWARD, params=SCORES, seq=7),
    Line(op="cross_entropy", phase=BACKWARD, params=SCORES, seq=7, gap_ns=900),  # the linear's work is in that gap
    Line(op="relu", phase=BACKWARD, params=lay(MADE), seq=2),
    Line(op="batch_norm", phase=BACKWARD, params=lay(MADE), seq=1),
    Line(op="conv2d", phase=BACKWARD, params=CONV, seq=0),
    *update(*WEIGHT),
    *update(16),  # the norm's
    *update(16),
    *update(10, 1024),
    *update(10),
]


Reader = Callable[..., Trace]


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    def write_and_read(lines: Sequence[Line], **about: Any) -> Trace:
        write(tmp_path, lines, about)
        (trace,) = read_traces("T4", folder=tmp_path)
        return trace

    return write_and_read


def write(folder: Path, lines: Sequence[Line], about: dict[str, Any]) -> None:
    """A folder with one recording; the same row of two places has one shape, as in the real ones."""
    words = list(dict.fromkeys((line.op, line.phase, tuple(line.params)) for line in lines))
    pd.DataFrame(
        {
            "shape_id": range(len(words)),
            "op": pd.Categorical([op for op, _, _ in words]),
            "phase": np.array([phase for _, phase, _ in words], dtype="int8"),
            "params": [np.array(params, dtype="int32") for _, _, params in words],
        }
    ).to_parquet(folder / "shapes.parquet")
    rows = pd.DataFrame(
        {
            "trace_id": 7,
            "shape_id": [words.index((line.op, line.phase, tuple(line.params))) for line in lines],
            "seq": [line.seq for line in lines],
            "k_dur_ns": [line.duration_ns for line in lines],
            "k_gap_ns": [line.gap_ns for line in lines],
            "k_extra_ns": [line.extra_ns for line in lines],
            "r_step_us": [line.step_us for line in lines],
        }
    )
    rows.to_parquet(folder / "ops_T4_fp32.parquet")
    facts = {"trace_id": 7, "gpu": "T4", "model": "resnet18", "dtype": "fp32", "batch": 8, "hw": 32}
    counted = {"n_ops": len(lines), "iter_ns": int((rows.k_dur_ns + rows.k_gap_ns).sum()), "lead_ns": LEAD_NS}
    pd.DataFrame([facts | counted | {"n_neg_gap": 0, "truncated": False} | about]).to_parquet(folder / "traces.parquet")


def find(trace: Trace, kind: str, phase: StepPhase = StepPhase.FORWARD) -> list[int]:
    return [n for n, one in enumerate(trace.step.workload.operators) if (one.kind, one.phase) == (kind, phase)]


def get(trace: Trace, kind: str, phase: StepPhase = StepPhase.FORWARD) -> Operator:
    (place,) = find(trace, kind, phase)
    return trace.step.workload.operators[place]


def list_words(trace: Trace, phase: StepPhase) -> list[str]:
    return [one.kind for one in trace.step.workload.operators if one.phase is phase]


def test_a_step_s_operators_stand_in_their_order(read: Reader) -> None:
    trace = read(STEP)
    kinds = ["conv2d", "batch_norm", "relu", "linear", "cross_entropy"]
    assert list_words(trace, StepPhase.FORWARD) == kinds
    assert list_words(trace, StepPhase.BACKWARD) == kinds[::-1]
    assert list_words(trace, StepPhase.UPDATE) == ["mul_", "add_", "add_"] * 5


def test_facts_of_the_trace_are_kept(read: Reader) -> None:
    trace = read(STEP, n_neg_gap=2)
    assert (trace.model, trace.family, trace.batch, trace.size, trace.clean) == ("resnet18", "ResNet", 8, 32, False)
    assert (trace.step.device, trace.step.workload.name, trace.step.workload.batch) == ("T4", "resnet18", 8)
    assert trace.step.workload.parameters == 16 * 27 + 16 + 16 + 10 * 1024 + 10
    assert trace.step.iteration_s == pytest.approx(sum(line.duration_ns + line.gap_ns for line in STEP) / 1e9)


def test_shapes_are_read_or_put_back(read: Reader) -> None:
    trace = read(STEP)
    conv = get(trace, "conv2d")
    assert (conv.inputs, conv.output) == ((IMAGES, WEIGHT), MADE)
    assert dict(conv.attributes) == {"dilation": (1, 1), "groups": 1, "padding": (1, 1), "stride": (1, 1)}
    assert get(trace, "batch_norm").inputs == (MADE,)  # from its backward row
    assert get(trace, "linear").inputs == ((8, 1024), (10, 1024), (10,))
    assert get(trace, "linear").output == (8, 10)
    assert get(trace, "cross_entropy").output == ()


def test_costs_are_counted_from_shapes(read: Reader) -> None:
    trace = read(STEP)
    once = 2 * 8 * 8 * 8 * 16 * 27
    assert get(trace, "conv2d").flops == once
    assert get(trace, "conv2d", StepPhase.BACKWARD).flops == once  # nobody needs the images' gradient
    assert get(trace, "linear", StepPhase.BACKWARD).flops >= 2 * 2 * 8 * 1024 * 10
    assert [get(trace, kind, StepPhase.BACKWARD).input_gradient for kind in ("conv2d", "linear")] == [False, True]


def test_rows_of_one_operator_are_one_again(read: Reader) -> None:
    trace = read(STEP)
    (place,) = find(trace, "linear")
    assert trace.step.kernel_s[place] == pytest.approx(500e-9)
    assert trace.step.span_s[place] == pytest.approx((300 + 40 + 200 + 5) * 1e-9)


def test_no_more_rows_are_merged_than_an_operator_has(read: Reader) -> None:
    again = [replace(STEP[4], seq=6), *[replace(STEP[4], seq=7)] * 2, replace(STEP[5], seq=8)]
    trace = read([*STEP[:4], *again, replace(STEP[6], seq=8), *STEP[7:]])
    first, second = find(trace, "linear")
    assert trace.step.kernel_s[[first, second]] == pytest.approx([700e-9, 200e-9])


def test_operators_without_a_row_have_no_times(read: Reader) -> None:
    trace = read(STEP)
    (place,) = find(trace, "linear", StepPhase.BACKWARD)
    for times in (trace.step.kernel_s, trace.step.span_s, trace.step.start_s, trace.step.launch_s):
        assert np.flatnonzero(np.isnan(times)).tolist() == [place]


def test_times_are_rebuilt_from_durations_and_gaps(read: Reader) -> None:
    step = read(STEP).step
    assert step.start_s[:4] == pytest.approx(np.array([0, 1050, 1160, 1270]) / 1e9)
    assert step.launch_s[:4] == pytest.approx((np.array([0, 1, 2, 3]) * 1000 - LEAD_NS) / 1e9)
    assert step.kernel_s[0] == pytest.approx(1000e-9)
    assert step.span_s[0] == pytest.approx(1020e-9)


def test_views_are_counted_by_the_numbers_left_out(read: Reader) -> None:
    workload = read(STEP).step.workload
    assert workload.views[:5] == (0, 0, 0, 2, 1)  # the second row of the linear counts as its own call
    assert len(workload.views) == len(workload.operators)
    assert not any(workload.views[5:])


@pytest.mark.parametrize(("vectors", "biased"), [(0, False), (1, True), (2, False), (3, True)])
def test_a_bias_is_told_by_the_update(read: Reader, vectors: int, biased: bool) -> None:
    updates = [*update(*WEIGHT), *update(16) * vectors, *update(10, 1024), *update(10)]
    assert len(get(read([*STEP[:10], *updates]), "conv2d").inputs) == 2 + biased


def test_gradients_of_two_ways_are_summed_up(read: Reader) -> None:
    add = Line(op="__add__", phase=FORWARD, params=lay(MADE, MADE), seq=3)
    trace = read([*STEP[:3], add, *STEP[3:]])
    place = find(trace, "accumulate", StepPhase.BACKWARD)
    assert list_words(trace, StepPhase.BACKWARD)[:4] == ["cross_entropy", "linear", "accumulate", "relu"]
    assert np.isnan(trace.step.kernel_s[place]).all()
    assert get(trace, "accumulate", StepPhase.BACKWARD).inputs == (MADE, MADE)


def test_joined_branches_meet_again_at_their_begin(read: Reader) -> None:
    pool = Line(op="max_pool2d", phase=FORWARD, params=lay(MADE), seq=3)
    relu = replace(STEP[2], seq=4)
    cat = Line(op="cat", phase=FORWARD, params=lay(MADE, MADE, MADE, width=10), seq=5)
    later = [replace(line, seq=line.seq + 5) for line in STEP[3:6]]
    back = [replace(STEP[6], seq=12), replace(relu, phase=BACKWARD), replace(pool, phase=BACKWARD), *STEP[7:]]
    trace = read([*STEP[:3], pool, relu, cat, *later, *back])
    assert get(trace, "cat").inputs == (MADE,) * 3
    assert get(trace, "cat").output == (8, 48, 8, 8)
    summed = [trace.step.workload.operators[n] for n in find(trace, "accumulate", StepPhase.BACKWARD)]
    assert [one.inputs for one in summed] == [(MADE, MADE)] * 2
    assert not find(trace, "cat", StepPhase.BACKWARD)


def test_queries_keys_and_values_are_taken_apart(read: Reader) -> None:
    params = lay((8, 4, 64), (192, 64), (192,), width=10)
    packed = Line(op="linear", phase=FORWARD, params=params, seq=0, step_us=0)
    trace = read([packed, *STEP[3:7], *update(192, 64)])
    kinds = ["cross_entropy", "linear", "index", "index", "index", "accumulate", "accumulate", "linear"]
    assert list_words(trace, StepPhase.BACKWARD) == kinds


def test_squeeze_and_excitation_sums_its_input_s_gradient(read: Reader) -> None:
    narrow = [8, 16, 1, 1, 4, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 4]
    squeeze = Line(op="adaptive_avg_pool2d", phase=FORWARD, params=lay(MADE), seq=3)
    conv = Line(op="conv2d", phase=FORWARD, params=narrow, seq=4)
    back = [replace(conv, phase=BACKWARD), replace(squeeze, phase=BACKWARD)]
    trace = read([*STEP[:3], squeeze, conv, *STEP[3:7], *back, *STEP[7:]])
    backward = list_words(trace, StepPhase.BACKWARD)
    assert backward[2:5] == ["conv2d", "adaptive_avg_pool2d", "accumulate"]


def test_an_activation_in_place_copies_first(read: Reader) -> None:
    silu = replace(STEP[2], op="silu_")
    trace = read([*STEP[:2], silu, *STEP[3:7], replace(silu, phase=BACKWARD), *STEP[8:]])
    (place,) = find(trace, "silu")
    assert trace.step.kernel_s[place] == pytest.approx(200e-9)
    assert get(trace, "silu").kernels == 2
    assert trace.step.kernel_s[find(trace, "silu", StepPhase.BACKWARD)] == pytest.approx([100e-9])


def test_equal_operators_are_one_object(read: Reader) -> None:
    trace = read(STEP)
    first, second, *_ = (trace.step.workload.operators[n] for n in find(trace, "add_", StepPhase.UPDATE))
    assert first is second


def test_backward_rows_of_nothing_are_refused(read: Reader) -> None:
    with pytest.raises(AssertionError, match="without a forward one"):
        read([*STEP[:7], replace(STEP[7], seq=500), *STEP[7:]])


@pytest.mark.parametrize(
    "about", [{"dtype": "fp16"}, {"batch": 4}, {"hw": 768}, {"n_ops": 3001}, {"truncated": True}, {"gpu": "2080Ti"}]
)
def test_the_protocol_s_traces_only(tmp_path: Path, about: dict[str, Any]) -> None:
    write(tmp_path, STEP, about)
    assert read_traces("T4", folder=tmp_path) == []


def test_families_are_chosen_by_name(tmp_path: Path) -> None:
    write(tmp_path, STEP, {"model": "wide_resnet50_2"})
    assert read_traces("T4", ["ResNet"], folder=tmp_path) == []
    assert [trace.family for trace in read_traces("T4", ["WideResNet"], folder=tmp_path)] == ["WideResNet"]
    assert [find_family(name) for name in ("vit_b_16", "newnet50_x")] == ["ViT", "newnet"]
