"""Questions whose values were not measured: judged by leaving values out, predicted by what does well there."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.runtimes.encoding import BETWEEN, BEYOND
from foretell.runtimes.extrapolation import BLEND, CONSTANT, Elsewhere, select_elsewhere
from foretell.runtimes.recipes import Recipe, Saturation, TrainingSet
from foretell.runtimes.regressors import GaussianProcessRunRegressor

Floats = NDArray[np.float64]
TREE, LAW, PROCESS, POWER, FLAT, BOOSTING, LAWS = (
    Recipe(family=family)
    for family in ("tree", "law", "gaussian process", "power", "constant", "boosting", "piecewise law")
)


def _build(X: Floats, y: Floats, *, noise: float = 0.01, full_scale: NDArray[np.bool_] | None = None) -> TrainingSet:
    draw = np.random.default_rng(0)
    return TrainingSet(
        X=X,
        y=y * np.exp(draw.normal(0, noise, len(y))),
        unit=np.ones(len(X)),
        full_scale=np.ones(len(X), dtype=bool) if full_scale is None else full_scale,
        censored=np.zeros(len(X), dtype=bool),
        group=np.arange(len(X)),
    )


def _grid(law: Callable[[Floats], Floats] = lambda X: X[:, 0] * X[:, 1]) -> TrainingSet:
    """Full-scale and scaled-down runs on a grid of two parameters, and a third that does not matter."""
    X = np.array([(x, z, t) for x in (1, 2, 4, 8, 16) for z in (10, 20, 40) for t in (1, 2)], dtype=float)
    return _build(X, law(X), full_scale=X[:, 0] > 1)


def _step(X: Floats) -> Floats:
    return np.where(X[:, 0] > 3, 100.0, 10.0)


def _select(data: TrainingSet, *recipes: Recipe) -> dict[str, Elsewhere]:
    return select_elsewhere(data, {recipe: recipe.fit(data) for recipe in recipes}, policy="mape")


def test_a_law_weighs_most_where_a_tree_only_remembers() -> None:
    chosen = _select(_grid(), TREE, LAW)
    unseen = {BETWEEN: np.array([[6.0, 30.0, 1.0]]), BEYOND: np.array([[64.0, 30.0, 1.0]])}
    for regime, row in unseen.items():
        assert chosen[regime].winner == BLEND
        assert chosen[regime].fitted.predict(row)[0] == pytest.approx(row[0, 0] * 30, rel=0.05)


def test_errors_are_those_of_values_left_out() -> None:
    data = _grid()
    alone = _select(data, TREE)
    assert alone[BETWEEN].expected.mape > 20  # a tree that has never seen a value takes its neighbour's
    left_out = {BETWEEN: ((0, 2), (0, 4), (0, 8), (1, 20)), BEYOND: ((0, 16), (1, 40))}  # no full-scale run had x = 1
    for regime, values in left_out.items():
        rows = [np.flatnonzero((data.X[:, column] == value) & data.full_scale) for column, value in values]
        np.testing.assert_array_equal(alone[regime].rows, np.concatenate(rows))


def test_trees_alone_never_predict_what_was_not_measured() -> None:
    chosen = _select(_grid(_step), BOOSTING, LAW)
    only = _select(_grid(_step), LAW)
    np.testing.assert_allclose(chosen[BETWEEN].held_out, only[BETWEEN].held_out)


def test_nothing_is_judged_where_no_value_can_be_left_out() -> None:
    data = _grid()
    two_valued = data.take(np.isin(data.X[:, 0], (1, 16)) & np.isin(data.X[:, 1], (10, 40)))
    assert _select(two_valued, TREE, LAW) == {}


def test_rows_are_judged_in_their_units() -> None:
    """What is in proportion to something known is predicted as well as what is not, and in its own units."""
    data = _grid()
    plain = _select(data, LAW)[BETWEEN]
    unit = data.X[:, 2] * 7
    scaled = _select(replace(data, y=data.y * unit, unit=unit), LAW)[BETWEEN]
    np.testing.assert_allclose(scaled.held_out, plain.held_out * unit[plain.rows])


def test_widths_are_those_of_fits_without_the_values() -> None:
    chosen = _select(_grid(), LAW, PROCESS)[BETWEEN]
    assert chosen.widths is not None
    assert len(chosen.widths) == len(chosen.rows)
    fitted = PROCESS.fit(_grid()).model
    assert isinstance(fitted, GaussianProcessRunRegressor)
    assert chosen.widths.mean() > fitted.spread(_grid().X[chosen.rows]).mean()


def test_the_median_wins_where_the_columns_carry_nothing() -> None:
    draw = np.random.default_rng(3)
    X = np.array([(x, z) for x in (1, 2, 4, 8, 16, 32) for z in (1, 3, 9, 27, 81, 243)], dtype=float)
    data = _build(X, np.exp(draw.normal(3, 1, len(X))))
    chosen = _select(data, FLAT, POWER, LAW, PROCESS)
    assert {one.winner for one in chosen.values()} == {CONSTANT}
    far = np.array([[1e9, 1e9]])
    assert chosen[BEYOND].fitted.predict(far)[0] == pytest.approx(float(np.median(data.y)), rel=0.05)


def test_the_median_does_not_win_by_chance_among_a_few_runs() -> None:
    """Full-scale runs that all took about as long carry no information on a size, though scaled-down ones do."""
    X = np.array([(x,) for x in (1, 2, 4, 8, 16, 100, 101, 102)], dtype=float)
    data = _build(X, X[:, 0], full_scale=X[:, 0] > 50)
    chosen = _select(data, FLAT, POWER, LAW)
    assert all(one.winner == BLEND for one in chosen.values())


@pytest.mark.parametrize("serial", [0.05, 0.2, 0.5])
def test_speed_up_flattens_beyond_the_measured_cores(serial: float) -> None:
    """Amdahl's law, measured up to 4 cores: twice and four times as many are predicted within a third."""
    X = np.array([(n, w) for n in (1, 2, 3, 4) for w in (10, 20, 40)], dtype=float)
    data = _build(X, X[:, 1] * (serial + (1 - serial) / X[:, 0]))
    chosen = _select(data, FLAT, POWER, LAW, PROCESS)[BEYOND]
    for cores in (8, 16):
        truth = 20 * (serial + (1 - serial) / cores)
        assert chosen.fitted.predict(np.array([[float(cores), 20.0]]))[0] == pytest.approx(truth, rel=0.35)


