"""The house style of tables in the terminal: few lines, little colour, nothing that only colour says."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from foretell.core.errors import SiteError, SpecError
from foretell.core.render.phrases import clean_line, count
from foretell.core.warning import PredictionWarning

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
        sizes = self._measure_columns(console, options)
        parts = _split(sizes, options.max_width)
        if len(parts) > 1:
            yield from map(self._take, parts)
            return
        for column, width in zip(self.columns, _fit(sizes, self._find_room(options)), strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)

    def _take(self, numbers: Sequence[int]) -> "WordTable":
        """The same rows with only some of the columns."""
        part = WordTable(box=self.box, pad_edge=False, padding=self.padding, header_style=self.header_style)
        part.columns = [replace(self.columns[number], _index=place) for place, number in enumerate(numbers)]
        part.rows = self.rows
        return part

    def fits(self, console: Console, options: ConsoleOptions) -> bool:
        """Whether no short cell is broken, none of a column that is to stay whole, and others hardly more than once."""
        sizes = self._measure_columns(console, options)
        least = (max(_find_least_width(size), math.ceil(size.maximum / 2)) for size in sizes)
        return sum(least) <= self._find_room(options)

    def _measure_columns(self, console: Console, options: ConsoleOptions) -> list[Measurement]:
        return [_measure(column, console, options) for column in self.columns]

    def _find_room(self, options: ConsoleOptions) -> int:
        """What is left for cells: a blank of padding and one of the box are between any two, and one at each end."""
        return options.max_width - 2 * len(self.columns)


class FirstThatFits:
    """The first of several tables, which show the same, that fits the terminal; the last where none does."""

    def __init__(self, *tables: WordTable) -> None:
        self.tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield next((table for table in self.tables if table.fits(console, options)), self.tables[-1])


def _measure(column: Column, console: Console, options: ConsoleOptions) -> Measurement:
    """The longest word and the longest line of a column."""
    unlimited = options.update(max_width=_ENDLESS)
    sizes = [Measurement.get(console, unlimited, cell) for cell in (column.header, *column.cells)]
    widest = max(size.maximum for size in sizes)
    return Measurement(widest if column.no_wrap else max(size.minimum for size in sizes), widest)


def _split(sizes: Sequence[Measurement], room: int) -> list[list[int]]:
    """Columns that fit without a broken word; the others follow below, with the first column repeated."""
    parts: list[list[int]] = [[]]
    for number in range(len(sizes)):
        wide = [min(sizes[each].minimum, _LONGEST_WORD) for each in (*parts[-1], number)]
        if len(parts[-1]) > 1 and sum(wide) + 2 * len(wide) > room:
            parts.append([0])
        parts[-1].append(number)
    return parts


def _fit(sizes: Sequence[Measurement], room: int) -> list[int]:
    """Widths that fit the room: the widest columns give way first, down to their longest word, if that is possible."""
    widths = [size.maximum for size in sizes]
    whole = [size.minimum == size.maximum and size.maximum <= _LONGEST_WORD for size in sizes]
    words = [min(size.minimum, _LONGEST_WORD) for size in sizes]
    short = [_find_least_width(size) for size in sizes]
    narrow, least_of_all = ([word if kept else few for word, kept in zip(words, whole, strict=True)] for few in (4, 1))
    for least in (short, words, narrow, least_of_all):
        while sum(widths) > room:
            wide = [number for number, width in enumerate(widths) if width > least[number]]
            if not wide:
                break
            widths[max(wide, key=lambda number: widths[number])] -= 1
    return widths


def _find_least_width(size: Measurement) -> int:
    """Of a column that is easy to read: short cells stay in one line, others are broken between words."""
    return size.maximum if size.maximum <= _SHORT else min(size.minimum, _LONGEST_WORD)


def build_table(*columns: str, numbers: Iterable[str] = (), whole: Iterable[str] = ()) -> WordTable:
    """A table with a line below its head; ``numbers`` are aligned to the right, ``whole`` columns are never broken."""
    right, unbroken = frozenset(numbers), frozenset(whole)
    table = WordTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style=HEADING)
    for name in columns:
        justify: JustifyMethod = "right" if name in right else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name in unbroken)
    return table


def add_cells(table: Table, *cells: str | tuple[str, ...], style: str = "") -> None:
    """A row; a cell of several texts has a line for each."""
    table.add_row(*(_build_cell(cell) for cell in cells), style=style)


def _build_cell(cell: str | tuple[str, ...]) -> Text:
    return build_line(cell) if isinstance(cell, str) else Text("\n").join(map(build_line, cell))


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


def build_warnings(warnings: Iterable[PredictionWarning]) -> list[RenderableType]:
    """A heading and a line for each warning, said once; nothing where there are none."""
    return build_notes("Warnings", dict.fromkeys(warning.text for warning in warnings))


def stack(*parts: RenderableType | None) -> Group:
    return Group(*(part for part in parts if part is not None))


def render_mistakes(error: SpecError | SiteError) -> Group:
    """Every mistake in a file, each with its place, what was found and what was expected."""
    table = build_table("Line", "Where", "Found", "Expected", numbers=("Line",))
    for mistake in error.mistakes:
        line = "" if mistake.line is None else str(mistake.line)
        add_cells(table, line, mistake.place, mistake.found, mistake.expected)
    return stack(build_line(f"{error.source}: {count(len(error.mistakes), 'mistake')}", BAD), table)
