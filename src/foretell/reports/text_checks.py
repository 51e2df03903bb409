"""Predictions held against what was measured, and what an import brought."""

from collections.abc import Callable
from typing import Any

from rich.console import Group

from foretell.advice.outcomes import Verification
from foretell.apps.render import build_run_record
from foretell.entities.prediction import Estimate
from foretell.entities.units import render_bytes, render_duration
from foretell.reports.tables import BAD, GOOD, build_line, build_notes, build_table, stack
from foretell.reports.words import explain_failure, render_interval, render_level, render_parameters
from foretell.runtimes.render import build_prediction_record


def render_verification(verification: Verification) -> Group:
    """Expected and measured side by side, and whether the measured lies in the interval."""
    prediction, run = verification.prediction, verification.run
    head = build_line(f"{run.spec.app}: {render_parameters(prediction.parameters)}", style="bold")
    if not verification.completed or run.usage is None:
        return stack(head, build_line(f"The run did not complete: {explain_failure(run)}", style=BAD))
    level = render_level(prediction.elapsed_s.level)
    table = build_table("", "expected", f"{level} interval", "measured", "off by", "", numbers=("off by",))
    rows: list[tuple[str, Estimate, float, Callable[[float], str], bool | None]]
    rows = [("time", prediction.elapsed_s, run.usage.elapsed_s, render_duration, verification.time_inside)]
    if prediction.peak_memory_bytes and run.usage.peak_memory_bytes:
        measured = float(run.usage.peak_memory_bytes)
        rows.append(("memory", prediction.peak_memory_bytes, measured, render_bytes, verification.memory_inside))
    for name, estimate, value, render, inside in rows:
        verdict = build_line("inside" if inside else "outside", style=GOOD if inside else BAD)
        cells = (
            name,
            render(estimate.value),
            render_interval(estimate, render),
            render(value),
            _off_by(estimate, value),
        )
        table.add_row(*(build_line(cell) for cell in cells), verdict)
    return stack(head, table, *build_notes("Mind:", prediction.doubts))


def _off_by(estimate: Estimate, measured: float) -> str:
    return f"{100 * (estimate.value / measured - 1):+.1f} %"


def build_verification_record(verification: Verification) -> dict[str, Any]:
    """Prediction, run, and whether each measured figure lies in its interval."""
    return {
        "prediction": build_prediction_record(verification.prediction),
        "run": build_run_record(verification.run),
        "time_inside": verification.time_inside,
        "memory_inside": verification.memory_inside,
    }
