"""The best by the policy wins, judged on rows that neither its fit nor its choice saw."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.core.errors import NotFoundError
from foretell.runtimes.recipes import Recipe, TrainingSet
from foretell.runtimes.regressors import REGRESSORS, RunRegressor, State
from foretell.runtimes.selection import select

Floats = NDArray[np.float64]

_FAMILIES = ("linear", "tree", "law")


def _build_set(
    X: Floats, y: Floats, *, full_scale: NDArray[np.bool_] | None = None, repetitions: int = 1
) -> TrainingSet:
    rows = len(y)
    return TrainingSet(
        X=X,
        y=y,
        unit=np.ones(rows),
        full_scale=np.ones(rows, dtype=bool) if full_scale is None else full_scale,
        censored=np.zeros(rows, dtype=bool),
        group=np.arange(rows, dtype=np.int64) // repetitions,
    )


def _law_set(rows: int = 60) -> TrainingSet:
    draw = np.random.default_rng(0)
    X = np.exp(draw.uniform(0, 4, (rows, 2)))
    return _build_set(X, (2 + 0.1 * X[:, 0] * X[:, 1]) * draw.lognormal(0, 0.02, rows))


def _step_set(rows: int = 150) -> TrainingSet:
    """Times that jump where a cache or a node is full: no sum of powers follows."""
    draw = np.random.default_rng(0)
    X = draw.uniform(0, 8, (rows, 2))
    steps = np.array([50.0, 3, 90, 7, 200, 1, 30, 120])
    return _build_set(X, steps[X[:, 0].astype(int)] * draw.lognormal(0, 0.02, rows))


def _select(data: TrainingSet, *families: str, policy: str = "mae") -> Any:
    return select(data, [Recipe(family=family) for family in families], quantity="elapsed_s", policy=policy)


def test_law_wins_where_a_law_rules() -> None:
    assert _select(_law_set(), *_FAMILIES).judgement.winner.startswith("law")


def test_tree_wins_where_times_jump() -> None:
    assert _select(_step_set(), *_FAMILIES).judgement.winner.startswith("tree")


@pytest.mark.parametrize("policy", ["mape", "mae", "wtm", "cost"])
def test_leaderboard_is_sorted_by_the_policy(policy: str) -> None:
    judgement = _select(_law_set(30), *_FAMILIES, policy=policy).judgement
    figure = {"cost": "retry_cost"}.get(policy, policy)
    figures = [getattr(line.scores, figure) for line in judgement.leaderboard]
    assert figures == sorted(figures)
    assert {line.family for line in judgement.leaderboard} == set(_FAMILIES)


def test_unknown_policy_lists_the_known() -> None:
    with pytest.raises(NotFoundError, match="Known: cost, mae, mape, wtm"):
        _select(_law_set(20), "linear", policy="luck")


class _Off(RunRegressor):
    """Knows the truth, which is the first column, and is off by a factor."""

    factor: ClassVar[float] = 1.0

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        self.rows_ = len(y)

    def _predict(self, X: Floats) -> Floats:
        return X[:, 0] * self.factor

    def to_state(self) -> State:
        raise NotImplementedError

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        raise NotImplementedError


@pytest.fixture
def off_by(monkeypatch: pytest.MonkeyPatch) -> Any:
    def register(name: str, factor: float, complexity: int) -> str:
        regressor = type(name, (_Off,), {"factor": factor, "complexity": complexity})
        monkeypatch.setitem(REGRESSORS, name, regressor)
        return name

    return register


def _known_set(rows: int = 40) -> TrainingSet:
    y = np.random.default_rng(0).uniform(10, 100, rows)
    return _build_set(y[:, None], y)


def test_tie_goes_to_the_simpler(off_by: Any) -> None:
    names = off_by("involved", 1.020, 9), off_by("plain", 1.021, 1)
    judgement = _select(_known_set(), *names).judgement
    assert judgement.winner.startswith("plain")
    assert "as good as involved" in judgement.why


@pytest.mark.parametrize("policy", ["mape", "mae", "wtm"])
@pytest.mark.parametrize(
    ("best", "other", "said"),
    [
        (1.0, 1 + 1e-14, "as good as the next family, other"),
        (1.0, 1.0001, "as good as the next family, other"),
        (1.0, 1.04, "the next family, other SD+100%FS, is more than 100 times as far off"),
        (1.02, 1.08, "the next family, other SD+100%FS, is 4.00 times as far off"),
    ],
)
def test_the_next_family_is_never_nearer(off_by: Any, policy: str, best: float, other: float, said: str) -> None:
    names = off_by("best", best, 1), off_by("other", other, 9)
    assert said in _select(_known_set(), *names, policy=policy).judgement.why


def test_simpler_one_that_is_worse_loses(off_by: Any) -> None:
    names = off_by("involved", 1.02, 9), off_by("plain", 1.08, 1)
    assert _select(_known_set(), *names).judgement.winner.startswith("involved")


@pytest.mark.parametrize(("policy", "winner"), [("mae", "below"), ("wtm", "above"), ("cost", "above")])
def test_policy_decides(off_by: Any, policy: str, winner: str) -> None:
    """Slightly too low is nearest, and dear: each such request fails."""
    names = off_by("below", 0.97, 1), off_by("above", 1.06, 9)
    assert _select(_known_set(), *names, policy=policy).judgement.winner.startswith(winner)


class _Recorder(RunRegressor):
    """Writes down which configurations (the first column) it learned from and was asked about."""

    seen: ClassVar[list[tuple[str, frozenset[float]]]] = []

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        self.mean_ = float(y.mean())
        self.seen.append(("fit", frozenset(X[:, 0].tolist())))

    def _predict(self, X: Floats) -> Floats:
        self.seen.append(("predict", frozenset(X[:, 0].tolist())))
        return np.full(len(X), self.mean_)

    def to_state(self) -> State:
        raise NotImplementedError

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        raise NotImplementedError


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, frozenset[float]]]]:
    monkeypatch.setitem(REGRESSORS, "recorder", _Recorder)
    _Recorder.seen.clear()
    yield _Recorder.seen
    _Recorder.seen.clear()


@pytest.mark.parametrize("scaled_down", [0, 12])
def test_no_configuration_is_judged_by_a_fit_that_saw_it(
    recorded: list[tuple[str, frozenset[float]]], scaled_down: int
) -> None:
    """Also where a configuration was repeated, and where it ran in both sweeps."""
    group = np.arange(90) // 3
    full_scale = (group >= scaled_down) | (group % 4 == 0) & (np.arange(90) % 3 == 0)
    y = np.random.default_rng(0).uniform(1, 2, 90)
    data = _build_set(group[:, None].astype(float), y, full_scale=full_scale, repetitions=3)
    _select(data, "recorder")
    (first, everything), folds = recorded[0], recorded[1:]
    assert (first, everything) == ("fit", frozenset(group.tolist()))
    for (kind, learned), (_, asked) in zip(folds[::2], folds[1::2], strict=True):
        assert kind == "fit"
        assert not learned & asked
    judged = [asked for kind, asked in folds if kind == "predict"]
    assert frozenset().union(*judged) == frozenset(group[full_scale].tolist())
    assert sum(map(len, judged)) == len(set(group[full_scale].tolist()))


def test_only_full_scale_rows_are_judged() -> None:
    data = _law_set(40)
    full_scale = np.arange(40) >= 30
    selected = _select(_build_set(data.X, data.y, full_scale=full_scale), "linear", "law")
    assert selected.judged.tolist() == list(range(30, 40))
    assert [actual for actual, _ in selected.judgement.pairs] == data.y[30:].tolist()
    assert (selected.judgement.rows, selected.judgement.full_scale_rows) == (40, 10)


def test_same_rows_same_choice() -> None:
    one, other = (_select(_law_set(30), *_FAMILIES) for _ in range(2))
    np.testing.assert_array_equal(one.held_out, other.held_out)
    assert one.judgement.winner == other.judgement.winner
    assert one.spread == other.spread


def test_expectation_is_no_better_than_chance_makes_it_look() -> None:
    """Among many candidates on pure noise the best looks good by luck; what is expected of it must not."""
    draw = np.random.default_rng(3)
    data = _build_set(draw.uniform(1, 9, (40, 4)), draw.lognormal(0, 0.5, 40))
    judgement = _select(data, *_FAMILIES).judgement
    assert judgement.expected.mae >= judgement.leaderboard[0].scores.mae


def test_blend_is_judged_with_weights_from_other_folds(off_by: Any) -> None:
    """Two that are off in opposite ways are right together."""
    names = off_by("below", 0.9, 1), off_by("above", 1 / 0.9, 2)
    data = _known_set()
    recipes = [Recipe(family=name) for name in names]
    blended = select(data, recipes, quantity="elapsed_s", policy="mape", blended=True)
    assert blended.judgement.winner.startswith("blend")
    assert blended.judgement.expected.mape < 0.1
    np.testing.assert_allclose(blended.fitted.predict(data.X), data.y, rtol=1e-3)
    assert set(blended.whole) == set(recipes)


def test_blend_that_gains_nothing_loses_to_its_member(off_by: Any) -> None:
    names = off_by("near", 1.001, 1), off_by("far", 2.0, 2)
    selected = select(
        _known_set(), [Recipe(family=name) for name in names], quantity="elapsed_s", policy="mape", blended=True
    )
    assert selected.judgement.winner.startswith("near")


def test_a_process_says_how_far_each_row_may_stray() -> None:
    data = _law_set(40)
    selected = _select(data, "law", "gaussian process")
    assert selected.deviation is selected.whole[Recipe(family="gaussian process")]
    assert len(selected.widths) == len(selected.judged)
    assert np.ptp(selected.widths) > 0


def test_without_a_process_all_rows_stray_alike() -> None:
    selected = _select(_law_set(30), "linear", "law")
    assert selected.deviation is None
    assert selected.widths is None


def test_held_out_predictions_are_in_seconds_whatever_the_unit() -> None:
    data = _law_set(40)
    unit = np.where(np.arange(40) % 2, 5.0, 1.0)
    plain, scaled = (_select(rows, "law") for rows in (data, replace(data, y=data.y * unit, unit=unit)))
    np.testing.assert_allclose(scaled.held_out, plain.held_out * unit, rtol=1e-6)
