"""Any two tables: learn from one, predict the other, judge."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.runs.cases import Case
from benchmarks.runs.metrics import judge
from benchmarks.runs.runner import answer_case, try_case
from foretell import Columns
from foretell.core.table_files import build_frame, read_table

_KEY = "\x1f"


def run_tables(
    train: Path, test: Path, *, target: str, memory: str | None = None, groups: Sequence[str] = ()
) -> dict[str, Any]:
    """The metrics of predictions for one table from another. Rows that are in both are left out of the first.

    Raises:
        ValueError: if a column is missing, no row is left, or Foretell cannot learn from the rows.
    """
    learned, asked = (build_frame(read_table(path).columns) for path in (train, test))
    _check(learned, train, [target, memory, *groups])
    _check(asked, test, list(learned.columns))
    asked = asked[list(learned.columns)]
    known = _keys(learned).isin(set(_keys(asked)))
    case = Case(
        part="table",
        train=learned[~known].rename("train {}".format),
        test=asked.rename("test {}".format),
        columns=Columns(elapsed=target, memory=memory),
        labels=tuple(groups),
    )
    result = try_case(answer_case, case)
    if result.error is not None:
        raise ValueError(f"{train}: {result.error}")
    return {
        "train_rows": len(case.train),
        "rows_in_both": int(known.sum()),
        "build_s": result.build_s[0],
        **{str(name): judge(rows) for name, rows in result.rows.groupby("quantity", sort=False)},
        "groups": {name: _judge_groups(result.rows, name) for name in groups},
    }


def _check(frame: pd.DataFrame, path: Path, needed: Sequence[Any]) -> None:
    missing = [str(name) for name in needed if name is not None and name not in frame.columns]
    if missing:
        raise ValueError(f"{path}: no column {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}")


def _keys(frame: pd.DataFrame) -> "pd.Series[str]":
    return frame.astype(str).agg(_KEY.join, axis=1)


def _judge_groups(rows: pd.DataFrame, name: str) -> dict[str, dict[str, Any]]:
    return {
        str(value): {str(quantity): judge(part) for quantity, part in group.groupby("quantity", sort=False)}
        for value, group in rows.groupby(name, sort=True, dropna=False)
    }
