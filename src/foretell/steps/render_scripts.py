"""Renders recorded scripts: what the training is, the operators of its step, and what it wrote."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group

from foretell.core.render.phrases import clean_line, count
from foretell.core.render.tables import build_facts, build_warnings, stack
from foretell.core.serialization import to_record
from foretell.steps.render import build_workload_record, render_workload
from foretell.workloads.scripts.script_facts import RecordedScript


def render_script(script: RecordedScript, *, rows: int | None) -> Group:
    """The facts of the training, the operators of its first step, and warnings."""
    facts = list(_describe_facts(script))
    return stack(
        build_facts(facts) if facts else None,
        render_workload(script.workload, rows=rows),
        *build_warnings(script.warnings),
    )


def build_script_record(script: RecordedScript) -> dict[str, Any]:
    """As :func:`build_workload_record`, with the facts of the training."""
    return {
        **build_workload_record(script.workload),
        "command": list(script.command),
        "training": to_record(script.facts),
        "warnings": to_record(script.warnings),
    }


def _describe_facts(script: RecordedScript) -> Iterator[tuple[str, str]]:
    facts = script.facts
    if facts.samples:
        yield "Data set", count(facts.samples, "example")
    if facts.batches:
        yield "Epoch", f"{facts.batches:,} {'batch' if facts.batches == 1 else 'batches'}"
    length = [count(facts.epochs, "epoch")] if facts.epochs else []
    length += [count(facts.steps, "step")] if facts.steps else []
    if length:
        yield "Training", ", ".join(length)
    if facts.optimizer:
        rate = f", learning rate {facts.learning_rate:g}" if facts.learning_rate is not None else ""
        yield "Optimizer", clean_line(facts.optimizer + rate)
    if facts.wrappers:
        yield "Recorded as", f"one process, without {clean_line(', '.join(facts.wrappers))}"
