"""The house style of tables in the terminal: few lines, little colour, nothing that only colour says."""

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from foretell.reports.words import clean_line

HEADING, GOOD, BAD, QUIET = "bold", "green", "red", "dim"


def build_line(text: str, style: str = "") -> Text:
    """One line of text as it is: no markup is read in it."""
    return Text(clean_line(text), style=style)


def build_table(*columns: str, numbers: Iterable[str] = ()) -> Table:
    """A table with a line below its head; ``numbers`` are the columns aligned to the right."""
    right = frozenset(numbers)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style=HEADING)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def add_cells(table: Table, *cells: str, style: str = "") -> None:
    table.add_row(*(build_line(cell) for cell in cells), style=style)


def build_facts(facts: Iterable[tuple[str, str]]) -> Table:
    """Names on the left, what is known on the right; unknown ones are left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style=QUIET)
    grid.add_column(overflow="fold")
    for name, value in facts:
        if value:
            grid.add_row(build_line(name), build_line(value))
    return grid


def build_notes(title: str, notes: Iterable[str], style: str = "yellow") -> list[RenderableType]:
    """A heading and a line for each note; nothing where there are none."""
    grid = Table.grid(padding=(0, 1))
    for note in notes:
        grid.add_row("-", build_line(note))
    return [Text(title, style=style), grid] if grid.row_count else []


def stack(*parts: RenderableType | None) -> Group:
    return Group(*(part for part in parts if part is not None))
