"""Questions between measured values: judged by leaving values out, answered by what does best there."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.models.between import Between, select_between
from foretell.models.recipes import Recipe, TrainingSet
from foretell.models.runs import ProcessRunRegressor

Floats = NDArray[np.float64]
TREE, LAW, PROCESS = (Recipe(family=family) for family in ("tree", "law", "process"))


def _grid(law: str = "product", *, seed: int = 0) -> TrainingSet:
    """Full-scale and scaled-down runs on a grid of two parameters, and a third that does not matter."""
    draw = np.random.default_rng(seed)
    points = [(x, z, t) for x in (1, 2, 4, 8, 16) for z in (10, 20, 40) for t in (1, 2)]
    X = np.array(points, dtype=float)
    y = X[:, 0] * X[:, 1] if law == "product" else np.where(X[:, 0] > 3, 100.0, 10.0)
    noise = np.exp(draw.normal(0, 0.01, len(X)))
    return TrainingSet(
        X=X,
        y=y * noise,
        unit=np.ones(len(X)),
        full_scale=X[:, 0] > 1,
        censored=np.zeros(len(X), dtype=bool),
        group=np.arange(len(X)),
    )


def _select(data: TrainingSet, *recipes: Recipe) -> Between | None:
    return select_between(data, {recipe: recipe.fit(data) for recipe in recipes}, policy="mae")


def test_a_law_answers_in_between_where_a_tree_only_remembers() -> None:
    chosen = _select(_grid(), TREE, LAW)
    assert chosen is not None
    assert chosen.winner == LAW.name
    unseen = np.array([[6.0, 30.0, 1.0]])
    assert abs(chosen.fitted.predict(unseen)[0] / 180 - 1) < 0.05


def test_a_tree_wins_where_there_is_a_step() -> None:
    chosen = _select(_grid("step"), TREE, LAW)
    assert chosen is not None
    assert chosen.winner == TREE.name


def test_the_error_in_between_is_that_of_values_left_out() -> None:
    alone = _select(_grid(), TREE)
    assert alone is not None
    assert alone.expected.mape > 20  # a tree that has never seen a value takes its neighbour's
    data = _grid()
    left_out = ((0, 2), (0, 4), (0, 16), (1, 10), (1, 40))  # five of seven, ends too; no full-scale run had x = 1
    rows = [np.flatnonzero((data.X[:, column] == value) & data.full_scale) for column, value in left_out]
    np.testing.assert_array_equal(alone.rows, np.concatenate(rows))


def test_trees_alone_never_answer_in_between() -> None:
    chosen = _select(_grid("step"), Recipe(family="boosting"), LAW)
    assert chosen is not None
    assert chosen.winner == LAW.name  # though trees are better at steps


def test_nothing_is_judged_where_no_value_lies_between_others() -> None:
    data = _grid()
    two_valued = data.take(np.isin(data.X[:, 0], (1, 16)) & np.isin(data.X[:, 1], (10, 40)))
    assert _select(two_valued, TREE, LAW) is None


def test_rows_in_between_are_judged_in_their_units() -> None:
    """What is in proportion to something known is as well foretold as what is not, and said in its own units."""
    data = _grid()
    plain = _select(data, LAW)
    unit = data.X[:, 2] * 7
    scaled = _select(replace(data, y=data.y * unit, unit=unit), LAW)
    assert plain is not None
    assert scaled is not None
    np.testing.assert_allclose(scaled.held_out, plain.held_out * unit[plain.rows])


def test_widths_are_said_of_values_left_out_by_fits_without_them() -> None:
    chosen = _select(_grid(), LAW, PROCESS)
    assert chosen is not None
    assert chosen.widths is not None
    assert len(chosen.widths) == len(chosen.rows)
    fitted = PROCESS.fit(_grid()).model
    assert isinstance(fitted, ProcessRunRegressor)
    assert chosen.widths.mean() > fitted.spread(_grid().X[chosen.rows]).mean()
