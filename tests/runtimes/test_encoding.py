"""Columns to numbers, whatever stands in them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.core.app import Value
from foretell.core.run import Machine, RunSpec
from foretell.core.serialization import from_record, to_record
from foretell.core.warning import PredictionWarning
from foretell.runtimes.encoding import Encoder, fit_encoder
from foretell.runtimes.run_table import Columns, build_column, build_columns

_odd_values = st.one_of(
    st.floats(),
    st.integers(),
    st.integers(min_value=10**300),
    st.booleans(),
    st.text(max_size=5),
    st.sampled_from(["", " ", "nan", "inf", "1", "1.0", "\0", "ü☃", "a=b", "'\""]),
)
_odd_rows = st.lists(
    st.dictionaries(st.sampled_from(["n", "kind", "ünï"]), _odd_values, max_size=3), min_size=1, max_size=20
)


def _columns(**values: list[object]) -> dict[str, np.ndarray]:
    return {name: build_column(column) for name, column in values.items()}


def _encode_one(encoder: Encoder, **values: object) -> list[float]:
    row: list[float] = encoder.encode(_columns(**{name: [value] for name, value in values.items()}), 1)[0].tolist()
    return row


def test_numbers_stay_and_texts_become_marks() -> None:
    columns = _columns(n=[1, 5, 2], kind=["b", "a", "b"])
    encoder = fit_encoder(columns)
    assert encoder.names == ("n", "kind=b", "kind=a")
    assert encoder.encode(columns, 3).tolist() == [[1, 1, 0], [5, 0, 1], [2, 1, 0]]


def test_constants_are_dropped_without_a_word() -> None:
    encoder = fit_encoder(_columns(n=[1, 2, 3], cores=[4, 4, 4], kind=["x", "x", "x"]))
    assert encoder.names == ("n",)
    assert encoder.warnings == ()


@pytest.mark.parametrize("copy", [[2, 4, 6], [-1, -2, -3], [11, 12, 13]])
def test_copies_are_dropped_and_named(copy: list[object]) -> None:
    encoder = fit_encoder(_columns(n=[1, 2, 3], again=copy))
    assert encoder.names == ("n",)
    assert list(map(str, encoder.warnings)) == ["column 'again' is not used: it says the same as 'n'"]


def test_power_of_a_column_is_no_copy() -> None:
    assert fit_encoder(_columns(n=[1, 2, 3], square=[1, 4, 9])).names == ("n", "square")


def test_text_that_differs_in_nearly_every_run_is_dropped_and_named() -> None:
    encoder = fit_encoder(_columns(n=list(range(100)), path=[f"/tmp/{number}" for number in range(100)]))
    assert encoder.names == ("n",)
    assert "'path' is not used" in encoder.warnings[0].text


def test_where_all_columns_are_constant_one_is_left() -> None:
    encoder = fit_encoder(_columns(path=[f"/tmp/{number}" for number in range(100)], cores=[1] * 100))
    assert encoder.names == ("cores",)


def test_missing_numbers_take_the_commonest() -> None:
    columns = _columns(n=[1, 5, 5, None])
    encoder = fit_encoder(columns)
    assert encoder.encode(columns, 4)[:, 0].tolist() == [1, 5, 5, 5]
    assert _encode_one(encoder, n=None) == [5]
    assert encoder.encode({}, 1).tolist() == [[5]]


def test_missing_texts_take_the_commonest() -> None:
    encoder = fit_encoder(_columns(kind=["a", "b", "b"]))
    assert encoder.encode({}, 1).tolist() == [_encode_one(encoder, kind="b")]


def test_unknown_level_has_no_mark_but_a_warning() -> None:
    encoder = fit_encoder(_columns(kind=["a", "b", "b"]))
    asked = _columns(kind=["c"])
    assert encoder.encode(asked, 1).tolist() == [[0, 0]]
    assert encoder.find_extrapolation(asked, 1).tolist() == [0]  # no distance from one text to another
    assert encoder.count_unknown_texts(asked, 1).tolist() == [1]
    (warning,) = encoder.list_warnings(asked)
    assert warning == PredictionWarning(
        code="unmeasured-value",
        text="kind = 'c' was never run; runs had 'b', 'a'",
        data={"name": "kind", "value": "c", "measured": ["b", "a"]},
    )


def test_unknown_texts_are_counted_row_by_row() -> None:
    encoder = fit_encoder(_columns(kind=["a", "b", "b"], mode=["x", "y", "x"], n=[1, 2, 3]))
    asked = _columns(kind=["a", "c", "c"], mode=["x", "x", "z"], n=[1, 9, 2])
    assert encoder.count_unknown_texts(asked, 3).tolist() == [0, 1, 2]
    assert encoder.count_unknown_texts({"n": asked["n"]}, 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (20, "n = 20 lies outside the runs, which had 1 to 10"),
        (0.5, "n = 0.5 lies outside the runs, which had 1 to 10"),
        (float("inf"), "n = inf lies outside the runs, which had 1 to 10"),
    ],
)
def test_warning_names_value_and_range(value: float, text: str) -> None:
    (warning,) = fit_encoder(_columns(n=[1, 10])).list_warnings(_columns(n=[value]))
    assert (warning.code, warning.text) == ("outside-measured-range", text)
    assert warning.data == {"name": "n", "value": value, "low": 1, "high": 10}


def test_what_never_varied_is_not_known() -> None:
    encoder = fit_encoder(_columns(n=[1, 2], cores=[4, 4]))
    assert encoder.list_warnings(_columns(n=[1], cores=[4])) == ()
    (warning,) = encoder.list_warnings(_columns(n=[1], cores=[8]))
    assert warning.text == "cores was always 4 in the runs; what 8 does to it is not known"
    assert encoder.find_extrapolation(_columns(n=[1], cores=[8]), 1)[0] > 0


def test_machine_facts_raise_no_warning() -> None:
    encoder = fit_encoder(build_columns([RunSpec(app="a", parameters={})] * 2, [Machine(cores=4), Machine(cores=8)]))
    asked = build_columns([RunSpec(app="a", parameters={})], [Machine(cores=64, cpu_model="new")])
    assert encoder.list_warnings(asked) == ()
    assert encoder.find_extrapolation(asked, 1).tolist() == [0]
    assert encoder.count_unknown_texts(asked, 1).tolist() == [0]


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8),
    asked=st.lists(st.floats(-1e7, 1e7), min_size=2, max_size=8),
)
def test_extrapolation_is_zero_inside_and_grows_outside(values: list[float], asked: list[float]) -> None:
    encoder = fit_encoder(_columns(n=list(values)))
    low, high = min(values), max(values)
    ordered = np.sort(asked)
    extrapolation = encoder.find_extrapolation({"n": ordered}, len(ordered))
    inside = (ordered >= low) & (ordered <= high)
    assert (extrapolation[inside] == 0).all()
    assert (np.diff(extrapolation[ordered >= high]) >= 0).all()
    assert (np.diff(extrapolation[ordered <= low]) <= 0).all()
    assert encoder.find_extrapolation({"n": np.array([high + 1 + abs(high)])}, 1)[0] > 0


def test_one_more_range_away_is_one() -> None:
    logs = fit_encoder(_columns(n=[1, 10]))
    assert logs.find_extrapolation(_columns(n=[100, 1000, 0.1]), 3) == pytest.approx([1, 2, 1])
    plain = fit_encoder(_columns(n=[-5, 5]))
    assert plain.find_extrapolation(_columns(n=[15, -15]), 2) == pytest.approx([1, 1])


@given(rows=_odd_rows)
@settings(deadline=None)
def test_odd_values_become_finite_numbers(rows: list[dict[str, Value]]) -> None:
    columns = build_columns([RunSpec(app="a", parameters=row) for row in rows])
    encoder = fit_encoder(columns)
    matrix = encoder.encode(columns, len(rows))
    assert matrix.shape == (len(rows), len(encoder.names))
    assert len(encoder.names) > 0
    assert np.isfinite(matrix).all()
    assert encoder.find_extrapolation(columns, len(rows)).tolist() == [0] * len(rows)


@given(rows=_odd_rows, asked=_odd_rows)
@settings(deadline=None)
def test_a_row_is_answered_alone_as_among_others(rows: list[dict[str, Value]], asked: list[dict[str, Value]]) -> None:
    encoder = fit_encoder(build_columns([RunSpec(app="a", parameters=row) for row in rows]))
    specs = [RunSpec(app="a", parameters={name: row.get(name, "") for name in ("n", "kind", "ünï")}) for row in asked]
    together = build_columns(specs)
    alone: list[Columns] = [build_columns([spec]) for spec in specs]
    matrix, extrapolation = encoder.encode(together, len(specs)), encoder.find_extrapolation(together, len(specs))
    assert np.isfinite(matrix).all()
    assert np.isfinite(extrapolation).all()
    np.testing.assert_array_equal(matrix, np.vstack([encoder.encode(columns, 1) for columns in alone]))
    np.testing.assert_array_equal(
        extrapolation, np.concatenate([encoder.find_extrapolation(columns, 1) for columns in alone])
    )


@given(rows=_odd_rows)
@settings(deadline=None)
def test_encoder_survives_being_written_down(rows: list[dict[str, Value]]) -> None:
    encoder = fit_encoder(build_columns([RunSpec(app="a", parameters=row) for row in rows]))
    assert to_record(from_record(Encoder, to_record(encoder))) == to_record(encoder)
