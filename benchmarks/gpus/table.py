"""The table of ``python -m benchmarks gpus``."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.gpus.results import Result

_HEADS = ("what", "of", "cases", "mean %", "median %", "worst %", "goal %", "inside 90 %", "width %", "note")


def print_results(results: Sequence[Result], *, width: int = 160) -> None:
    """Print the rows; ``width`` is that without a terminal."""
    console = Console()
    console = console if console.is_terminal else Console(width=width)
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