def test_half_of_a_fall_beyond_the_runs_is_believed_where_no_run_decides() -> None:
    """Two counts of cores leave none to hold back: the answer lies between no gain and all of it."""
    X = np.array([(n, w) for n in (2, 4) for w in (10, 20, 40)], dtype=float)
    data = _build(X, X[:, 1] / X[:, 0], noise=0)
    predicted = _select(data, POWER)[BEYOND].fitted.predict(np.array([[8.0, 20.0]]))[0]
    assert predicted == pytest.approx(np.sqrt(5.0 * 2.5), rel=0.02)


def test_what_grows_continues_to_grow() -> None:
    data = _grid()
    saturated = Saturation.of(data.X, believed=0.0)
    fitted = LAW.fit(data)
    far = np.array([[160.0, 400.0, 1.0]])
    np.testing.assert_allclose(saturated.predict(fitted.model, far), fitted.predict(far))


def test_a_switch_between_two_algorithms_is_found() -> None:
    """Below a limit in proportion to the size, above it with its square."""
    X = np.array([(n, k) for n in (10, 20, 30, 40, 60, 80, 100, 120) for k in (1, 2, 4)], dtype=float)
    y = np.where(X[:, 0] <= 50, 1.0 * X[:, 0], 0.2 * X[:, 0] ** 2) * X[:, 1]
    data = _build(X, y)
    unseen = np.array([[25.0, 2.0], [90.0, 2.0], [200.0, 2.0]])
    law, laws = (recipe.fit(data).predict(unseen) for recipe in (LAW, LAWS))
    truth = np.array([50.0, 3240.0, 16000.0])
    assert np.abs(laws / truth - 1).max() < 0.1
    assert np.abs(law / truth - 1).max() > 0.2
