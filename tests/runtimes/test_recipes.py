"""HARP's ways to train, each seen at what it hands to the model."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.core.errors import NotFoundError
from foretell.runtimes.recipes import CANDIDATES, Recipe, TrainingSet, list_recipes
from foretell.runtimes.regressors import REGRESSORS, RunRegressor, State

pytestmark = pytest.mark.slow

Floats = NDArray[np.float64]


class _Recorder(RunRegressor):
    """Predicts the first column times 2, whatever it learned; writes down rows and weights."""

    fits: ClassVar[list[tuple[Floats, Floats, Floats]]] = []

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        self.rows_ = len(y)
        self.fits.append((X, y, weight))

    def _predict(self, X: Floats) -> Floats:
        return 2 * X[:, 0]

    def to_state(self) -> State:
        raise NotImplementedError

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        raise NotImplementedError


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Floats, Floats, Floats]]]:
    monkeypatch.setitem(REGRESSORS, "recorder", _Recorder)
    _Recorder.fits.clear()
    yield _Recorder.fits
    _Recorder.fits.clear()


def _build_set(*, small: int = 60, large: int = 20, repetitions: int = 2) -> TrainingSet:
    """Scaled-down configurations, then full-scale ones; the second column is the configuration's number."""
    group = np.repeat(np.arange(small + large, dtype=np.int64), repetitions)
    size = 1 + group.astype(float)
    return TrainingSet(
        X=np.column_stack([size, group.astype(float)]),
        y=6 * size,
        unit=np.ones(len(group)),
        full_scale=group >= small,
        censored=np.zeros(len(group), dtype=bool),
        group=group,
    )


@pytest.mark.parametrize(("share", "taken"), [(0.0, 0), (0.25, 5), (0.5, 10), (0.75, 15), (1.0, 20)])
def test_mix_takes_its_share_of_full_scale_configurations(
    fits: list[tuple[Floats, Floats, Floats]], share: float, taken: int
) -> None:
    data = _build_set()
    Recipe(family="recorder", share=share).fit(data)
    groups, counts = np.unique(fits[0][0][:, 1], return_counts=True)
    assert (groups < 60).sum() == 60
    assert (groups >= 60).sum() == taken
    assert (counts == 2).all()  # repetitions of a configuration stay together


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_full_scale_rows_together_weigh_as_much_as_the_others(
    fits: list[tuple[Floats, Floats, Floats]], share: float
) -> None:
    Recipe(family="recorder", share=share).fit(_build_set())
    X, _, weight = fits[0]
    large = X[:, 1] >= 60
    assert weight[large].sum() == pytest.approx(weight[~large].sum())


def test_full_scale_rows_that_are_many_are_not_weighed_down(fits: list[tuple[Floats, Floats, Floats]]) -> None:
    Recipe(family="recorder").fit(_build_set(small=5, large=20))
    assert np.ptp(fits[0][2]) == 0


def test_adjustment_repairs_a_constant_bias(fits: list[tuple[Floats, Floats, Floats]]) -> None:
    """The model says 2 for a truth of 6: the factor is 3, learned from rows the fit did not see."""
    data = _build_set()
    fitted = Recipe(family="recorder", share=0.5, adjusted=True).fit(data)
    assert fitted.factor == pytest.approx(3)
    np.testing.assert_allclose(fitted.predict(data.X), data.y)
    assert Recipe(family="recorder", share=0.5).fit(data).factor == 1


def test_adjustment_is_not_moved_by_one_odd_run(fits: list[tuple[Floats, Floats, Floats]]) -> None:
    data = _build_set(repetitions=1)
    y = data.y.copy()
    y[-1] *= 50
    assert Recipe(family="recorder", share=0.0, adjusted=True).fit(replace(data, y=y)).factor == pytest.approx(3)


def test_rows_of_the_adjustment_stay_out_of_the_fit(fits: list[tuple[Floats, Floats, Floats]]) -> None:
    """Whole configurations: also their stopped repetitions and those of the other sweep."""
    data = _build_set(small=0, large=40)
    odd = np.arange(80) % 2 == 1
    mixed = replace(data, censored=odd & (data.group % 2 == 0), full_scale=~odd | (data.group % 2 == 0))
    Recipe(family="recorder", adjusted=True).fit(mixed)
    learned = np.unique(fits[0][0][:, 1])
    assert len(learned) == 30


def test_without_scaled_down_rows_the_mix_without_full_scale_takes_all(
    fits: list[tuple[Floats, Floats, Floats]],
) -> None:
    Recipe(family="recorder", share=0.0).fit(_build_set(small=0, large=10))
    assert len(fits[0][0]) == 20


def _build_cut_set(*, limit: float) -> tuple[TrainingSet, Floats, Floats]:
    """A line of two columns; what is longer than the limit was stopped there."""
    X = np.random.default_rng(0).uniform(1, 10, (80, 2))
    truth = X[:, 0] ** 2 * X[:, 1]
    cut = truth > limit
    rows = len(truth)
    data = TrainingSet(
        X=X,
        y=np.minimum(truth, limit),
        unit=np.ones(rows),
        full_scale=np.ones(rows, dtype=bool),
        censored=cut,
        group=np.arange(rows, dtype=np.int64),
    )
    return data, truth, X


