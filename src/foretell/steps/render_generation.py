"""Renders the steps in which a language model generates text."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group

from foretell.core.generation import Generation
from foretell.core.render.phrases import count, render_scaled
from foretell.core.render.tables import HEADING, WordTable, add_cells, build_line, build_table, build_warnings, stack
from foretell.core.table_files import Table
from foretell.core.units import render_bytes
from foretell.core.workload import Workload
from foretell.steps.render import build_operator_table, build_workload_record, render_workload
from foretell.workloads.workload_warnings import find_generation_warnings, find_warnings

Record = dict[str, Any]


def render_generation(generation: Generation, *, rows: int | None) -> Group:
    """The steps with their totals, and the operators of the first step after the prompt."""
    steps = [generation.prefill, *generation.decodes]
    warnings = dict.fromkeys(warning for step in steps for warning in find_warnings(step))
    return stack(
        build_line(describe_generation(generation), HEADING),
        _build_steps(generation),
        build_line("The prompt" if not generation.decodes else "The first token after the prompt", HEADING),
        render_workload(steps[min(1, len(steps) - 1)], rows=rows, warn=False),
        *build_warnings([*warnings, *find_generation_warnings(generation)]),
    )


def describe_generation(generation: Generation) -> str:
    """Generated text in one line."""
    settings = generation.prefill.settings
    words = [
        f"batch {generation.batch:,}",
        f"{render_scaled(generation.prefill.parameters)} parameters",
        f"{count(generation.new, 'token')} after a prompt of {count(generation.prompt, 'token')}",
        settings.get("precision", ""),
        "compiled" if settings.get("compile") == "yes" else "",
    ]
    return f"{generation.name}: {', '.join(filter(None, words))}"


def _list_steps(generation: Generation) -> Iterator[tuple[str, float, Workload]]:
    """Each captured step with its name and how many it stands for."""
    yield "prompt", 1.0, generation.prefill
    for length, weight, step in zip(generation.lengths, generation.weights, generation.decodes, strict=True):
        yield f"token after {length:,}", weight, step


def _build_steps(generation: Generation) -> WordTable:
    numbers = ("Stands for", "Operators", "FLOPs", "Bytes")
    table = build_table("Step", *numbers, numbers=numbers)
    for name, weight, step in _list_steps(generation):
        totals = (f"{len(step.operators):,}", render_scaled(step.flops), render_bytes(step.bytes_moved))
        add_cells(table, name, f"{weight:,.1f}".removesuffix(".0"), *totals)
    whole = (f"{generation.new:,}", "", render_scaled(generation.flops), render_bytes(generation.bytes_moved))
    add_cells(table, "whole text", *whole, style=HEADING)
    return table


def build_generation_record(generation: Generation) -> Record:
    """The whole text: totals, and each captured step with its operators."""
    return {
        "name": generation.name,
        "batch": generation.batch,
        "prompt": generation.prompt,
        "new": generation.new,
        "cached": generation.cached,
        "flops": generation.flops,
        "bytes_moved": generation.bytes_moved,
        "warnings": [warning.text for warning in find_generation_warnings(generation)],
        "steps": [
            {"step": name, "stands_for": weight, **build_workload_record(step)}
            for name, weight, step in _list_steps(generation)
        ],
    }


def build_generation_table(generation: Generation) -> Table:
    """A row for each operator of each captured step."""
    columns: dict[str, list[Any]] = {"step": []}
    for name, _, step in _list_steps(generation):
        table = build_operator_table(step)
        columns["step"] += [name] * len(table)
        for column, values in table.columns.items():
            columns.setdefault(column, []).extend(values)
    return Table(columns)
