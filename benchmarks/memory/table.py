"""The table of ``python -m benchmarks memory``."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.memory.results import AT_LEAST, Result

_WIDTH = 160  # without a terminal


def print_results(results: Sequence[Result]) -> None:
    """Print the rows."""
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    table = Table(title="Memory of a GPU: predictions against measurements, in per cent", title_justify="left")
    for head in ("what", "of", "cases", "figures", "known", "wanted", "note"):
        table.add_column(head, justify="right" if head == "cases" else "left")
    for result in results:
        table.add_row(
            result.what,
            result.group,
            str(result.cases),
            "\n".join(f"{name} {value:.1f}" for name, value in result.figures.items()),
            result.known,
            _write_goals(result),
            result.note,
        )
    console.print(table)


def _write_goals(result: Result) -> str:
    missed = result.list_missed()
    goals: Mapping[str, float] = result.wanted
    return "\n".join(
        f"{name} {'≥' if name in AT_LEAST else '≤'} {goal:g} {'missed' if name in missed else 'met'}"
        for name, goal in goals.items()
    )
