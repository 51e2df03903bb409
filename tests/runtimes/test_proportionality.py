"""What is known beforehand is not learned again: times in proportion to a formula, and to how slow a machine is."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from foretell.core.app import App, Value
from foretell.core.prediction import Prediction
from foretell.core.run import Machine, Run, RunSpec
from foretell.runtimes.fit import fit_predictor
from foretell.runtimes.predictor import Predictor
from foretell.runtimes.predictor_files import dump_predictor, read_predictor
from foretell.runtimes.proportionality import Units, find_unit_warnings, find_units
from foretell.runtimes.run_table import build_table

BuildRuns = Callable[..., list[Run]]
BuildSpec = Callable[..., RunSpec]
Columns = dict[str, np.ndarray]

_HERE = Machine(cpu_model="here", extra={"bench_s": 1.0, "bench_version": 1})


def _columns(**columns: list[Value]) -> Columns:
    return {name: np.array(column, dtype=float) for name, column in columns.items()}


def test_nothing_known_is_a_unit_of_one() -> None:
    units = find_units(None, _columns(size=[1, 2, 3]))
    assert units == Units()
    assert units.of(_columns(size=[5, 6]), 2).tolist() == [1, 1]
    assert units.find_shift(np.ones(2)).tolist() == [0, 0]


def test_formula_is_the_unit() -> None:
    units = find_units("size * steps", _columns(size=[1, 2, 4], steps=[10, 10, 10]))
    assert (units.low, units.usual, units.high) == (10, 20, 40)
    assert units.names == ("size", "steps")
    assert units.of(_columns(size=[8], steps=[3]), 1).tolist() == [24]


def test_an_unknown_unit_is_the_usual_one() -> None:
    units = find_units("size", _columns(size=[1, 2, 4]))
    assert units.of({}, 2).tolist() == [2, 2]
    assert units.of(_columns(size=[np.nan, -1, 0]), 3).tolist() == [2, 2, 2]
    assert units.of({"size": np.array(["many"], dtype=object)}, 1).tolist() == [2]


@pytest.mark.parametrize("sizes", [[1, 0, 2], [1, np.nan, 2], [1, -1, 2]])
def test_formula_that_some_runs_have_no_value_of_is_no_unit(sizes: list[Value]) -> None:
    columns = _columns(size=sizes)
    assert find_units("size", columns) == Units()
    text = "times are not learned in proportion to size: 1 of 3 runs have no positive value of it"
    assert list(map(str, find_unit_warnings("size", columns))) == [text]


def test_formula_that_is_no_unit_leaves_the_machines_theirs() -> None:
    columns = _columns(machine_bench_s=[1, 2], machine_bench_version=[1, 1], size=[3, 0])
    assert find_units("size", columns) == find_units(None, columns) != Units()


@pytest.mark.parametrize("per", [None, "size"])
def test_where_what_is_known_is_used_there_is_no_warning(per: str | None) -> None:
    assert find_unit_warnings(per, _columns(size=[1, 2, 4])) == ()


def test_model_card_says_that_a_formula_was_not_used(app: App, build_runs: BuildRuns) -> None:
    alone = replace(app, phases=(), estimate=None, per="size - 200")
    (warning,) = fit_predictor(alone, build_table(build_runs(8, memory=False))).card.warnings
    assert warning.text.startswith("times are not learned in proportion to size - 200: ")


def test_machines_of_one_benchmark_are_a_unit() -> None:
    columns = _columns(machine_bench_s=[1, 2], machine_bench_version=[1, 1], size=[3, 5])
    units = find_units(None, columns)
    assert (units.formula, units.version) == ("machine_bench_s", 1)
    assert units.of(columns, 2).tolist() == [1, 2]
    assert find_units("size + 1", columns).of(columns, 2).tolist() == [4, 12]


def test_formula_counts_also_where_no_machine_is_named() -> None:
    units = find_units("size", _columns(machine_bench_s=[2, 2], machine_bench_version=[1, 1], size=[3, 5]))
    assert units.of(_columns(size=[3, 30]), 2).tolist() == [6, 60]


@pytest.mark.parametrize("versions", [[1, 2], [1, np.nan], [np.nan, np.nan]])
def test_benchmarks_of_different_work_are_never_compared(versions: list[Value]) -> None:
    columns = _columns(machine_bench_s=[1, 2], machine_bench_version=versions)
    assert find_units(None, columns) == Units()


def test_question_of_another_benchmark_is_as_usual() -> None:
    units = find_units(None, _columns(machine_bench_s=[2, 2], machine_bench_version=[1, 1]))
    asked = _columns(machine_bench_s=[8, 8, np.nan], machine_bench_version=[1, 2, 1])
    assert units.of(asked, 3).tolist() == [8, 2, 2]
    assert units.knows_machine(asked, 3).tolist() == [True, False, False]
    assert units.knows_machine({}, 2).tolist() == [False, False]


def test_units_that_no_run_had_widen_the_interval() -> None:
    units = find_units("size", _columns(size=[1, 2, 4]))
    shifts = units.find_shift(np.array([0.5, 1, 3, 4, 5]))
    assert (shifts > 0).tolist() == [True, False, False, False, True]


def _without_formula(app: App, **fields: Any) -> App:
    return replace(app, phases=(), estimate=None, **fields)


def test_times_known_to_be_in_proportion_are_predicted_far_outside(
    app: App, build_runs: BuildRuns, build_spec: BuildSpec
) -> None:
    """A parameter that never varied, and scales all the same."""
    runs = [
        replace(run, spec=replace(run.spec, parameters={**run.spec.parameters, "repeats": 2}))
        for run in build_runs(memory=False)
    ]
    predictor = fit_predictor(_without_formula(app, per="repeats"), build_table(runs))
    spec = build_spec()
    specs = [replace(spec, parameters={**spec.parameters, "repeats": repeats}) for repeats in (2, 20)]
    few, many = predictor.predict(specs)
    assert many.elapsed_s.value == pytest.approx(10 * few.elapsed_s.value)
    assert many.warnings == ()
    assert _width(many) > _width(few)


def _width(prediction: Prediction) -> float:
    return float(np.log(prediction.elapsed_s.high / prediction.elapsed_s.low))


@pytest.fixture(scope="module")
def benched(app: App, build_runs: BuildRuns) -> Predictor:
    runs = [replace(run, machine=_HERE) for run in build_runs(memory=False)]
    return fit_predictor(_without_formula(app), build_table(runs))


def test_slower_machine_takes_longer(benched: Predictor, build_spec: BuildSpec) -> None:
    (here,) = benched.predict([build_spec()], machines=[_HERE])
    there = benched.predict(
        [build_spec()], machines=[Machine(cpu_model="there", extra={"bench_s": 3.0, "bench_version": 1})]
    )[0]
    assert there.elapsed_s.value == pytest.approx(3 * here.elapsed_s.value)
    assert _width(there) > _width(here)
    assert list(map(str, there.warnings)) == [
        "no run was made on there; the time is scaled by its speed, with a wider interval"
    ]


@pytest.mark.parametrize("extra", [{}, {"bench_s": 3.0, "bench_version": 2}, {"bench_s": 3.0}])
def test_machine_of_unknown_speed_has_the_widest_interval(
    benched: Predictor, build_spec: BuildSpec, extra: Mapping[str, Value]
) -> None:
    (here,) = benched.predict([build_spec()], machines=[_HERE])
    there, known = (
        benched.predict([build_spec()], machines=[Machine(cpu_model="there", extra=facts)])[0]
        for facts in (extra, {"bench_s": 3.0, "bench_version": 1})
    )
    assert there.elapsed_s.value == pytest.approx(here.elapsed_s.value)
    assert _width(there) > _width(known) > _width(here)
    assert list(map(str, there.warnings)) == [
        "no run was made on there; the time is that of the measured machines, with a wider interval"
    ]


def test_units_survive_the_store(benched: Predictor, build_spec: BuildSpec) -> None:
    loaded = read_predictor(dump_predictor(benched), benched.card)
    assert loaded.units == benched.units
