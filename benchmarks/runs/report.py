"""Records as tables: for a terminal, and for the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- runs: begin -->", "<!-- runs: end -->"
_WIDTH = 140  # where there is no terminal to ask
_HEADS = ("", "Ours", "Best known", "Goal", "Ahead", "Reached")


def print_sets(records: Sequence[Mapping[str, Any]], all_sets: Mapping[str, float]) -> None:
    console = _console()
    for record in records:
        table = _table(f"{record['set']}: {record['about']}\n{_counts(record)}", _HEADS)
        for figure in record["figures"]:
            table.add_row(*_figure_cells(figure))
        console.print(table)
        for failure in record["failed"]:
            console.print(f"not answered: {failure}", markup=False)
    table = _table("90 % intervals", _INTERVAL_HEADS)
    for cells in _interval_rows(records, all_sets):
        table.add_row(*cells)
    console.print(table)


def print_tables(record: Mapping[str, Any]) -> None:
    """The metrics of two tables of one's own."""
    console = _console()
    console.print(
        f"learned from {record['train_rows']} runs in {record['build_s']:.1f} s"
        + (
            f"; {record['rows_in_both']} rows that also are to be predicted were left out"
            * bool(record["rows_in_both"])
        )
    )
    groups = [
        (f"{name} = {value}", metrics) for name, values in record["groups"].items() for value, metrics in values.items()
    ]
    for quantity in ("time", "memory"):
        if quantity not in record:
            continue
        table = _table(quantity, ("", *_JUDGED))
        for name, metrics in [("all", record), *groups]:
            table.add_row(name, *(f"{metrics[quantity][key]:.4g}" for key in _JUDGED.values()))
        console.print(table)


_JUDGED = {
    "rows": "rows",
    "mean error %": "mape",
    "median %": "median_ape",
    "p90 %": "p90_ape",
    "in 90 % interval %": "coverage",
    "mean width %": "mean_width",
    "median width %": "median_width",
    "request too small %": "upp",
    "cost of requests, times": "retry_cost",
}


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head, justify="right" if head else "left")
    return table


def _counts(record: Mapping[str, Any]) -> str:
    build = record["build"]
    repeats = ", ".join(f"{name} {count}" for name, count in record["repeats"].items())
    return (
        f"{record['cases']} cases ({repeats} splits), {len(record['failed'])} not answered; "
        f"build {build['median_s']:.2g} s (median, {build['median_runs']:.0f} runs), {build['most_s']:.2g} s at most"
    )


def _figure_cells(figure: Mapping[str, Any]) -> tuple[str, ...]:
    unit = figure["unit"]
    spread = "" if figure["spread"] is None else f" ± {_number(figure['spread'])}"
    known = "" if figure["known"] is None else f"{_number(figure['known'])} {unit} ({figure['known_by']})"
    goal = "" if figure["goal"] is None else f"≤ {_number(figure['goal'])} {unit}"
    ours = f"{_number(figure['ours'])}{spread} {unit}"
    return figure["name"], ours, known, goal, _yes(figure["ahead"]), _yes(figure["reached"])


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _yes(truth: bool | None) -> str:
    return "" if truth is None else "yes" if truth else "no"


_INTERVAL_HEADS = ("", "Predictions", "Covered", "Mean width", "Median width", "Goal", "Reached")


def _interval_rows(records: Sequence[Mapping[str, Any]], all_sets: Mapping[str, float]) -> list[tuple[str, ...]]:
    rows = []
    for record in records:
        metrics = record["intervals"]
        reached = _yes(metrics["coverage"] >= 80)
        rows.append((record["set"], *_interval_cells(metrics["rows"], metrics["coverage"], metrics), "≥ 80 %", reached))
    widths = {"mean_width": all_sets["mean_width_of_sets"], "median_width": all_sets["median_width_of_sets"]}
    for name, key in (
        ("all, each prediction counting the same", "coverage_of_rows"),
        ("all, each set", "coverage_of_sets"),
    ):
        covered = all_sets[key]
        cells = _interval_cells(int(all_sets["rows"]), covered, widths)
        rows.append((name, *cells, "88 to 92 %", _yes(88 <= covered <= 92)))
    return rows


def _interval_cells(rows: int, covered: float, widths: Mapping[str, float]) -> tuple[str, ...]:
    return f"{rows:,}", f"{covered:.1f} %", f"{_number(widths['mean_width'])} %", f"{_number(widths['median_width'])} %"


def write_page(records: Sequence[Mapping[str, Any]], all_sets: Mapping[str, float], *, page: Path = PAGE) -> None:
    """Put the tables between the page's marks.

    Raises:
        ValueError: if the page has no marks.
    """
    text = page.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page}: no lines {BEGIN} and {END} to write between; put them where the tables shall stand")
    page.write_text(f"{before}{BEGIN}\n\n{render_markdown(records, all_sets)}\n{END}{after}", "utf-8")


def render_markdown(records: Sequence[Mapping[str, Any]], all_sets: Mapping[str, float]) -> str:
    parts = []
    for record in records:
        head = f"**`{record['set']}`** — {record['about']}. {_counts(record)}."
        failed = [f"Not answered: {failure}." for failure in record["failed"]]
        parts += [head, *failed, _markdown(_HEADS, [_figure_cells(figure) for figure in record["figures"]])]
    parts += ["**90 % intervals**", _markdown(_INTERVAL_HEADS, _interval_rows(records, all_sets))]
    return "\n\n".join(parts) + "\n"


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
