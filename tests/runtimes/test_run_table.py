"""Which runs models are fitted to, and what is read from them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from foretell.core.app import Scale, Value
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage
from foretell.runtimes.run_table import build_column, build_columns, build_table


def _build_run(
    *, state: State = State.COMPLETED, repetition: int = 0, elapsed_s: float = 2.0, **parameters: Value
) -> Run:
    spec = RunSpec(app="demo", parameters=parameters, repetition=repetition)
    return Run(spec=spec, state=state, usage=Usage(elapsed_s=elapsed_s, peak_memory_bytes=100))


@pytest.mark.parametrize("state", [State.RUNNING, State.FAILED, State.CANCELLED])
def test_run_that_did_not_end_well_changes_nothing(state: State) -> None:
    good = [_build_run(n=number) for number in range(3)]
    odd = replace(_build_run(n=99, other="x", state=state, elapsed_s=0.001), phases={"epoch": 1.0})
    with_it, without = build_table([good[0], odd, *good[1:]]), build_table(good)
    assert with_it.run_ids == without.run_ids
    assert list(with_it.columns) == list(without.columns)
    assert with_it.phases == {}
    for name, column in without.columns.items():
        np.testing.assert_array_equal(with_it.columns[name], column)


@pytest.mark.parametrize("state", [State.TIMED_OUT, State.OUT_OF_MEMORY])
def test_stopped_run_is_a_lower_bound(state: State) -> None:
    table = build_table([_build_run(n=1), _build_run(n=2, state=state)])
    assert table.censored.tolist() == [False, True]


@pytest.mark.parametrize("usage", [None, Usage(elapsed_s=0.0), Usage(elapsed_s=-1.0), Usage(elapsed_s=math.nan)])
def test_run_without_a_time_is_left_out(usage: Usage | None) -> None:
    assert len(build_table([replace(_build_run(n=1), usage=usage)])) == 0


def test_no_runs_make_an_empty_table() -> None:
    assert len(build_table([])) == 0


def test_repetitions_share_a_group() -> None:
    table = build_table([_build_run(n=n, repetition=r) for n in (5, 3, 5) for r in range(2)])
    assert table.group.tolist() == [table.group[0]] * 2 + [table.group[2]] * 2 + [table.group[0]] * 2
    assert table.group[0] != table.group[2]


def test_the_name_of_an_app_does_not_change_what_is_learned() -> None:
    runs = [_build_run(n=n) for n in (5, 3, 8, 1)]
    tables = [build_table(replace(run, spec=replace(run.spec, app=name)) for run in runs) for name in ("a", "b", "c")]
    assert [table.group.tolist() for table in tables] == [[0, 1, 2, 3]] * 3


def test_what_was_not_measured_is_missing() -> None:
    bare = replace(_build_run(n=1), usage=Usage(elapsed_s=1.0))
    timed = replace(_build_run(n=2), phases={"epoch": 0.5})
    table = build_table([bare, timed])
    assert np.isnan(table.peak_memory_bytes).tolist() == [True, False]
    assert np.isnan(table.phases["epoch"]).tolist() == [True, False]


def test_scales_are_marked() -> None:
    small = _build_run(n=1)
    table = build_table([replace(small, spec=replace(small.spec, scale=Scale.SCALED_DOWN)), _build_run(n=2)])
    assert table.full_scale.tolist() == [False, True]


def test_taken_rows_are_the_table_of_those_runs() -> None:
    runs = [replace(_build_run(n=n, kind="ab"[n % 2]), phases={"epoch": float(n)}) for n in range(6)]
    taken, direct = build_table(runs).take(np.array([4, 1])), build_table([runs[4], runs[1]])
    assert taken.run_ids == direct.run_ids
    assert taken.phases["epoch"].tolist() == direct.phases["epoch"].tolist()
    for name, column in direct.columns.items():
        np.testing.assert_array_equal(taken.columns[name], column)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5, True], [1.0, 2.5, 1.0]),
        (["a", "b"], ["a", "b"]),
        (["a", None, 3, 0.5], ["a", "", "3", "0.5"]),
        ([10**400, -(10**400)], [math.inf, -math.inf]),
        ([], []),
    ],
)
def test_types_are_found(values: list[object], expected: list[object]) -> None:
    assert build_column(values).tolist() == expected


def test_missing_numbers_are_nan() -> None:
    column = build_column([1, None])
    assert column[0] == 1
    assert np.isnan(column[1])


def test_parameters_resources_and_machine_each_have_a_column() -> None:
    specs = [
        RunSpec(app="demo", parameters={"n": 1}, allocation=Allocation(cores=2, gpus=1, nodes=3)),
        RunSpec(app="demo", parameters={"kind": "x"}),
    ]
    columns = build_columns(specs, [Machine(cpu_model="fast", cpu_mhz=2412.3), Machine(extra={"network": "HDR"})])
    assert columns["cores"].tolist() == [2, 1]
    assert columns["gpus"].tolist() == [1, 0]
    assert columns["nodes"].tolist() == [3, 1]
    assert columns["kind"].tolist() == ["", "x"]
    assert columns["machine_cpu"].tolist() == ["fast", ""]
    assert columns["machine_network"].tolist() == ["", "HDR"]


def test_clock_rates_are_coarse() -> None:
    """The same processor reports another one each time."""
    specs = [RunSpec(app="demo", parameters={})] * 2
    columns = build_columns(specs, [Machine(cpu_mhz=2399.1), Machine(cpu_mhz=2404.7)])
    assert columns["machine_mhz"][0] == columns["machine_mhz"][1]


def test_the_load_of_others_is_known_where_it_was_measured() -> None:
    runs = [replace(_build_run(n=1), machine=Machine(load=1.5)), _build_run(n=2)]
    table = build_table(runs)
    np.testing.assert_array_equal(table.load, [1.5, np.nan])
    np.testing.assert_array_equal(table.take(np.array([1])).load, [np.nan])
    np.testing.assert_array_equal(replace(table, load=np.empty(0)).load, [np.nan, np.nan])
