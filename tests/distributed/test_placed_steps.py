"""Tables of measured steps, as people have them."""

import pandas as pd
import pytest

from foretell.core.devices import find_device
from foretell.core.errors import ImportDataError
from foretell.distributed.placed_steps import HERE, TRAINING, read_steps

ROW = {"batch": 16, "gpus": "2x4", "step_s": 0.25}


def read(**cells: object) -> pd.DataFrame:
    return pd.DataFrame([{**ROW, **cells}])


def test_optional_columns_may_be_missing() -> None:
    (plain,) = read_steps(read(), find_device=find_device)
    assert plain.placed.gpus == (4, 4)
    assert (plain.placed.batch, plain.step_s, plain.sync_s) == (16.0, 0.25, None)
    assert (plain.placed.workload, plain.placed.cluster, plain.placed.device) == (TRAINING, HERE, None)
    more = {"workload": " bert ", "cluster": "lab", "sync_s": 0.0, "device": "a100", "link": "100Gb"}
    (full,) = read_steps(read(**more), find_device=find_device)
    assert (full.placed.workload, full.placed.cluster, full.sync_s) == ("bert", "lab", 0.0)
    assert full.placed.device is not None
    assert full.placed.device.name.startswith("A100")
    assert full.placed.link_bytes_per_s == pytest.approx(1.25e10)


def test_empty_cells_are_not_known() -> None:
    frame = pd.DataFrame([ROW, {**ROW, "gpus": 8.0, "device": " ", "link": None, "sync_s": float("nan")}])
    assert [row.placed.gpus for row in read_steps(frame, find_device=find_device)] == [(4, 4), (8,)]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"gpus": "4,4"}, r"row 1, column gpus: '4,4' is not a placement; .* 2x8"),
        ({"gpus": 0}, "row 1, column gpus"),
        ({"batch": 0}, "row 1, column batch: '0'; expected a finite number above 0"),
        ({"step_s": "fast"}, "row 1, column step_s: 'fast'; expected a finite number"),
        ({"step_s": float("inf")}, "row 1, column step_s"),
        ({"step_s": None}, "row 1: no step_s; leave the row out"),
        ({"sync_s": -1}, "row 1, column sync_s: '-1'; expected a finite number, not below 0"),
        ({"sync_s": 0.3}, "row 1: sync_s 0.3 is not below step_s 0.25; expected the part of the step that waits"),
        ({"gpus": (4, 4)}, "row 1, column gpus: .* expected one value"),
        ({"link": "fast"}, "row 1, column link: 'fast' is not a rate"),
        (
            {"device": "abacus"},
            "row 1, column device: unknown device 'abacus'.*foretell device list.* leave the cell empty",
        ),
    ],
)
def test_a_cell_that_cannot_be_read_is_named(cells: dict[str, object], expected: str) -> None:
    with pytest.raises(ImportDataError, match=expected):
        read_steps(read(**cells), find_device=find_device)


def test_a_column_that_is_missing_is_named() -> None:
    with pytest.raises(
        ImportDataError, match="no column named 'gpus' among batch, step_s; expected batch, gpus, step_s"
    ):
        read_steps(pd.DataFrame([ROW]).drop(columns="gpus"), find_device=find_device)


def test_a_column_that_is_there_twice_is_named() -> None:
    for frame in (read(**{"step_s.1": 1.0}), pd.concat([read(), read()[["step_s"]]], axis=1)):
        with pytest.raises(ImportDataError, match="columns named twice: 'step_s'; give each its own name"):
            read_steps(frame, find_device=find_device)


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(ImportDataError, match="the table has no rows; expected one for each measured step"):
        read_steps(read().iloc[:0], find_device=find_device)
