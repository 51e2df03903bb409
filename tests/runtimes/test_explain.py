"""Explanations find again what a known law does, whatever model answers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from foretell.core.app import App, Parameter, ParameterType
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage
from foretell.runtimes.bounds import Bounds
from foretell.runtimes.encoding import Field, fit_encoder
from foretell.runtimes.explain import explain, find_usual_values
from foretell.runtimes.explanation import INSIDE, MACHINE, Driver
from foretell.runtimes.fit import fit_predictor
from foretell.runtimes.predictor import Predictor
from foretell.runtimes.run_table import MACHINE_CPU, build_columns, build_table

pytestmark = pytest.mark.slow

Law = Callable[[Mapping[str, Any]], Any]

_CPU = "Xeon"
_WIDTH = 0.1  # of the log interval each way, inside the runs


class _KnownLaw:
    """Predicts by a law; one range outside the runs or an unknown text widens the interval by one more width."""

    def __init__(self, law: Law, specs: list[RunSpec], *, between: float = 1.0) -> None:
        self.law, self.between = law, between
        self.encoder = fit_encoder(build_columns(specs, [Machine(cpu_model=_CPU)] * len(specs)))
        self.asked: list[Mapping[str, Any]] = []

    def tabulate(self, specs: list[RunSpec], machines: list[Machine] | None = None) -> Mapping[str, Any]:
        return build_columns(specs, machines)

    def forecast(self, columns: Mapping[str, Any], rows: int, *, level: float, regime: int | None = None) -> Any:
        self.asked.append(columns)
        off_grid = (self.encoder.regime(columns, rows) if regime is None else np.full(rows, regime)) > 0
        carried = np.array([cpu != _CPU for cpu in columns.get(MACHINE_CPU, [_CPU] * rows)])
        value = np.ones(rows) * self.law(columns) * np.where(off_grid, self.between, 1.0)
        outside = self.encoder.find_extrapolation(columns, rows) + self.encoder.count_unknown_texts(columns, rows)
        off = np.exp(_WIDTH * (1 + outside) + 0.4 * carried)
        bounds = Bounds(
            value=value,
            low=value / off,
            high=value * off,
            request=value,
            retries=value[:, None] * [2.0, 4.0],
            centre=value,
            width=np.ones(rows),
            shift=np.log(off),
            which=np.zeros(rows, dtype=np.intp),
            spreads=(),
        )
        return SimpleNamespace(elapsed=bounds, memory=None, other_machine=carried)


def _specify(cores: int = 2, **parameters: Any) -> RunSpec:
    return RunSpec(app="net", parameters=parameters, allocation=Allocation(cores=cores))


def _sweep() -> list[RunSpec]:
    return [
        _specify(cores, epochs=epochs, batch_size=batch, kind=kind, idle=(epochs + batch + cores) % 5 + 1, fast=fast)
        for epochs in (2, 5, 20, 80)
        for batch in (16, 64, 256)
        for cores in (1, 2, 4, 8, 16)
        for kind, fast in (("a", True), ("b", False), ("a", False))
    ]


_ASKED = _specify(epochs=20, batch_size=64, kind="a", idle=3, fast=True)


def _law(columns: Mapping[str, Any]) -> Any:
    """Idle does nothing; past eight, cores do nothing."""
    kinds = np.where(columns["kind"] == "b", 3.0, 1.0) * np.where(columns["fast"] > 0, 0.5, 1.0)
    return 2 * columns["epochs"] * columns["batch_size"] ** -0.4 / np.minimum(columns["cores"], 8) * kinds


def _known(law: Law = _law, *, between: float = 1.0) -> Predictor:
    return cast("Predictor", _KnownLaw(law, _sweep(), between=between))


def _drivers(predictor: Predictor, spec: RunSpec = _ASKED) -> dict[str, Driver]:
    return {driver.name: driver for driver in explain(predictor, spec).elapsed_s.drivers}


@pytest.mark.parametrize("between", [1.0, 2.0], ids=["one model", "another model for values between"])
def test_exponents_are_those_of_the_law(between: float) -> None:
    drivers = _drivers(_known(between=between))
    for name, power in (("epochs", 1.0), ("batch_size", -0.4)):
        assert drivers[name].exponent == pytest.approx(power, abs=0.01)
        (piece,) = drivers[name].pieces
        assert piece.exponent == pytest.approx(power, abs=0.01)


def test_what_does_nothing_is_absent_and_the_strongest_comes_first() -> None:
    assert list(_drivers(_known())) == ["epochs", "cores", "batch_size", "kind", "fast"]


def test_bend_is_found() -> None:
    cores = _drivers(_known())["cores"]
    first, second = cores.pieces
    assert (first.low, first.high, second.high) == (1, 8, 16)
    assert (first.exponent, second.exponent) == (pytest.approx(-1, abs=0.01), pytest.approx(0, abs=0.01))


def test_exponent_is_local() -> None:
    predictor = _known(lambda columns: 10.0 + columns["epochs"])
    few, many = (
        _drivers(predictor, _specify(epochs=epochs, batch_size=64, kind="a", idle=3, fast=True))["epochs"].exponent
        for epochs in (2, 80)
    )
    assert (few, many) == (pytest.approx(2 / 12, abs=0.05), pytest.approx(80 / 90, abs=0.05))


def test_texts_and_truths_have_a_factor_between_their_values() -> None:
    drivers = _drivers(_known())
    kind, fast = drivers["kind"], drivers["fast"]
    assert (kind.effect, kind.least, kind.most, kind.pieces) == (pytest.approx(3), "a", "b", ())
    assert (fast.effect, fast.least, fast.most, fast.exponent) == (pytest.approx(2), True, False, None)


def test_whole_numbers_stay_whole() -> None:
    predictor = _known()
    explain(predictor, _ASKED)
    for columns in cast("_KnownLaw", predictor).asked:
        assert all(np.all(columns[name] % 1 == 0) for name in ("epochs", "batch_size", "cores"))


def test_curve_reaches_the_question_outside() -> None:
    outside = _drivers(_known(), _specify(epochs=500, batch_size=64, kind="a", idle=3, fast=True))["epochs"]
    assert (outside.low, outside.high, outside.curve[-1].value) == (2, 80, 500)
    assert outside.effect == pytest.approx(40)  # over the measured range only


def test_contributions_are_the_factors_of_a_product() -> None:
    asked = _specify(16, epochs=80, batch_size=64, kind="b", idle=1, fast=False)
    time = explain(_known(), asked).elapsed_s
    factors = {part.name: part.factor for part in time.contributions}
    usual = find_usual_values(_known())
    assert (usual["epochs"], usual["batch_size"], usual["kind"], usual["fast"]) == (5, 64, "a", 0)
    assert factors == pytest.approx({"epochs": 16, "cores": usual["cores"] / 8, "kind": 3})
    assert np.prod(list(factors.values())) == pytest.approx(time.estimate.value / time.usual.value)
    assert sum(part.share for part in time.contributions) == pytest.approx(1)


def test_a_joint_effect_is_shared_equally() -> None:
    def law(columns: Mapping[str, Any]) -> Any:
        return np.where((columns["epochs"] == 80) & (columns["kind"] == "b"), 9.0, 1.0)

    time = explain(_known(law), _specify(1, epochs=80, batch_size=64, kind="b", idle=3, fast=False)).elapsed_s
    assert {part.name: part.factor for part in time.contributions} == pytest.approx({"epochs": 3, "kind": 3})


@pytest.mark.parametrize("count", [8, 9, 10, 14])
def test_many_values_are_shared_out_by_sample(count: int) -> None:
    names = [f"p{number}" for number in range(count)]
    powers = {name: 1 / (1 + number) for number, name in enumerate(names)}

    def law(columns: Mapping[str, Any]) -> Any:
        return np.prod([columns[name] ** power for name, power in powers.items()], axis=0)

    draw = np.random.default_rng(1)
    specs = [_specify(**{name: int(draw.choice([1, 2, 4])) for name in names}) for _ in range(60)]
    predictor = cast("Predictor", _KnownLaw(law, specs))
    time = explain(predictor, _specify(**dict.fromkeys(names, 4))).elapsed_s
    factors = {part.name: part.factor for part in time.contributions}
    assert time == explain(predictor, _specify(**dict.fromkeys(names, 4))).elapsed_s
    assert ("others" in factors) == (count > 10)
    assert factors["p0"] == pytest.approx(2)
    assert np.prod(list(factors.values())) == pytest.approx(time.estimate.value / time.usual.value)


def test_inside_the_runs_all_uncertainty_is_noise_and_model_error() -> None:
    (source,) = explain(_known(), _ASKED).elapsed_s.sources
    assert (source.name, source.share) == (INSIDE, 1.0)


def test_values_outside_take_their_part_of_the_uncertainty() -> None:
    asked = _specify(16**3, epochs=20, batch_size=64, kind="c", idle=3, fast=True)
    cores, kind, inside = explain(_known(), asked).elapsed_s.sources
    assert [(part.name, part.value, part.measured) for part in (cores, kind)] == [
        ("cores", 16**3, "1 to 16"),
        ("kind", "c", "a, b"),
    ]
    assert [part.share for part in (cores, kind, inside)] == pytest.approx([2 / 4, 1 / 4, 1 / 4])


def test_another_machine_is_a_source() -> None:
    other, inside = explain(_known(), _ASKED, machine=Machine(cpu_model="another")).elapsed_s.sources
    assert (other.name, inside.name) == (MACHINE, INSIDE)
    assert other.share == pytest.approx(0.4 / 0.5)
    assert len(explain(_known(), _ASKED, machine=Machine(cpu_model=_CPU)).elapsed_s.sources) == 1


def test_numbers_that_may_be_zero_have_no_exponent() -> None:
    specs = [_specify(n=number % 5) for number in range(20)]
    predictor = cast("Predictor", _KnownLaw(lambda columns: 1.0 + columns["n"], specs))
    (driver,) = explain(predictor, _specify(n=3)).elapsed_s.drivers
    assert (driver.exponent, driver.pieces, driver.least, driver.most) == (None, (), 0, 4)
    assert driver.effect == pytest.approx(5)


def test_nothing_varied_leaves_nothing_to_say() -> None:
    predictor = cast("Predictor", _KnownLaw(lambda _: 3.0, [_specify(n=1)] * 3))
    time = explain(predictor, _specify(n=1)).elapsed_s
    assert (time.drivers, time.contributions, time.estimate.value) == ((), (), 3.0)


@pytest.fixture(scope="module")
def learned() -> Predictor:
    """A real predictor, of runs that take 5 * epochs * batch_size^-0.4 on cores that do nothing."""
    draw = np.random.default_rng(0)
    kinds = (("epochs", ParameterType.INTEGER), ("batch_size", ParameterType.INTEGER), ("idle", ParameterType.INTEGER))
    app = App(name="net", parameters=tuple(Parameter(name=name, type=kind) for name, kind in kinds))
    specs = [
        _specify(cores=int(draw.choice([1, 2])), epochs=epochs, batch_size=batch, idle=int(draw.integers(1, 9)))
        for epochs in (1, 2, 4, 8, 16, 32)
        for batch in (16, 32, 64, 128, 256)
    ]
    return fit_predictor(app, build_table(_finish(spec, draw) for spec in specs))


def _finish(spec: RunSpec, draw: np.random.Generator) -> Run:
    epochs, batch = (float(spec.parameters[name]) for name in ("epochs", "batch_size"))
    usage = Usage(elapsed_s=5 * epochs * batch**-0.4 * draw.lognormal(0, 0.01), peak_memory_bytes=10**8 + 10**6)
    return Run(spec=spec, state=State.COMPLETED, usage=usage)


def test_learned_exponents_are_right(learned: Predictor) -> None:
    explanation = explain(learned, _specify(epochs=8, batch_size=64, idle=3))
    powers = {driver.name: driver.pieces[0].exponent for driver in explanation.elapsed_s.drivers}
    assert powers == pytest.approx({"epochs": 1.0, "batch_size": -0.4}, abs=0.1)
    assert explanation.peak_memory_bytes is not None
    assert explanation.peak_memory_bytes.drivers == ()


def test_far_outside_most_of_the_uncertainty_is_there(learned: Predictor) -> None:
    first, *others = explain(learned, _specify(cores=48, epochs=8, batch_size=64, idle=3)).elapsed_s.sources
    assert (first.name, first.value) == ("cores", 48)
    assert first.share > 0.5
    assert sum(source.share for source in (first, *others)) == pytest.approx(1)


def test_a_text_no_run_had_takes_its_part_of_the_uncertainty(learned: Predictor) -> None:
    field = Field(name="kind", levels=("a", "b"), fill="a", used=False)
    knowing = replace(learned, encoder=replace(learned.encoder, fields=(*learned.encoder.fields, field)))
    first, inside = explain(knowing, _specify(epochs=8, batch_size=64, idle=3, kind="c")).elapsed_s.sources
    assert (first.name, first.value, inside.name) == ("kind", "c", INSIDE)
    assert first.share > 0.5


def test_a_formula_of_phases_is_explained_as_a_whole(predictor: Predictor, build_spec: Callable[..., RunSpec]) -> None:
    explanation = explain(predictor, build_spec(epochs=40, size=300.0))
    assert {driver.name for driver in explanation.elapsed_s.drivers} == {"epochs", "size", "kind"}
    assert explanation.peak_memory_bytes is not None
    assert explanation.peak_memory_bytes.drivers[0].name == "size"
