"""Rendered training steps and devices, as text and as records."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretell.core.devices import Device, get_device, list_devices
from foretell.core.prediction import Estimate
from foretell.core.render.figures import render_svg
from foretell.core.render.phrases import render_scaled, render_short_time
from foretell.core.serialization import render_json
from foretell.core.warning import build_warning
from foretell.core.workload import MeasuredStep, Operator, StepEstimate, StepPhase, Workload
from foretell.steps.device_render import build_device_record, render_device, render_devices
from foretell.steps.plots import draw_curve, draw_predictions
from foretell.steps.render import (
    build_learned_record,
    build_operator_table,
    build_profile_record,
    build_workload_record,
    render_learned,
    render_profile,
    render_workload,
)
from foretell.steps.render_predictions import build_step_record, build_step_records, render_step_predictions
from foretell.steps.step_results import (
    KnownDevice,
    LearnedDevice,
    LeftOutDevice,
    StepPrediction,
    find_gaps,
    find_phases,
    group_operators,
)
from foretell.workloads.measurement_files import Profile

Golden = Callable[[str, str], None]
ToText = Callable[..., str]

T4 = Device(name="T4", kind="gpu", peak_flops=8.1e12, bandwidth_bytes=320e9, units=40, memory_bytes=16 * 2**30)
SETTINGS = {
    "loss": "auto",
    "optimizer": "adamw",
    "implementation": "fused",
    "precision": "bf16",
    "accumulation": "4",
    "checkpointing": "yes",
}


def build_operator(kind: str, phase: StepPhase = StepPhase.FORWARD, **others: object) -> Operator:
    values = {"inputs": ((8, 16),), "output": (8, 16), "flops": 2e6, "bytes_moved": 4e6, **others}
    return Operator(kind=kind, phase=phase, **values)  # type: ignore[arg-type]


CONVOLUTION = build_operator(
    "conv2d",
    inputs=((8, 3, 32, 32), (16, 3, 3, 3)),
    output=(8, 16, 32, 32),
    flops=7.2e9,
    parameters=432,
    dtype="bfloat16",
    attributes=(("groups", 1), ("stride", (2, 2))),
)


@pytest.fixture
def workload() -> Workload:
    relu = build_operator("relu")
    backward = replace(CONVOLUTION, phase=StepPhase.BACKWARD, flops=14.4e9)
    update = build_operator("_fused_adamw_[/red]", StepPhase.UPDATE, output=(), parameters=432)
    return Workload(
        name="net.py:build",
        operators=(CONVOLUTION, relu, relu, backward, update),
        layers=("features.block.conv.deep.inside", "act.0", "act.1", "features.block.conv.deep.inside", ""),
        batch=8,
        settings=SETTINGS,
        parameters=432,
    )


@pytest.fixture
def prediction(workload: Workload) -> StepPrediction:
    kernel, gap = np.array([1e-3, 2e-4, 2e-4, 2e-3, 1e-4]), np.array([0.0, 1e-4, 1e-4, 0.0, 3e-4])
    estimate = StepEstimate(
        iteration=Estimate(value=4e-3, low=3.6e-3, high=4.5e-3, level=0.9),
        phases={StepPhase.FORWARD: 1.6e-3, StepPhase.BACKWARD: 2e-3, StepPhase.UPDATE: 4e-4},
        busy_s=3.5e-3,
        overhead_s=5e-4,
        kernel_s=kernel,
        gap_s=gap,
    )
    return StepPrediction(
        workload=workload,
        device="T4",
        estimate=estimate,
        warnings=(build_warning("limited-model", "Recorded under a profiler."),),
    )


@pytest.fixture
def profile(workload: Workload) -> Profile:
    start = np.array([0.0, 1.2e-3, np.nan, 2e-3, 4e-3])
    kernel = np.array([1e-3, 2e-4, np.nan, 1.9e-3, 1e-4])
    step = MeasuredStep(
        workload=workload,
        device="cpu",
        iteration_s=4.5e-3,
        kernel_s=kernel,
        span_s=kernel,
        start_s=start,
        launch_s=start,
    )
    facts = {"threads": "2", "torch": "2.13.0"}
    return Profile(step=step, steps=40, spread=0.031, overhead=0.174, load=0.5, facts=facts)


def build_curve(prediction: StepPrediction) -> list[StepPrediction]:
    """The same prediction for several batches."""
    return [replace(prediction, workload=replace(prediction.workload, batch=batch)) for batch in (8, 16, 1024)]


def test_workload(workload: Workload, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_workload.txt", to_text(render_workload(workload, rows=4)))


def test_all_operators_are_shown_without_a_limit(workload: Workload, to_text: ToText) -> None:
    text = to_text(render_workload(workload, rows=None))
    assert "more operator" not in text
    assert "_fused_adamw_[/red]" in text


def test_prediction(prediction: StepPrediction, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_step.txt", to_text(render_step_predictions([prediction], rows=3)))


def test_curve(prediction: StepPrediction, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_steps.txt", to_text(render_step_predictions(build_curve(prediction), rows=3)))


def build_devices(prediction: StepPrediction) -> list[StepPrediction]:
    """Predictions of a language model on three devices."""
    kinds = ({"measured": 0.9, "similar": 0.1}, {"similar": 1.0}, {"figures": 0.7, "measured": 0.3})
    tokens = build_operator("embedding", inputs=((8, 512), (100, 16)), output=(8, 512, 16))
    workload = replace(prediction.workload, operators=(tokens, *prediction.workload.operators[1:]))
    estimate = prediction.estimate
    return [
        replace(
            prediction,
            workload=workload,
            device=name,
            method="kernels",
            estimate=replace(estimate, evidence=evidence, limits={"memory": 0.6, "host": 0.4}, mfu=0.123),
            warnings=(build_warning("evidence-figures", f"No kernel of {name} was measured."),),
        )
        for name, evidence in zip(("H100", "RTX PRO 6000", "MI300X"), kinds, strict=True)
    ]


def test_devices_are_compared(prediction: StepPrediction, to_text: ToText, check_golden: Golden) -> None:
    left_out = [LeftOutDevice(device=name, reason="no bf16, only fp32 and fp16") for name in ("T4", "V100-16")]
    text = to_text(render_step_predictions(build_devices(prediction), rows=3, left_out=left_out))
    check_golden("report_devices_compared.txt", text)
    assert max(map(len, text.splitlines())) <= 100


def test_one_device_of_several_is_still_a_table(prediction: StepPrediction, to_text: ToText) -> None:
    left_out = [LeftOutDevice(device="T4", reason="no totals model of it")]
    text = to_text(render_step_predictions(build_devices(prediction)[:1], rows=3, left_out=left_out))
    assert "Most costly" not in text
    assert "T4: no totals model of it" in text


def test_records_name_the_devices_that_were_left_out(prediction: StepPrediction) -> None:
    left_out = [LeftOutDevice(device="T4", reason="no bf16, only fp32")]
    records = build_step_records(build_devices(prediction), rows=1, left_out=left_out)
    assert [(record["device"], record["iteration_s"] is None) for record in records[2:]] == [
        ("MI300X", False),
        ("T4", True),
    ]
    assert records[0]["evidence"] == {"measured": 0.9, "similar": 0.1}
    assert records[0]["tokens_per_s"] == pytest.approx(512 * records[0]["examples_per_s"])
    assert render_json(records)


def test_devices_are_plotted(prediction: StepPrediction) -> None:
    many = build_devices(prediction)
    figure = draw_predictions([*many, replace(many[0], workload=replace(many[0].workload, batch=16))])
    figure.canvas.draw()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["H100, 8", "RTX PRO 6000, 8", "MI300X, 8", "H100, 16"]
    assert render_svg(draw_predictions(many))


def test_profile(profile: Profile, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_profile.txt", to_text(render_profile(profile, rows=3)))


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_word_of_a_table_is_broken(
    workload: Workload, prediction: StepPrediction, profile: Profile, to_text: ToText, width: int
) -> None:
    shown = {
        "Iteration Examples/s Busy": render_step_predictions(build_curve(prediction), rows=3),
        "Device Iteration H100 MI300X Evidence similar": render_step_predictions(build_devices(prediction), rows=3),
        "Phase backward forward conv2d Time Share": render_step_predictions([prediction], rows=3),
        "Phase FLOPs Bytes backward conv2d": render_workload(workload, rows=None),
        "Kind Shapes backward": render_profile(profile, rows=3),
    }
    for words, renderable in shown.items():
        text = to_text(renderable, width=width)
        assert max(map(len, text.splitlines())) <= width
        assert set(words.split()) <= set(text.split())


def test_devices(to_text: ToText, check_golden: Golden) -> None:
    known = [KnownDevice(device=T4, times="shipped"), KnownDevice(device=replace(T4, name="A100-40"))]
    mine = KnownDevice(device=replace(T4, name="cpu", kind="cpu", units=2), times="learned")
    learned = LearnedDevice(
        device=mine.device,
        method="serial",
        networks=83,
        profiles=1,
        seconds=301.0,
        path=Path("devices/cpu.safetensors"),
    )
    check_golden("report_devices.txt", to_text(render_devices([*known, mine])) + to_text(render_learned(learned)))
    assert build_learned_record(learned)["file"] == "devices/cpu.safetensors"


def test_the_catalogue_is_readable(to_text: ToText) -> None:
    """One line for each device at the usual widths, and every figure of a device in its own view."""
    known = [KnownDevice(device=device, evidence={"bf16": "similar"}) for device in list_devices()]
    for width in (80, 100, 200):
        text = to_text(render_devices(known), width=width)
        assert max(map(len, text.splitlines())) <= width
        lines = [line.split() for line in text.splitlines()]
        for each in known:
            assert sum(line[:1] == [each.device.name] for line in lines) == 1
    h100 = next(line for line in to_text(render_devices(known), width=100).splitlines() if line.startswith(" H100 "))
    assert h100.split() == ["H100", "Hopper", "66.9", "989", "989", "1,979", "80", "GB", "3.35", "T", "similar"]


@pytest.mark.parametrize("name", ["T4", "MI250X", "GH200", "Gaudi3", "K80"])
def test_every_figure_of_a_device_is_shown(to_text: ToText, name: str) -> None:
    known = KnownDevice(device=get_device(name))
    text = " ".join(to_text(render_device(known, ["another name"]), width=100).split())
    record = build_device_record(known, ["another name"])
    for word in (known.device.vendor, known.device.architecture, known.device.source, "another name"):
        assert word in text
    for precision, peak in known.device.matrix_flops:
        assert f"{precision} {peak / 1e12:.3g}".split(" ")[0] in text
        assert record["device"]["matrix_flops"][precision] == peak
    assert record["device"]["source"] == known.device.source
    assert f"{known.device.bandwidth_bytes / 1e9:,.0f} GB/s" in text


def test_unrecorded_operators_are_in_the_gap_before_them(profile: Profile) -> None:
    gaps, phases = find_gaps(profile.step), find_phases(profile.step)
    assert gaps[[0, 1, 3, 4]] == pytest.approx([2e-4, 6e-4, 1e-4, 4e-4])
    assert np.isnan(gaps[2])
    assert list(phases.values()) == pytest.approx([2e-3, 2e-3, 5e-4])


def test_equal_operators_are_one_group(prediction: StepPrediction) -> None:
    estimate = prediction.estimate
    groups = group_operators(prediction.workload, estimate.kernel_s, estimate.gap_s)
    assert [group.operator.phase for group in groups] == ["backward", "forward", "forward", "update"]
    assert (groups[2].layers, groups[2].seconds) == (("act.0", "act.1"), pytest.approx(4e-4))
    assert sum(group.gap_s for group in groups) == pytest.approx(estimate.gap_s.sum())


def test_examples_per_second_count_accumulated_batches(prediction: StepPrediction) -> None:
    assert prediction.examples_per_s == pytest.approx(4 * 8 / 4e-3)


def test_records(workload: Workload, prediction: StepPrediction, profile: Profile) -> None:
    record = build_workload_record(workload)
    assert [one["layer"] for one in record["operators"]] == list(workload.layers)
    assert record["operators"][0]["attributes"] == {"groups": 1, "stride": [2, 2]}
    assert sum(phase["flops"] for phase in record["phases"].values()) == record["flops"]
    step = build_step_record(prediction, rows=2)
    assert step["iteration_s"] == {"value": 4e-3, "low": 3.6e-3, "high": 4.5e-3, "level": 0.9}
    assert [one["calls"] for one in step["costly"]] == [1, 1]
    measured = build_profile_record(profile, rows=9)
    assert sum(measured["phases_s"].values()) == pytest.approx(measured["iteration_s"])
    assert all(render_json(each) for each in (record, step, measured))


def test_a_table_has_a_row_for_each_operator(workload: Workload) -> None:
    table = build_operator_table(workload)
    assert table["kind"] == [operator.kind for operator in workload.operators]
    first = next(table.rows())
    assert (first["inputs"], first["output"]) == ("8x3x32x32 16x3x3x3", "8x16x32x32")
    assert first["attributes"] == "groups=1 stride=2x2"
    assert first["flops"] == 7.2e9


def test_the_plot_is_in_the_order_of_batches(prediction: StepPrediction) -> None:
    curve = build_curve(prediction)
    figure = draw_curve([curve[2], curve[0], curve[1]])
    figure.canvas.draw()
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["8", "16", "1,024"]
    assert render_svg(figure) == render_svg(draw_curve(curve))
    assert render_svg(draw_curve(curve[:1]))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0"),
        (1e-12, "0"),
        (1.234e-7, "0.12 µs"),
        (15.24e-6, "15.2 µs"),
        (0.99996e-3, "1.00 ms"),
        (1.236e-3, "1.24 ms"),
        (0.1504, "150 ms"),
        (12.34, "12.3 s"),
        (90.0, "1 min 30 s"),
        (float("nan"), "unknown"),
    ],
)
def test_short_times_have_three_digits(seconds: float, text: str) -> None:
    assert render_short_time(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (12, "12"), (999.9, "1 K"), (25.56e6, "25.6 M"), (1e15, "1 P"), (2.5e18, "2.5e+03 P")],
)
def test_large_numbers_are_short(number: float, text: str) -> None:
    assert render_scaled(number) == text
