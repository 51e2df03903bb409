"""Renders predicted steps: one in full, several batches of a device, or several devices in one table."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel

from foretell.core.render.phrases import clean_line, render_interval, render_level, render_short_time
from foretell.core.render.tables import (
    HEADING,
    QUIET,
    FirstThatFits,
    build_line,
    build_notes,
    build_warnings,
    stack,
)
from foretell.core.serialization import to_record
from foretell.core.warning import PredictionWarning
from foretell.core.workload import StepPhase
from foretell.steps.render import (
    build_costly,
    build_fitting,
    build_panel,
    build_step_facts,
    describe_workload,
    list_costly,
    render_share,
)
from foretell.steps.step_results import LeftOutDevice, StepPrediction, group_operators

Record = dict[str, Any]

EVIDENCE = (
    "Evidence: kernels were measured on this device, or on similar ones (of its architecture); or only its figures "
    "are known."
)
_LITTLE_MEASURED = "evidence-figures"
_MOST_NAMED = 12  # devices of one reason


def render_step_predictions(
    predictions: Sequence[StepPrediction], *, rows: int, left_out: Iterable[LeftOutDevice] = ()
) -> Group:
    """One prediction as a panel with the most costly operators; several as a table."""
    left_out = tuple(left_out)
    devices = {each.device for each in predictions} | {each.device for each in left_out}
    if len(predictions) == 1 and not left_out:
        parts = _build_detailed(predictions[0], rows)
    elif len(devices) == 1:
        parts = [
            build_line(f"{predictions[0].workload.name} on {predictions[0].device}", HEADING),
            _build_curve(predictions),
        ]
    else:
        parts = _build_comparison(predictions)
    warnings = [each for prediction in predictions for each in prediction.warnings]
    return stack(*parts, *build_left_out(left_out), *build_warning_lines(warnings, devices=len(devices)))


def build_warning_lines(warnings: Sequence[PredictionWarning], *, devices: int) -> list[RenderableType]:
    """Warnings that a table of devices does not say; of how little was measured, only the strongest."""
    kept = [each for each in warnings if each.code != _LITTLE_MEASURED]
    little = [each for each in warnings if each.code == _LITTLE_MEASURED]
    strongest = max(little, key=lambda each: float(each.data.get("share", 0.0)), default=None)
    return build_warnings([*kept, strongest] if strongest is not None and devices == 1 else kept)


def build_left_out(left_out: Iterable[LeftOutDevice]) -> list[RenderableType]:
    """Devices that could not be predicted, by reason."""
    reasons: dict[str, list[str]] = {}
    for each in left_out:
        reasons.setdefault(each.reason, []).append(each.device)
    notes = []
    for reason, names in reasons.items():
        more = len(names) - _MOST_NAMED
        listed = ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        notes.append(f"{listed}: {reason}")
    return build_notes("Left out", notes)


# One prediction


def _build_detailed(prediction: StepPrediction, rows: int) -> list[RenderableType]:
    estimate = prediction.estimate
    groups = group_operators(prediction.workload, estimate.kernel_s, estimate.gap_s)
    return [
        _build_panel(prediction),
        build_line("Most costly operators", HEADING),
        build_costly(groups[:rows], estimate.iteration.value),
    ]


def _build_panel(prediction: StepPrediction) -> Panel:
    estimate = prediction.estimate
    whole = estimate.iteration.value
    interval = f"{render_level(estimate.iteration.level)}: {render_interval(estimate.iteration, render_short_time)}"
    parts = [(phase.title(), estimate.phases.get(phase, 0.0)) for phase in StepPhase]
    waits = [("Device busy", estimate.busy_s), ("Framework overhead", estimate.overhead_s)]
    facts = [
        ("Iteration", f"{render_short_time(whole)} ({interval})"),
        *(
            (name, f"{render_short_time(seconds)}, {render_share(seconds, whole)}" if seconds else "")
            for name, seconds in [*parts, *waits]
        ),
        ("Examples per second", render_rate(prediction.examples_per_s)),
        ("Tokens per second", _render_optional_rate(prediction.tokens_per_s)),
        ("Of the peak (MFU)", _render_mfu(prediction)),
        ("Limited by", render_shares(estimate.limits)),
        ("Learned from", render_shares(estimate.evidence)),
        ("Precision", prediction.precision),
        ("Method", prediction.method),
    ]
    return build_panel(f"{prediction.workload.name}, batch {prediction.workload.batch:,} on {prediction.device}", facts)


def render_shares(shares: Mapping[str, float]) -> str:
    """``memory 62 %, compute 30 %, host 8 %``, the largest first."""
    ordered = sorted(shares.items(), key=lambda pair: pair[1], reverse=True)
    return ", ".join(f"{clean_line(name)} {100 * share:.0f} %" for name, share in ordered if share >= 0.005)


# Several batches of one device


def _build_curve(predictions: Sequence[StepPrediction]) -> FirstThatFits:
    interval = _title_interval(predictions)
    phases = [phase for phase in StepPhase if any(each.estimate.phases.get(phase, 0.0) for each in predictions)]
    columns = ("Batch", "Iteration", interval, *(phase.title() for phase in phases), "Busy", "Overhead", "Examples/s")
    rows = [
        (
            f"{prediction.workload.batch:,}",
            *_render_times(prediction),
            *(render_short_time(prediction.estimate.phases.get(phase, 0.0)) for phase in phases),
            render_share(prediction.estimate.busy_s, prediction.estimate.iteration.value),
            render_share(prediction.estimate.overhead_s, prediction.estimate.iteration.value),
            render_rate(prediction.examples_per_s),
        )
        for prediction in predictions
    ]
    return build_fitting(columns, rows, numbers=columns, dropped=("Overhead", "Update", "Forward", "Backward"))


# Several devices


def _build_comparison(predictions: Sequence[StepPrediction]) -> list[RenderableType]:
    workloads = {prediction.workload.batch: prediction.workload for prediction in predictions}
    first = predictions[0].workload
    title = describe_workload(first)
    if len(workloads) > 1:
        title = title.replace(f"batch {first.batch:,}", f"batches {', '.join(f'{batch:,}' for batch in workloads)}", 1)
    evidence = any(prediction.estimate.evidence for prediction in predictions)
    return [
        build_line(title, HEADING),
        _build_device_table(predictions),
        build_line(EVIDENCE, QUIET) if evidence else build_line(f"Method: {predictions[0].method}", QUIET),
    ]


def _build_device_table(predictions: Sequence[StepPrediction]) -> FirstThatFits:
    """A row for each prediction; columns without any value are left out."""
    columns = {
        "Device": [prediction.device for prediction in predictions],
        "Batch": [f"{prediction.workload.batch:,}" for prediction in predictions],
        "Iteration": [render_short_time(prediction.estimate.iteration.value) for prediction in predictions],
        _title_interval(predictions): [_render_times(prediction)[1] for prediction in predictions],
        "Examples/s": [render_rate(prediction.examples_per_s) for prediction in predictions],
        "Tokens/s": [_render_optional_rate(prediction.tokens_per_s) for prediction in predictions],
        "MFU": [_render_mfu(prediction) for prediction in predictions],
        "Limited by": [prediction.estimate.main_limit for prediction in predictions],
        "Evidence": [prediction.estimate.main_evidence for prediction in predictions],
    }
    if len(set(columns["Batch"])) == 1:
        del columns["Batch"]
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    words = ("Device", "Limited by", "Evidence")
    return build_fitting(
        tuple(shown),
        list(zip(*shown.values(), strict=True)),
        numbers=[name for name in shown if name not in words],
        dropped=("Examples/s",) if "Tokens/s" in shown else ("MFU",) if "MFU" in shown else (),
    )


def _title_interval(predictions: Sequence[StepPrediction]) -> str:
    return f"{render_level(predictions[0].estimate.iteration.level)} interval"


def _render_times(prediction: StepPrediction) -> tuple[str, str]:
    """The iteration and its interval."""
    iteration = prediction.estimate.iteration
    return render_short_time(iteration.value), render_interval(iteration, render_short_time).replace(" to ", " - ")


def _render_mfu(prediction: StepPrediction) -> str:
    mfu = prediction.estimate.mfu
    return "" if mfu is None else f"{100 * mfu:.1f} %"


def _render_optional_rate(rate: float | None) -> str:
    return "" if rate is None else render_rate(rate)


def render_rate(rate: float) -> str:
    """``12,345``, ``1.23``."""
    return f"{rate:,.0f}" if rate >= 99.5 else f"{rate:.3g}"


# Records


def build_step_records(
    predictions: Iterable[StepPrediction], *, rows: int, left_out: Iterable[LeftOutDevice] = ()
) -> list[Record]:
    """Predictions, then the devices that were left out, which have no iteration but a reason."""
    return [*(build_step_record(prediction, rows=rows) for prediction in predictions), *list_left_out(left_out)]


def list_left_out(left_out: Iterable[LeftOutDevice]) -> list[Record]:
    """Records of devices that were left out."""
    return [{"device": each.device, "iteration_s": None, "reason": each.reason} for each in left_out]


def build_step_record(prediction: StepPrediction, *, rows: int) -> Record:
    """A prediction with its parts, and the most costly operators."""
    estimate = prediction.estimate
    return {
        "device": prediction.device,
        "method": prediction.method,
        **build_step_facts(prediction.workload),
        "precision": prediction.precision,
        "iteration_s": to_record(estimate.iteration),
        "phases_s": {phase: float(estimate.phases.get(phase, 0.0)) for phase in StepPhase},
        "busy_s": estimate.busy_s,
        "overhead_s": estimate.overhead_s,
        "examples_per_s": prediction.examples_per_s,
        "tokens_per_s": prediction.tokens_per_s,
        "mfu": estimate.mfu,
        "limits": dict(estimate.limits),
        "evidence": dict(estimate.evidence),
        "costly": list_costly(prediction.workload, estimate.kernel_s, estimate.gap_s, rows),
        "warnings": to_record(prediction.warnings),
    }
