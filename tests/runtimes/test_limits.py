"""Intervals, requests and questions where the runs say little: no bets, nothing without bound."""

import numpy as np
import pytest

from foretell.core.app import App, Parameter, ParameterType, Phase
from foretell.core.run import Machine, RunSpec, State, Usage
from foretell.core.run import Run as _Run
from foretell.runtimes.fit import fit_predictor
from foretell.runtimes.predictor import Predictor
from foretell.runtimes.run_table import build_table

pytestmark = pytest.mark.slow


def _app(*names: str, **more: object) -> App:
    parameters = tuple(Parameter(name=name, type=ParameterType.NUMBER) for name in names)
    return App(name="app", command=("true",), parameters=parameters, **more)  # type: ignore[arg-type]


def _run(
    elapsed_s: float, memory: float | None = None, phases: dict[str, float] | None = None, **values: float
) -> _Run:
    usage = Usage(elapsed_s=elapsed_s, peak_memory_bytes=None if memory is None else int(memory))
    spec = RunSpec(app="app", parameters=values)
    return _Run(spec=spec, state=State.COMPLETED, usage=usage, phases=phases or {})


def _ask(**values: float) -> RunSpec:
    return RunSpec(app="app", parameters=values)


@pytest.fixture(scope="module")
def without_information() -> tuple[Predictor, np.ndarray]:
    """Tasks of a workflow whose columns say nothing of their time, with a heavy tail."""
    draw = np.random.default_rng(0)
    times = np.exp(2 + 0.5 * draw.standard_t(2, 120))
    runs = [
        _run(float(time), a=float(np.exp(draw.normal(10, 2))), b=float(draw.integers(1, 1000)), c=float(draw.random()))
        for time in times
    ]
    return fit_predictor(_app("a", "b", "c"), build_table(runs)), times


@pytest.mark.parametrize("a", [1e-3, 5.0, 2e4, 1e9, 1e15])
@pytest.mark.parametrize("b", [0.0, 7.0, 1e6])
def test_intervals_are_no_wider_than_the_runs_differ(
    without_information: tuple[Predictor, np.ndarray], a: float, b: float
) -> None:
    predictor, times = without_information
    (prediction,) = predictor.predict([_ask(a=a, b=b, c=0.5)])
    time_s = prediction.elapsed_s
    whole = float(np.quantile(times, 0.99) / np.quantile(times, 0.01))
    outside = 1 + float(predictor.encoder.find_extrapolation(predictor.tabulate([_ask(a=a, b=b, c=0.5)]), 1)[0])
    assert time_s.high / time_s.low <= whole ** (1.5 * outside)
    assert time_s.low <= time_s.value <= time_s.high


def test_columns_that_carry_nothing_give_no_worse_than_the_median(
    without_information: tuple[Predictor, np.ndarray],
) -> None:
    predictor, times = without_information
    draw = np.random.default_rng(1)
    truth = np.exp(2 + 0.5 * draw.standard_t(2, 200))
    asked = [
        _ask(a=float(np.exp(draw.normal(10, 2))), b=float(draw.integers(1, 1000)), c=float(draw.random()))
        for _ in truth
    ]
    values = np.array([prediction.elapsed_s.value for prediction in predictor.predict(asked)])
    guesses = values, np.full(len(truth), np.median(times))
    ours, flat = (np.mean(np.abs(guess - truth) / truth) for guess in guesses)  # what models are chosen by
    assert ours <= 1.05 * flat


@pytest.fixture(scope="module")
def scaling() -> Predictor:
    draw = np.random.default_rng(2)
    runs = [
        _run(0.5 + n * k * np.exp(draw.normal(0, 0.1)), 1e8 + 1e6 * n * np.exp(draw.normal(0, 0.2)), n=n, k=k)
        for n in (1.0, 2.0, 4.0, 8.0, 16.0)
        for k in (1.0, 2.0, 3.0, 4.0)
    ]
    return fit_predictor(_app("n", "k"), build_table(runs))


@pytest.mark.parametrize("risk", [None, 0.01, 0.05, 0.3])
def test_the_risk_holds_for_time_and_memory_together(scaling: Predictor, risk: float | None) -> None:
    asked = [_ask(n=n, k=k) for n in (1.0, 3.0, 16.0, 64.0, 500.0) for k in (1.0, 2.5, 40.0)]
    forecast = scaling.forecast(scaling.tabulate(asked), len(asked), risk=risk)
    assert forecast.memory is not None
    chance = scaling.risk(forecast, walltime_s=forecast.elapsed.request, memory=forecast.memory.request)
    assert (chance <= (0.1 if risk is None else risk) + 1e-6).all()
    assert (forecast.elapsed.request >= forecast.elapsed.value).all()
    assert (forecast.memory.request >= forecast.memory.value).all()


