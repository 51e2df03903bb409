"""Tables of predicted pairs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.sanity.pairs import Result

_KINDS = 8
_WIDTH = 150  # of the table: a pair is one line
COLUMNS = ("Model", "GPU", "Precision", "Batch", "Published", "Predicted", "Ratio", "90 % interval", "Evidence")


def print_results(results: Sequence[Result], *, kernels: bool) -> None:
    console = Console(width=max(Console().width, _WIDTH))
    table = Table(title="predicted against published throughput", title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("Model", "GPU", "Precision", "Evidence") else "right")
    for result in results:
        table.add_row(*_list_cells(result))
    console.print(table)
    for name, value in summarise(results).items():
        console.print(f"{name}: {value}")
    for result in results if kernels else ():
        console.print(
            f"\n{result.pair.model} {result.pair.board or result.pair.device} {result.pair.precision}", style="bold"
        )
        for kind, seconds in list(result.kernels_s.items())[:_KINDS]:
            console.print(f"  {kind:40} {1e3 * seconds:8.1f} ms {seconds / result.estimate.iteration.value:6.1%}")


def _list_cells(result: Result) -> tuple[str, ...]:
    pair, iteration = result.pair, result.estimate.iteration
    unit = "images/s" if pair.model == "resnet50" else "sequences/s" if pair.examples_per_s else "tokens/s"
    work = pair.batch * int(pair.options.get("accumulation", 1)) * (pair.length if pair.tokens_per_s else 1)
    published = pair.examples_per_s or pair.tokens_per_s or 0.0
    mark = "" if result.inside else " (outside)"
    return (
        pair.model,
        pair.board or pair.device,
        pair.precision,
        f"{pair.batch} x {pair.length}" if pair.length else str(pair.batch),
        f"{published:,.0f} {unit}",
        f"{work / iteration.value:,.0f}",
        f"{result.ratio:.2f}",
        f"{work / iteration.high:,.0f} to {work / iteration.low:,.0f}{mark}",
        result.estimate.main_evidence,
    )


def summarise(results: Sequence[Result]) -> dict[str, str]:
    """How far predictions are off."""
    ratios = np.array([result.ratio for result in results])
    off = np.maximum(ratios, 1 / ratios)
    inside = sum(result.inside for result in results)
    return {
        "median error": f"{100 * np.median(np.abs(1 / ratios - 1)):.1f} % of the time",
        "largest factor": f"{off.max():.2f}",
        "inside their 90 % interval": f"{inside} of {len(results)}",
    }


def render_markdown(results: Sequence[Result]) -> str:
    """The table of the documentation, and why those outside their interval are outside."""
    columns = ("Model", "GPU", "Precision", "Batch", "Published", "Predicted", "90 % interval", "Evidence")
    lines = [f"| {' | '.join(columns)} |", f"| {' | '.join('---' for _ in columns)} |"]
    for result in results:
        name, gpu, precision, batch, published, predicted, _, interval, evidence = _list_cells(result)
        row = (name, gpu, precision, batch, published, predicted, interval.replace("outside", "*"), evidence)
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", *(f"{name}: {value}." for name, value in summarise(results).items())]
    lines += [
        f"- {result.pair.model} on {result.pair.board or result.pair.device}: {result.pair.differs or 'not known'}."
        for result in results
        if not result.inside
    ]
    return "\n".join(lines)


def record_results(results: Sequence[Result]) -> dict[str, Any]:
    rows = [
        {
            **dict(zip(("model", "gpu", "precision"), _list_cells(result)[:3], strict=True)),
            "published_s": result.pair.published_s,
            "predicted_s": result.estimate.iteration.value,
            "low_s": result.estimate.iteration.low,
            "high_s": result.estimate.iteration.high,
            "ratio": result.ratio,
            "inside": result.inside,
            "evidence": dict(result.estimate.evidence),
            "kernels_s": result.kernels_s,
            "source": result.pair.source,
            "said": result.pair.said,
            "differs": result.pair.differs,
        }
        for result in results
    ]
    return {"pairs": rows, "summary": summarise(results)}