@pytest.mark.parametrize("family", ["linear", "tree", "boosting", "gaussian process"])
def test_stopped_runs_raise_predictions_above_the_limit(family: str) -> None:
    data, truth, X = _build_cut_set(limit=150.0)
    recipe = Recipe(family=family)
    with_bounds, without = recipe.fit(data), recipe.fit(data.take(~data.censored))
    long = truth > 150.0
    error_with, error_without = (
        np.abs(model.predict(X[long]) - truth[long]).mean() for model in (with_bounds, without)
    )
    assert error_with < error_without
    assert with_bounds.predict(X[long]).mean() > without.predict(X[long]).mean()


def test_stopped_runs_do_not_harm_a_law() -> None:
    data, truth, X = _build_cut_set(limit=150.0)
    long = truth > 150.0
    predicted = Recipe(family="law").fit(data).predict(X[long])
    assert np.median(np.abs(predicted / truth[long] - 1)) < 0.05


def test_harps_candidates_are_its_thirty() -> None:
    recipes = list_recipes("harp", mixed=True, configurations=9)
    assert len({recipe.name for recipe in recipes}) == len(recipes) == 30
    assert {recipe.mix for recipe in recipes} == {"SD", "SD+25%FS", "SD+50%FS", "SD+75%FS", "SD+100%FS"}
    assert {recipe.family for recipe in recipes} == {"linear", "tree", "neural"}


def test_where_all_rows_are_of_one_scale_there_is_nothing_to_mix() -> None:
    assert [recipe.name for recipe in list_recipes("harp", mixed=False, configurations=9)] == [
        "linear SD+100%FS",
        "tree SD+100%FS",
        "neural SD+100%FS",
    ]


@pytest.mark.parametrize("mixed", [False, True])
def test_our_candidates_learn_from_all_rows(mixed: bool) -> None:
    recipes = list_recipes("default", mixed=mixed, configurations=100)
    assert {recipe.family for recipe in recipes} == {
        "constant",
        "power",
        "law",
        "gaussian process",
        "boosting",
        "law+trees",
    }
    assert all(recipe.share == 1 and not recipe.adjusted for recipe in recipes)


def test_trees_say_nothing_of_a_handful() -> None:
    few = {recipe.family for recipe in list_recipes("default", mixed=False, configurations=8)}
    assert few == {"constant", "power", "law", "piecewise law", "gaussian process"}


def test_every_family_stands_somewhere() -> None:
    """What is no candidate is not shipped; the blend is made of the others."""
    listed = {
        recipe.family
        for name in CANDIDATES
        for configurations in (10, 100)
        for recipe in list_recipes(name, mixed=True, configurations=configurations)
    }
    assert listed | {"blend"} == set(REGRESSORS)


def test_unknown_list_of_candidates_lists_the_known() -> None:
    with pytest.raises(NotFoundError, match="Known: default, harp"):
        list_recipes("all", mixed=True, configurations=100)


def test_models_learn_in_units_of_what_is_known(fits: list[tuple[Floats, Floats, Floats]]) -> None:
    data = _build_set()
    unit = 1 + data.group.astype(float) % 3
    Recipe(family="recorder").fit(replace(data, y=data.y * unit, unit=unit))
    np.testing.assert_allclose(np.sort(fits[0][1]), np.sort(data.y))


def test_stopped_runs_are_bounds_in_their_units() -> None:
    data, truth, X = _build_cut_set(limit=150.0)
    unit = np.where(np.arange(len(truth)) % 2, 10.0, 1.0)
    scaled = Recipe(family="boosting").fit(replace(data, y=data.y * unit, unit=unit))
    np.testing.assert_allclose(scaled.predict(X), Recipe(family="boosting").fit(data).predict(X))


def test_adjustment_is_in_units_too(fits: list[tuple[Floats, Floats, Floats]]) -> None:
    data = _build_set()
    unit = 1 + data.group.astype(float) % 3
    fitted = Recipe(family="recorder", adjusted=True).fit(replace(data, y=data.y * unit, unit=unit))
    assert fitted.factor == pytest.approx(3)


def test_simpler_recipes_rank_first() -> None:
    plain, adjusted = Recipe(family="tree"), Recipe(family="tree", adjusted=True)
    assert Recipe(family="linear").rank < plain.rank < adjusted.rank < Recipe(family="boosting").rank


def test_runs_that_others_disturbed_weigh_less() -> None:
    """Three of eight took twice as long while others used two cores."""
    X = np.arange(1.0, 9.0)[:, None]
    disturbed = np.isin(X[:, 0], (3, 5, 7))
    data = TrainingSet(
        X=X,
        y=np.where(disturbed, 2.0, 1.0) * X[:, 0],
        unit=np.ones(8),
        full_scale=np.ones(8, dtype=bool),
        censored=np.zeros(8, dtype=bool),
        group=np.arange(8),
    )
    known = replace(data, load=np.where(disturbed, 2.0, np.nan))
    plain, careful = (Recipe(family="power").fit(one).predict(np.array([[6.0]]))[0] for one in (data, known))
    assert abs(careful - 6) < 0.5 * abs(plain - 6)
