"""The tables of ``python -m benchmarks distributed``."""

from collections.abc import Sequence

from benchmarks.distributed.shared_rows import PredictedRow
from benchmarks.gpus import table
from benchmarks.gpus.results import Result

_WIDTH = 180  # without a terminal
_PARTS = ("compute", "tensor", "data", "bubble", "host")


def print_results(results: Sequence[Result]) -> None:
    """Print the rows."""
    table.print_results(results, width=_WIDTH)


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
