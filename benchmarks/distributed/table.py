"""The table of ``python -m benchmarks distributed``."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.distributed.results import Result
from benchmarks.distributed.shared_rows import PredictedRow

_WIDTH = 180  # without a terminal
_HEADS = ("what", "of", "cases", "mean %", "median %", "worst %", "goal %", "inside 90 %", "width %", "note")
_PARTS = ("compute", "tensor", "data", "bubble", "host")


def print_results(results: Sequence[Result]) -> None:
    """Print the rows."""
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    table = Table(title="Errors of predictions, |predicted - measured| / measured", title_justify="left")
    for place, head in enumerate(_HEADS):
        table.add_column(head, justify="right" if 2 <= place < len(_HEADS) - 1 else "left")
    for result in results:
        table.add_row(*_cells(result))
    console.print(table)


def _cells(result: Result) -> tuple[str, ...]:
    goal = "" if result.most is None else f"{result.by} {result.most:g} {'met' if _is_met(result) else 'missed'}"
    return (
        result.what,
        result.group,
        str(result.cases),
        f"{result.mean:.1f}",
        f"{result.median:.1f}",
        f"{result.worst:.0f}",
        goal,
        "" if result.inside is None else f"{result.inside:.0f}",
        "" if result.width is None else f"{result.width:.0f}",
        result.note,
    )


def _is_met(result: Result) -> bool:
    assert result.most is not None
    return bool(getattr(result, result.by) <= result.most)


def render_details(rows: Sequence[PredictedRow]) -> str:
    """A line for each step, with tabs: times in milliseconds and the parts in per cent of the prediction."""
    heads = ("source", "group", "model", "facts", "gpus", "layout", "batch", "batches", "measured", "predicted")
    lines = ["\t".join((*heads, "ratio", "inside", *_PARTS))]
    return "\n".join([*lines, *("\t".join(_describe(each)) for each in rows)])


def _describe(each: PredictedRow) -> tuple[str, ...]:
    row, step = each.row, each.step
    total = sum(step.parts.values()) or 1.0
    return (
        row.source,
        row.group,
        row.model,
        " ".join(row.facts.values()),
        str(row.layout.gpus),
        str(row.layout),
        str(step.workload.batch),
        str(step.micro_batches),
        f"{1e3 * row.seconds:.2f}",
        f"{1e3 * step.step.value:.2f}",
        f"{step.step.value / row.seconds:.3f}",
        "yes" if step.step.low <= row.seconds <= step.step.high else "no",
        *(f"{100 * step.parts.get(name, 0.0) / total:.1f}" for name in _PARTS),
    )