def test_a_failed_try_that_costs_more_is_asked_for_more_carefully(scaling: Predictor) -> None:
    columns = scaling.tabulate([_ask(n=5.0, k=2.0)])
    memory = [scaling.forecast(columns, 1, retry_cost=cost).memory for cost in (0.0, 50.0)]
    assert memory[0] is not None
    assert memory[1] is not None
    assert memory[1].request[0] > memory[0].request[0]


@pytest.mark.parametrize("n", [0.0, -3.0])
def test_zero_and_below_are_predicted_as_the_least_that_was_measured(scaling: Predictor, n: float) -> None:
    odd, least = scaling.predict([_ask(n=n, k=2.0), _ask(n=1.0, k=2.0)])
    assert odd.elapsed_s.value == pytest.approx(least.elapsed_s.value, rel=0.2)
    assert "no law of powers reaches it" in odd.warnings[0].text


def test_what_no_phase_covers_is_learned() -> None:
    """Three seconds of start and exit that nobody times: without them every custom estimate is too low."""
    app = _app("n", phases=(Phase(name="work", pattern="x"),), estimate="work")
    draw = np.random.default_rng(0)
    runs = []
    for n in (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0):
        work = n * float(np.exp(draw.normal(0, 0.01)))
        runs.append(_run(3 + work, n=n, phases={"work": work}))
    (prediction,) = fit_predictor(app, build_table(runs)).predict([_ask(n=6.0)])
    assert prediction.custom is not None
    assert prediction.custom.value == pytest.approx(9.0, rel=0.05)


@pytest.fixture(scope="module")
def kinds() -> Predictor:
    """Three kinds of input that take 20, 60 and 200 s, and more for a larger one."""
    draw = np.random.default_rng(4)
    app = App(
        name="app",
        command=("true",),
        parameters=(
            Parameter(name="kind", type=ParameterType.TEXT),
            Parameter(name="n", type=ParameterType.NUMBER),
        ),
    )
    seconds = {"mnist": 20.0, "cifar": 60.0, "svhn": 200.0}
    runs = [
        _Run(
            spec=RunSpec(app="app", parameters={"kind": kind, "n": n}),
            state=State.COMPLETED,
            usage=Usage(elapsed_s=base * n / 8 * np.exp(draw.normal(0, 0.03)), peak_memory_bytes=None),
        )
        for kind, base in seconds.items()
        for n in (1.0, 2.0, 4.0, 8.0)
    ]
    return fit_predictor(app, build_table(runs))


def test_a_text_that_no_run_had_may_be_like_any_that_they_had(kinds: Predictor) -> None:
    (prediction,) = kinds.predict([RunSpec(app="app", parameters={"kind": "imagenet", "n": 8.0})])
    assert 20 <= prediction.elapsed_s.value <= 200
    assert prediction.elapsed_s.low <= 20 * 1.05
    assert prediction.elapsed_s.high >= 200 / 1.05
    assert prediction.request.walltime_s >= 200 / 1.05


def test_a_text_that_no_run_had_is_predicted_alike_one_by_one_and_for_many_allocations(kinds: Predictor) -> None:
    specs = [RunSpec(app="app", parameters={"kind": kind, "n": 8.0}) for kind in ("imagenet", "svhn")]
    alone = [prediction.elapsed_s for prediction in kinds.predict(specs)]
    paired = kinds.forecast_pairs(specs, [(specs[0].allocation, Machine())]).elapsed
    assert paired.value.tolist() == pytest.approx([estimate.value for estimate in alone])
    assert paired.high.tolist() == pytest.approx([estimate.high for estimate in alone])


@pytest.mark.parametrize("lowest", [0.0, -2.0])
def test_far_outside_a_range_with_zero_in_it_nothing_is_without_bound(lowest: float) -> None:
    """The same law as over a positive range, which stays within a few powers."""
    draw = np.random.default_rng(5)
    runs = [
        _run((5 + (level - lowest + 1) * n) * np.exp(draw.normal(0, 0.02)), level=level, n=n)
        for level in lowest + np.arange(4.0)
        for n in (10.0, 20.0, 40.0, 80.0)
    ]
    predictor = fit_predictor(_app("level", "n"), build_table(runs))
    for far in (30.0, 1e4, 1e12):
        (prediction,) = predictor.predict([_ask(level=far, n=80.0)])
        ranges = far / 3
        assert prediction.elapsed_s.high <= 400 * (1 + ranges) ** 6
        assert prediction.elapsed_s.low <= prediction.elapsed_s.value <= prediction.elapsed_s.high
