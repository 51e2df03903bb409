"""The house style of tables in the terminal: few lines, little colour, nothing that only colour says."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from foretell.reports.words import clean_line

_SHORT = 8  # characters: "40 cores" and "1,023 MB" are easier to read in one line
_LONGEST_WORD = 20  # an id of a run has 18; a longer word, such as a path, may be broken
_ENDLESS = 10_000

HEADING, GOOD, BAD, QUIET = "bold", "green", "red", "dim"


def build_line(text: str, style: str = "") -> Text:
    """One line of text as it is: no markup is read in it."""
    return Text(clean_line(text), style=style)


class WordTable(Table):
    """A table that is narrowed between words: names, ids and numbers stay whole and can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        gaps = 2 * len(self.columns)  # a blank of padding and one of the box between any two, and one at each end
        sizes = [_measure(column, console, options) for column in self.columns]
        for column, width in zip(self.columns, _fit(sizes, options.max_width - gaps), strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)


def _measure(column: Column, console: Console, options: ConsoleOptions) -> Measurement:
    """The longest word and the longest line of a column."""
    unlimited = options.update(max_width=_ENDLESS)
    sizes = [Measurement.get(console, unlimited, cell) for cell in (column.header, *column.cells)]
    widest = max(size.maximum for size in sizes)
    return Measurement(widest if column.no_wrap else max(size.minimum for size in sizes), widest)


def _fit(sizes: Sequence[Measurement], room: int) -> list[int]:
    """Widths that fit the room: the widest columns give way first, down to their longest word, if that is possible."""
    widths = [size.maximum for size in sizes]
    whole = [size.minimum == size.maximum and size.maximum <= _LONGEST_WORD for size in sizes]
    words = [min(size.minimum, _LONGEST_WORD) for size in sizes]
    short = [size.maximum if size.maximum <= _SHORT else word for size, word in zip(sizes, words, strict=True)]
    narrow, least_of_all = ([word if kept else few for word, kept in zip(words, whole, strict=True)] for few in (4, 1))
    for least in (short, words, narrow, least_of_all):
        while sum(widths) > room:
            wide = [number for number, width in enumerate(widths) if width > least[number]]
            if not wide:
                break
            widths[max(wide, key=lambda number: widths[number])] -= 1
    return widths


def build_table(*columns: str, numbers: Iterable[str] = (), whole: Iterable[str] = ()) -> Table:
    """A table with a line below its head; ``numbers`` are aligned to the right, ``whole`` columns are never broken."""
    right, unbroken = frozenset(numbers), frozenset(whole)
    table = WordTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style=HEADING)
    for name in columns:
        justify: JustifyMethod = "right" if name in right else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name in unbroken)
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
