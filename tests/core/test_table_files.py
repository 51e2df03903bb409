"""Tables in files: what is read equals what pandas reads, and what is written comes back."""

import gzip
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.core.errors import ImportDataError, OutputError
from foretell.core.table_files import Table, get_table, read_table, render_csv, save_table


def _read_by_pandas(path: Path) -> dict[str, list[Any]]:
    frame = pd.read_csv(path, skipinitialspace=True)
    return {str(name): [None if pd.isna(cell) else cell for cell in frame[name].tolist()] for name in frame.columns}


@pytest.mark.parametrize(
    "text",
    [
        "n,word,seconds\n1,a,0.5\n2,b,1\n",
        "n, word\n 1, a\n2,\n\n3,NA\n",
        "flag,truth\nTrue,1\nfalse,\n",
        'word\n"a, b"\n"c ""d"""\n',
        "n,n,\n1,2,3\n",
        "x\n1e3\n-.5\ninf\n",
        "x\n1\n2.5\nsoon\n",
        "x\n1_000\n2\n",
        "x,y\n1\n2,3\n",
        "x\n12345678901234567890\n",
        "\ufeffx\n1\n",
        "x\ty\n1\t2\n",
        "x,y\n",
        "when\n2025-01-31\n",
        "x\n0x10\n",
        "x\n007\n08\n",
    ],
)
def test_a_csv_file_is_read_as_pandas_reads_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(text)
    assert dict(read_table(tmp_path / "table.csv").columns) == _read_by_pandas(tmp_path / "table.csv")


@given(
    cells=st.lists(
        st.one_of(st.integers(-(10**12), 10**12), st.floats(-1e6, 1e6).map(lambda x: round(x, 6))), min_size=1
    )
)
def test_numbers_are_those_of_pandas(cells: list[float], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("numbers") / "table.csv"
    path.write_text("x\n" + "".join(f"{cell}\n" for cell in cells))
    assert list(read_table(path)["x"]) == _read_by_pandas(path)["x"]


def test_a_compressed_table_and_one_with_tabs(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "table.tsv.gz", "wt") as file:
        file.write("x\ty\n1\ta, b\n")
    assert read_table(tmp_path / "table.tsv.gz") == Table({"x": [1], "y": ["a, b"]})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"x,y\n1,2\n3,4,5\n", "line 3 has 3 cells, the header has 2"),
        (b"x\n\xff\n", "decode"),
        (b'x\n"open\n', "unexpected end of data"),
        (b"x" * 200_000, "larger than field limit"),
    ],
)
def test_what_is_not_a_table_is_refused_with_its_name(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_bytes(data)
    with pytest.raises(ImportDataError, match=rf"odd\.csv: not a table \(.*{reason}.*\); expected CSV"):
        read_table(tmp_path / "odd.csv")


_TABLE = Table({"n": [1, 2, None], "x": [0.1, None, 1e300], "word": ["a,b", "", "ü"], "flag": [True, False, True]})


def test_what_is_saved_as_csv_comes_back(tmp_path: Path) -> None:
    save_table(_TABLE, tmp_path / "table.csv")
    back = read_table(tmp_path / "table.csv")
    assert back == Table({**_TABLE.columns, "word": ["a,b", None, "ü"]})  # an empty text is an empty cell
    assert (tmp_path / "table.csv").read_text() == render_csv(_TABLE)


def test_what_is_saved_as_parquet_comes_back(tmp_path: Path) -> None:
    save_table(Table({**_TABLE.columns, "mixed": [1, "a", None]}), tmp_path / "table.parquet")
    assert read_table(tmp_path / "table.parquet") == Table({**_TABLE.columns, "mixed": ["1", "a", None]})
    frame = pd.read_parquet(tmp_path / "table.parquet")
    assert frame["word"].tolist() == _TABLE["word"]


def test_a_parquet_file_of_pandas_is_read_without_its_index(tmp_path: Path) -> None:
    pd.DataFrame({"x": [1, 2]}, index=["a", "b"]).to_parquet(tmp_path / "table.parquet")
    assert read_table(tmp_path / "table.parquet") == Table({"x": [1, 2]})


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"must end in \.csv or \.parquet"):
        save_table(_TABLE, tmp_path / "table.xlsx")


def test_a_frame_is_a_table() -> None:
    frame = pd.DataFrame({"n": pd.array([1, None], dtype="Int64"), "x": [0.5, float("nan")], "word": ["a", None]})
    assert get_table(frame) == Table({"n": [1, None], "x": [0.5, None], "word": ["a", None]})
    with pytest.raises(ImportDataError, match="columns named twice: 'n'"):
        get_table(pd.DataFrame([[1, 2]], columns=["n", "n"]))
    with pytest.raises(ImportDataError, match="found list; expected a table"):
        get_table([1, 2])  # type: ignore[arg-type]  # what a caller may do
