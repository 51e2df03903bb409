"""From runs to a predictor, also from few, odd and incomplete ones."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from foretell.core.app import App, Scale
from foretell.core.errors import NotEnoughRunsError, NotFoundError
from foretell.core.run import Run, RunSpec, State, Usage
from foretell.runtimes.fit import fit_predictor
from foretell.runtimes.predictor import Predictor
from foretell.runtimes.run_table import build_table

pytestmark = pytest.mark.slow

BuildRuns = Callable[..., list[Run]]
BuildSpec = Callable[..., RunSpec]

_FEW = 6


@pytest.fixture
def plain(app: App) -> App:
    return replace(app, phases=(), estimate=None)


def _learn(app: App, runs: list[Run]) -> Predictor:
    return fit_predictor(app, build_table(runs))


def _with_time(run: Run, elapsed_s: float) -> Run:
    assert run.usage is not None
    return replace(run, usage=replace(run.usage, elapsed_s=elapsed_s))


def test_card_says_what_was_learned_from_what(predictor: Predictor) -> None:
    card = predictor.card
    assert (card.app, card.policy) == ("demo", "mape")
    assert set(card.judgements) == {"elapsed_s", "peak_memory_bytes"}
    assert set(card.columns) == {"epochs", "size", "kind=a", "kind=b"}
    for judgement in card.judgements.values():
        assert (judgement.rows, judgement.full_scale_rows, judgement.censored_rows) == (24, 24, 0)
        assert judgement.winner in {line.candidate for line in judgement.leaderboard}
        assert len(judgement.pairs) == 24
        assert judgement.why


def test_formula_wins_where_phases_are_simpler_than_the_whole(
    app: App, build_runs: BuildRuns, build_spec: BuildSpec
) -> None:
    """Eight runs are too few for the law of the whole, and enough for each of its parts."""
    predictor = _learn(app, build_runs(8, memory=False))
    card = predictor.card
    assert card.uses_custom
    assert card.judgements["elapsed_s"].winner == "custom: startup + epochs * epoch"
    (prediction,) = predictor.predict([build_spec(epochs=40, size=200.0)])
    assert prediction.elapsed_s == prediction.custom
    assert prediction.custom is not None
    assert prediction.custom.value == pytest.approx(3 + 40 * 2, rel=0.02)


def test_formula_loses_where_phases_mislead(app: App, build_runs: BuildRuns, build_spec: BuildSpec) -> None:
    draw = np.random.default_rng(0)
    runs = [
        replace(run, phases={"startup": 3.0, "epoch": draw.lognormal(0, 2)})
        for run in build_runs(_FEW * 2, noise=0, memory=False)
    ]
    predictor = _learn(app, runs)
    (prediction,) = predictor.predict([build_spec()])
    assert not predictor.card.uses_custom
    assert prediction.elapsed_s == prediction.basic
    assert prediction.custom is not None


def test_phases_of_few_configurations_leave_the_formula_out(app: App, build_runs: BuildRuns) -> None:
    """However often those were repeated."""
    known = 2
    runs = [
        run if number < known else replace(run, phases={}) for number, run in enumerate(build_runs(_FEW, memory=False))
    ]
    again = [replace(run, spec=replace(run.spec, repetition=number)) for number in range(1, 6) for run in runs[:known]]
    assert _learn(app, runs + again).formula is None


@pytest.mark.parametrize("estimate", ["startup + kind * epoch", "startup + absent * epoch", "startup / 0 + epoch"])
def test_formula_that_cannot_be_computed_is_left_out(app: App, build_runs: BuildRuns, estimate: str) -> None:
    assert _learn(replace(app, estimate=estimate), build_runs(_FEW, memory=False)).formula is None


def test_what_stopped_runs_printed_is_no_phase(app: App, build_runs: BuildRuns) -> None:
    runs = build_runs(_FEW + 2, memory=False)
    stopped = [replace(run, state=State.TIMED_OUT, phases={"startup": 1e6, "epoch": 1e6}) for run in runs[_FEW:]]
    one, other = _learn(app, runs[:_FEW]), _learn(app, runs[:_FEW] + stopped)
    for name in ("startup", "epoch"):
        assert one.spreads[name] == other.spreads[name]


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_configurations_are_counted(plain: App, build_runs: BuildRuns, count: int) -> None:
    with pytest.raises(NotEnoughRunsError, match=f"has {count} finished configurations; 5 are needed") as caught:
        _learn(plain, build_runs(count))
    assert (caught.value.have, caught.value.need) == (count, 5)
    assert "'foretell build --transfer', which needs only 2" in str(caught.value)


def test_one_configuration_repeated_is_one(plain: App, build_runs: BuildRuns) -> None:
    (run,) = build_runs(1)
    repeated = [replace(run, spec=replace(run.spec, repetition=number)) for number in range(20)]
    with pytest.raises(NotEnoughRunsError, match="has 1 finished"):
        _learn(plain, repeated)


def test_stopped_runs_alone_are_not_enough(plain: App, build_runs: BuildRuns) -> None:
    with pytest.raises(NotEnoughRunsError, match="has 0 finished"):
        _learn(plain, [replace(run, state=State.TIMED_OUT) for run in build_runs(10)])


def test_failed_runs_change_nothing(plain: App, build_runs: BuildRuns, build_spec: BuildSpec) -> None:
    runs = build_runs(_FEW + 4, memory=False)
    failed = [replace(_with_time(run, 0.01), state=State.FAILED) for run in runs[_FEW:]]
    with_them, without = _learn(plain, failed + runs[:_FEW]), _learn(plain, runs[:_FEW])
    assert with_them.predict([build_spec()]) == without.predict([build_spec()])


def test_memory_that_was_not_measured_is_not_predicted(
    plain: App, build_runs: BuildRuns, build_spec: BuildSpec
) -> None:
    predictor = _learn(plain, build_runs(_FEW, memory=False))
    (prediction,) = predictor.predict([build_spec()])
    assert prediction.peak_memory_bytes is None
    assert prediction.request.memory_bytes is None
    assert prediction.request.retries_memory == ()
    forecast = predictor.forecast(predictor.tabulate([build_spec()]), 1, risk=0.05)
    assert predictor.risk(forecast, walltime_s=forecast.elapsed.request, memory=np.zeros(1))[0] <= 0.05 + 1e-6


def test_equal_times_are_expected_again(plain: App, build_runs: BuildRuns, build_spec: BuildSpec) -> None:
    predictor = _learn(plain, [_with_time(run, 7.0) for run in build_runs(_FEW, memory=False)])
    (prediction,) = predictor.predict([build_spec()])
    assert prediction.elapsed_s.value == pytest.approx(7, rel=1e-3)
    assert prediction.elapsed_s.low < 7 < prediction.elapsed_s.high < 8


def test_runs_of_one_configuration_can_be_fitted(plain: App) -> None:
    """Forty names of files, each another: only their usual time is known."""
    runs = [
        Run(
            spec=RunSpec(app="demo", parameters={"path": f"/data/{number}"}),
            state=State.COMPLETED,
            usage=Usage(elapsed_s=10.0 + number % 3),
        )
        for number in range(40)
    ]
    (prediction,) = _learn(plain, runs).predict([RunSpec(app="demo", parameters={"path": "/data/new"})])
    assert 10 <= prediction.elapsed_s.value <= 12
    assert "was never run" in prediction.warnings[0].text


def test_parameters_of_any_size_can_be_fitted(plain: App, build_spec: BuildSpec) -> None:
    odd = [0, -1, 1e308, -1e308, float("inf"), float("nan"), 10**400, 5e-324, 3]
    runs = [
        Run(
            spec=RunSpec(app="demo", parameters={"n": value}),
            state=State.COMPLETED,
            usage=Usage(elapsed_s=1.0 + number),
        )
        for number, value in enumerate(odd)
    ]
    predictions = _learn(plain, runs).predict([run.spec for run in runs])
    assert all(np.isfinite(prediction.elapsed_s.value) for prediction in predictions)


def test_full_scale_runs_are_the_target(plain: App, build_runs: BuildRuns) -> None:
    runs = build_runs(14, memory=False)
    small = [replace(run, spec=replace(run.spec, scale=Scale.SCALED_DOWN)) for run in runs[:9]]
    judgement = fit_predictor(plain, build_table(small + runs[9:]), candidates="harp").card.judgements["elapsed_s"]
    assert (judgement.rows, judgement.full_scale_rows) == (14, 5)
    assert sorted(actual for actual, _ in judgement.pairs) == sorted(
        run.usage.elapsed_s for run in runs[9:] if run.usage
    )
    assert {"SD", "SD+25%FS", "SD+100%FS"} <= {line.mix for line in judgement.leaderboard}


def test_candidates_decide_who_stands(plain: App, build_runs: BuildRuns) -> None:
    runs = build_runs(_FEW, memory=False)
    families = {
        name: {
            line.family
            for line in fit_predictor(plain, build_table(runs), candidates=name)
            .card.judgements["elapsed_s"]
            .leaderboard
        }
        for name in ("default", "harp")
    }
    assert families["default"] == {"constant", "power", "law", "piecewise law", "gaussian process", "blend"}
    assert families["harp"] == {"linear", "tree", "neural"}


def test_unknown_candidates_are_refused(plain: App, build_runs: BuildRuns) -> None:
    with pytest.raises(NotFoundError, match="no list of candidates named 'all'"):
        fit_predictor(plain, build_table(build_runs(_FEW, memory=False)), candidates="all")


def test_unknown_policy_is_refused_before_any_work(plain: App, build_runs: BuildRuns) -> None:
    with pytest.raises(NotFoundError, match="no policy named 'luck'"):
        fit_predictor(plain, build_table(build_runs(1)), policy="luck")


def test_progress_names_each_candidate(plain: App, build_runs: BuildRuns) -> None:
    steps: list[str] = []
    fit_predictor(plain, build_table(build_runs(5, memory=False)), progress=steps.append)
    assert steps
    assert all(line.startswith("elapsed_s: ") for line in steps)
