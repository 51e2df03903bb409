"""Predictions for configurations that were not run."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.core.prediction import Prediction
from foretell.core.run import Allocation, Machine, Run, RunSpec
from foretell.runtimes.predictor import ELAPSED, Predictor
from foretell.runtimes.requests import TIME, Ratios, expected_cost

pytestmark = pytest.mark.slow

BuildSpec = Callable[..., RunSpec]

_shared = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_unseen_runs_are_near(predictor: Predictor, unseen: Sequence[Run]) -> None:
    predictions = predictor.predict([run.spec for run in unseen])
    errors = [
        abs(prediction.elapsed_s.value / _time(run) - 1) for prediction, run in zip(predictions, unseen, strict=True)
    ]
    assert np.median(errors) < 0.05


def test_unseen_runs_lie_in_their_intervals(predictor: Predictor, unseen: Sequence[Run]) -> None:
    """Learned from 24 rows, 90 % is known to a few percent: three standard deviations of it are allowed."""
    predictions = predictor.predict([run.spec for run in unseen], level=0.9)
    inside = [
        prediction.elapsed_s.low <= _time(run) <= prediction.elapsed_s.high
        for prediction, run in zip(predictions, unseen, strict=True)
    ]
    assert np.mean(inside) > 0.9 - 3 * np.sqrt(0.9 * 0.1 / 24)


def _time(run: Run) -> float:
    assert run.usage is not None
    return run.usage.elapsed_s


@given(levels=st.tuples(st.floats(0.01, 0.999), st.floats(0.01, 0.999)))
@_shared
def test_surer_intervals_are_wider(predictor: Predictor, build_spec: BuildSpec, levels: tuple[float, float]) -> None:
    (narrow,), (wide,) = (predictor.predict([build_spec()], level=level) for level in sorted(levels))
    for estimates in ((narrow.elapsed_s, wide.elapsed_s), (narrow.peak_memory_bytes, wide.peak_memory_bytes)):
        inner, outer = estimates
        assert inner is not None
        assert outer is not None
        assert outer.low <= inner.low <= inner.value <= inner.high <= outer.high


@given(risks=st.tuples(st.floats(1e-4, 0.5), st.floats(1e-4, 0.5)))
@_shared
def test_less_risk_asks_for_more(predictor: Predictor, build_spec: BuildSpec, risks: tuple[float, float]) -> None:
    (careful,), (bold,) = (predictor.predict([build_spec()], risk=risk) for risk in sorted(risks))
    assert careful.request.walltime_s >= bold.request.walltime_s
    assert careful.request.memory_bytes is not None
    assert bold.request.memory_bytes is not None
    assert careful.request.memory_bytes >= bold.request.memory_bytes


@given(
    risk=st.floats(1e-4, 0.5),
    epochs=st.integers(1, 10_000),
    size=st.floats(1, 1e5),
    cpu=st.sampled_from(["", "another"]),
)
@_shared
def test_request_keeps_the_risk_it_was_made_for(
    predictor: Predictor, build_spec: BuildSpec, risk: float, epochs: int, size: float, cpu: str
) -> None:
    columns = predictor.tabulate([build_spec(epochs=epochs, size=size)], [Machine(cpu_model=cpu)])
    forecast = predictor.forecast(columns, 1, risk=risk)
    assert forecast.memory is not None
    time_s, memory, plenty = forecast.elapsed.request, forecast.memory.request, np.array([1e300])
    assert predictor.risk(forecast, walltime_s=time_s, memory=plenty)[0] <= risk + 1e-6
    assert predictor.risk(forecast, walltime_s=plenty, memory=memory)[0] <= risk + 1e-6
    either = predictor.risk(forecast, walltime_s=time_s, memory=memory)[0]
    assert either <= 1 - (1 - risk) ** 2 + 1e-6


def test_next_tries_ask_for_more_each_time(predictor: Predictor, build_spec: BuildSpec) -> None:
    for risk in (None, 0.3, 0.01):
        for prediction in predictor.predict([build_spec(), build_spec(epochs=1000)], risk=risk):
            request = prediction.request
            assert request.memory_bytes is not None
            for tries in (
                (request.walltime_s, *request.retries_walltime_s),
                (request.memory_bytes, *request.retries_memory),
            ):
                assert len(tries) == 3
                assert (np.diff(tries) > 0).all()


def test_without_a_risk_the_request_is_the_cheapest_plan(predictor: Predictor, build_spec: BuildSpec) -> None:
    """Held against requests at any risk, in the expected cost of the same spread."""
    columns = predictor.tabulate([build_spec()])
    free = predictor.forecast(columns, 1).elapsed
    ratios = Ratios.of(predictor.spreads[ELAPSED], width=float(free.width[0]))
    cost = expected_cost([free.request[0] / free.value[0], *free.retries[0] / free.value[0]], ratios, TIME)
    for risk in (0.3, 0.1, 0.05, 0.01):
        fixed = predictor.forecast(columns, 1, risk=risk).elapsed
        plan = np.append(fixed.request[0], fixed.retries[0]) / fixed.value[0]
        assert cost <= expected_cost(plan, ratios, TIME) + 1e-9


def test_less_time_is_more_risk(predictor: Predictor, build_spec: BuildSpec) -> None:
    forecast = predictor.forecast(predictor.tabulate([build_spec()] * 30), 30)
    walltime_s = forecast.elapsed.value * np.geomspace(0.2, 5, 30)
    risks = predictor.risk(forecast, walltime_s=walltime_s, memory=np.full(30, 1e15))
    assert (np.diff(risks) <= 0).all()
    assert risks[0] > 0.9
    assert risks[-1] < 0.01


def test_far_outside_the_bounds_widen_and_a_word_is_said(predictor: Predictor, build_spec: BuildSpec) -> None:
    inside, outside, farther = predictor.predict([build_spec(epochs=epochs) for epochs in (20, 1000, 100_000)])
    assert inside.warnings == ()
    assert "epochs = 1000 lies outside the runs" in outside.warnings[0].text
    assert _width(inside) < _width(outside) < _width(farther)


def _width(prediction: Prediction) -> float:
    return prediction.elapsed_s.high / prediction.elapsed_s.low


def test_a_text_no_run_had_widens_time_and_memory(predictor: Predictor, build_spec: BuildSpec) -> None:
    (unknown,) = predictor.predict([build_spec(kind="never")])
    assert unknown.peak_memory_bytes is not None
    for estimate in (unknown.elapsed_s, unknown.peak_memory_bytes):
        assert estimate.high / estimate.value > 1.5
        assert estimate.value / estimate.low > 1.5
    assert "kind = 'never' was never run" in unknown.warnings[0].text


def test_another_machine_widens_time_but_not_memory(predictor: Predictor, build_spec: BuildSpec) -> None:
    (here,) = predictor.predict([build_spec()], machines=[Machine()])
    (there,) = predictor.predict([build_spec()], machines=[Machine(cpu_model="another")])
    assert there.elapsed_s.value == here.elapsed_s.value
    assert _width(there) > _width(here)
    assert there.peak_memory_bytes == here.peak_memory_bytes
    expected = "no run was made on another; the time is that of the measured machines, with a wider interval"
    assert list(map(str, there.warnings)) == [expected]


def test_answer_does_not_depend_on_what_else_is_asked(predictor: Predictor, build_spec: BuildSpec) -> None:
    specs = [build_spec(epochs=0), build_spec(size=1e9, kind="never"), build_spec(cores=64), build_spec()]
    for spec, among_others in zip(specs, predictor.predict(specs), strict=True):
        (alone,) = predictor.predict([spec])
        assert alone.warnings == among_others.warnings
        for figure in ("value", "low", "high"):
            assert getattr(alone.elapsed_s, figure) == pytest.approx(getattr(among_others.elapsed_s, figure))


def test_pairs_are_each_specification_on_each_option(predictor: Predictor, build_spec: BuildSpec) -> None:
    specs = [build_spec(epochs=5), build_spec(epochs=50, kind="b")]
    options = [(Allocation(cores=cores), Machine(cpu_model=cpu)) for cores in (1, 2) for cpu in ("", "another")]
    pairs = predictor.forecast_pairs(specs, options)
    placed = [
        RunSpec(app="demo", parameters=spec.parameters, allocation=allocation)
        for spec in specs
        for allocation, _ in options
    ]
    each = predictor.forecast(predictor.tabulate(placed, [machine for _ in specs for _, machine in options]), 8)
    for one, other in ((pairs.elapsed, each.elapsed), (pairs.memory, each.memory)):
        assert one is not None
        assert other is not None
        np.testing.assert_allclose(one.value, other.value)
        np.testing.assert_allclose(one.high, other.high)
        np.testing.assert_allclose(one.request, other.request)
    np.testing.assert_array_equal(pairs.other_machine, each.other_machine)


@given(
    epochs=st.integers() | st.integers(min_value=10**308),
    size=st.floats(),
    kind=st.text(max_size=5),
    cores=st.integers(0, 2**63),
)
@_shared
def test_any_question_has_a_finite_answer(
    predictor: Predictor, build_spec: BuildSpec, epochs: int, size: float, kind: str, cores: int
) -> None:
    (prediction,) = predictor.predict([build_spec(epochs=epochs, size=size, kind=kind, cores=cores)])
    time_s = prediction.elapsed_s
    assert 0 <= time_s.low <= time_s.value <= time_s.high
    assert np.isfinite([time_s.value, time_s.low]).all()


def test_usual_counts_are_those_of_the_runs(predictor: Predictor) -> None:
    assert predictor.usual_counts() == {"cores": 2, "gpus": 0, "nodes": 1}
    assert predictor.measured_counts("cores") == (2,)
