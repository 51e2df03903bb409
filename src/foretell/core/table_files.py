"""Tables as columns of cells, read from and written to CSV and Parquet files."""

import csv
import io
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, TypeAlias

from foretell.core.errors import ImportDataError, MissingExtraError, OutputError

if TYPE_CHECKING:
    import pandas as pd

_PARQUET = (".parquet", ".pq")
# Cells that mean that nothing is known, as in pandas.
_EMPTY = frozenset((
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
))  # fmt: skip
_TRUTHS = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_NUMBER = re.compile(
    r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*|\s*[+-]?(inf|infinity)\s*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns by name, all of the same length; a cell is ``None`` where nothing is known."""

    columns: Mapping[str, Sequence[Any]]

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Self:
        """A table of these columns; what a row does not have is not known."""
        return cls({name: [row.get(name) for row in rows] for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Sequence[Any]:
        return self.columns[name]

    def rows(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, cells, strict=True)) for cells in zip(*self.columns.values(), strict=True))


def is_missing(cell: Any) -> bool:
    """Whether a cell says nothing: empty, or not a number."""
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


TableLike: TypeAlias = "Table | pd.DataFrame | str | Path"


def get_table(source: TableLike) -> Table:
    """A table as it is, from a pandas DataFrame, or from a file.

    Raises:
        ImportDataError: if it cannot be read, or two columns have the same name.
        MissingExtraError: if it is a Parquet file and the library for it is not installed.
    """
    if isinstance(source, Table):
        return source
    return read_table(Path(source)) if isinstance(source, str | Path) else _read_frame(source)


def _read_frame(frame: "pd.DataFrame") -> Table:
    pandas = sys.modules.get("pandas")  # whoever has a frame has imported it
    if pandas is None or not isinstance(frame, pandas.DataFrame):
        raise ImportDataError(f"found {type(frame).__name__}; expected a table: a file or a pandas DataFrame")
    names = [str(name) for name in frame.columns]
    _check_names(names)
    series = [frame.iloc[:, number] for number in range(len(names))]
    cells = ([None if empty else cell for cell, empty in zip(one.tolist(), one.isna(), strict=True)] for one in series)
    return Table(dict(zip(names, cells, strict=True)))


def _check_names(names: Sequence[str]) -> None:
    repeated = [repr(name) for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ImportDataError(f"columns named twice: {', '.join(repeated[:20])}; give each its own name")


def read_table(path: Path) -> Table:
    """A CSV, TSV or Parquet file, the first two also compressed.

    Raises:
        ImportDataError: if it cannot be read.
        MissingExtraError: if it is a Parquet file and the library for it is not installed.
    """
    try:
        return _read_parquet(path) if path.suffix in _PARQUET else _read_csv(path)
    except FileNotFoundError:
        raise ImportDataError(f"{path}: there is no such file") from None
    except ImportError as exc:
        raise MissingExtraError("reading Parquet needs: pip install 'foretell[parquet]'") from exc
    except (OSError, EOFError, ValueError, csv.Error) as exc:
        if isinstance(exc, ImportDataError):
            raise
        reason = str(exc).strip().splitlines()[0] if str(exc).strip() else type(exc).__name__
        raise ImportDataError(f"{path}: not a table ({reason}); expected CSV with a header line, or Parquet") from exc


def _read_parquet(path: Path) -> Table:
    import pyarrow.parquet

    found = pyarrow.parquet.read_table(path)
    index = (found.schema.pandas_metadata or {}).get("index_columns", [])
    names = [name for name in found.column_names if name not in index]
    _check_names(names)
    return Table({name: found.column(name).to_pylist() for name in names})


def _read_csv(path: Path) -> Table:
    separator = "\t" if ".tsv" in path.suffixes[-2:] else ","
    with _open_text(path) as file:
        lines = csv.reader(file, delimiter=separator, skipinitialspace=True, strict=True)
        rows = [(lines.line_num, row) for row in lines if row]
    if not rows:
        raise ValueError("it is empty")
    names = _name_columns(rows[0][1])
    for line, row in rows[1:]:
        if any(row[len(names) :]):
            raise ValueError(f"line {line} has {len(row)} cells, the header has {len(names)}")
    columns = (
        zip(*(_fill(row, len(names)) for _, row in rows[1:]), strict=True) if len(rows) > 1 else ([],) * len(names)
    )
    return Table({name: _read_column(cells) for name, cells in zip(names, columns, strict=True)})


def _open_text(path: Path) -> IO[str]:
    # Imported here: hardly any table is compressed.
    import bz2
    import gzip
    import lzma

    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    opened: IO[str] = openers.get(path.suffix, open)(path, "rt", encoding="utf-8-sig", newline="")
    return opened


def _name_columns(cells: Sequence[str]) -> list[str]:
    """Names as pandas gives them: a number behind a name that was there before, and for one that is empty."""
    names: list[str] = []
    for number, cell in enumerate(cells):
        wanted = cell if cell else f"Unnamed: {number}"
        taken = sum(name == wanted or re.fullmatch(rf"{re.escape(wanted)}\.[0-9]+", name) is not None for name in names)
        names.append(f"{wanted}.{taken}" if wanted in names else wanted)
    return names


def _fill(row: Sequence[str], width: int) -> list[str]:
    return [*row[:width], *[""] * (width - len(row))]


def _read_column(cells: Sequence[str]) -> list[Any]:
    """Truth values, numbers or texts, by what all cells of the column can be."""
    known = [cell for cell in cells if cell not in _EMPTY]
    parse: Callable[[str], Any] = str
    if known and all(cell in _TRUTHS for cell in known):
        parse = _TRUTHS.__getitem__
    elif all(map(_INTEGER.fullmatch, known)):
        parse = int
    elif all(map(_NUMBER.fullmatch, known)):
        parse = float
    return [None if cell in _EMPTY else parse(cell) for cell in cells]


def render_csv(table: Table) -> str:
    """A table as CSV with a header line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(zip(*(map(_render_cell, cells) for cells in table.columns.values()), strict=True))
    return text.getvalue()


def _render_cell(cell: Any) -> Any:
    return "" if is_missing(cell) else cell


def save_table(table: Table, path: Path) -> None:
    """Write a table as CSV or Parquet, by the file's ending.

    Raises:
        OutputError: if it ends otherwise, or cannot be written.
        MissingExtraError: if it is Parquet, and the library for it is not installed.
    """
    try:
        if path.suffix == ".csv":
            path.write_text(render_csv(table), "utf-8", newline="")
        elif path.suffix == ".parquet":
            _save_parquet(table, path)
        else:
            raise OutputError(f"{str(path)!r}: its name must end in .csv or .parquet")
    except ImportError as exc:
        raise MissingExtraError("writing Parquet needs: pip install 'foretell[parquet]'") from exc
    except OSError as exc:
        if isinstance(exc, OutputError):
            raise
        raise OutputError(f"{path}: cannot be written ({exc.strerror or exc}); choose another place") from exc


def _save_parquet(table: Table, path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    def build_column(cells: Sequence[Any]) -> Any:
        try:
            return pyarrow.array(cells)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):  # of several types
            return pyarrow.array([None if cell is None else str(cell) for cell in cells])

    columns = {name: build_column(cells) for name, cells in table.columns.items()}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def build_frame(columns: Mapping[str, Any]) -> "pd.DataFrame":
    """Columns as a pandas DataFrame.

    Raises:
        MissingExtraError: if pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as exc:
        raise MissingExtraError("a DataFrame needs: pip install 'foretell[pandas]'") from exc
    return pd.DataFrame(dict(columns))
