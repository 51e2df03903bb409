"""Renders predicted text generation: one device in full, several in one table."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType

from foretell.core.prediction import Estimate
from foretell.core.render.phrases import count, render_interval, render_level, render_short_time
from foretell.core.render.tables import HEADING, QUIET, FirstThatFits, build_line, stack
from foretell.core.serialization import to_record
from foretell.steps.generation_results import GenerationPrediction
from foretell.steps.render import build_costly, build_fitting, build_panel
from foretell.steps.render_generation import describe_generation
from foretell.steps.render_predictions import (
    EVIDENCE,
    build_left_out,
    build_step_record,
    build_warning_lines,
    list_left_out,
    render_rate,
    render_shares,
)
from foretell.steps.step_results import LeftOutDevice, group_operators

Record = dict[str, Any]


def render_generations(
    predictions: Sequence[GenerationPrediction], *, rows: int, left_out: Iterable[LeftOutDevice] = ()
) -> Group:
    """One prediction as a panel with the most costly operators of a token; several as a table."""
    left_out = tuple(left_out)
    devices = {each.device for each in predictions} | {each.device for each in left_out}
    parts = _build_detailed(predictions[0], rows) if len(predictions) == 1 and not left_out else _compare(predictions)
    warnings = [warning for each in predictions for warning in each.warnings]
    return stack(*parts, *build_left_out(left_out), *build_warning_lines(warnings, devices=len(devices)))


def _build_detailed(prediction: GenerationPrediction, rows: int) -> list[RenderableType]:
    generation, step = prediction.generation, prediction.main_step
    estimate = step.estimate
    facts = [
        ("First token", _render_estimate(prediction.first_token_s)),
        ("Each further token", _render_estimate(prediction.token_s) if generation.new > 1 else ""),
        ("Whole text", _render_estimate(prediction.total_s)),
        ("Tokens per second", render_rate(prediction.tokens_per_s)),
        ("Limited by", render_shares(estimate.limits)),
        ("Learned from", render_shares(estimate.evidence)),
        ("Precision", step.precision),
        ("Method", prediction.method),
    ]
    groups = group_operators(step.workload, estimate.kernel_s, estimate.gap_s)
    where = "the prompt" if step is prediction.steps[0] else "a token"
    return [
        build_line(describe_generation(generation), HEADING),
        build_panel(f"{count(generation.new, 'token')}, batch {generation.batch:,} on {prediction.device}", facts),
        build_line(f"Most costly operators of {where}", HEADING),
        build_costly(groups[:rows], estimate.iteration.value),
    ]


def _render_estimate(estimate: Estimate) -> str:
    interval = render_interval(estimate, render_short_time)
    return f"{render_short_time(estimate.value)} ({render_level(estimate.level)}: {interval})"


def _compare(predictions: Sequence[GenerationPrediction]) -> list[RenderableType]:
    first = predictions[0].generation
    batches = dict.fromkeys(f"{each.generation.batch:,}" for each in predictions)
    title = describe_generation(first)
    if len(batches) > 1:
        title = title.replace(f"batch {first.batch:,}", f"batches {', '.join(batches)}", 1)
    known = any(step.estimate.evidence for each in predictions for step in each.steps)
    return [
        build_line(title, HEADING),
        _build_table(predictions),
        build_line(EVIDENCE if known else f"Method: {predictions[0].method}", QUIET),
    ]


def _build_table(predictions: Sequence[GenerationPrediction]) -> FirstThatFits:
    """A row for each prediction; columns without any value are left out."""
    interval = f"Whole text, {render_level(predictions[0].total_s.level)}"
    columns = {
        "Device": [each.device for each in predictions],
        "Batch": [f"{each.generation.batch:,}" for each in predictions],
        "First token": [render_short_time(each.first_token_s.value) for each in predictions],
        "Per token": [render_short_time(each.token_s.value) if each.token_s.value else "" for each in predictions],
        "Whole text": [render_short_time(each.total_s.value) for each in predictions],
        interval: [render_interval(each.total_s, render_short_time).replace(" to ", " - ") for each in predictions],
        "Tokens/s": [render_rate(each.tokens_per_s) for each in predictions],
        "Limited by": [each.main_step.estimate.main_limit for each in predictions],
        "Evidence": [each.main_step.estimate.main_evidence for each in predictions],
    }
    if len(set(columns["Batch"])) == 1:
        del columns["Batch"]
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    words = ("Device", "Limited by", "Evidence")
    return build_fitting(
        tuple(shown),
        list(zip(*shown.values(), strict=True)),
        numbers=[name for name in shown if name not in words],
        dropped=("Whole text",),
    )


def build_generation_records(
    predictions: Iterable[GenerationPrediction], *, rows: int, left_out: Iterable[LeftOutDevice] = ()
) -> list[Record]:
    """Predictions, then the devices that were left out, which have no times but a reason."""
    return [*(_build_record(each, rows) for each in predictions), *list_left_out(left_out)]


def _build_record(prediction: GenerationPrediction, rows: int) -> Record:
    generation = prediction.generation
    names = ["prompt", *(f"token after {length}" for length in generation.lengths)]
    return {
        "device": prediction.device,
        "method": prediction.method,
        "name": generation.name,
        "batch": generation.batch,
        "prompt": generation.prompt,
        "new": generation.new,
        "first_token_s": to_record(prediction.first_token_s),
        "token_s": to_record(prediction.token_s),
        "total_s": to_record(prediction.total_s),
        "tokens_per_s": prediction.tokens_per_s,
        "steps": [
            {"step": name, "stands_for": weight, **build_step_record(step, rows=rows)}
            for name, weight, step in zip(names, (1.0, *generation.weights), prediction.steps, strict=True)
        ],
        "warnings": to_record(prediction.warnings),
    }
