"""Trees as arrays predict as scikit-learn's own."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor

from foretell.core import array_trees
from foretell.core.array_trees import ArrayTrees
from foretell.core.errors import StoreError
from foretell.steps.kernel_times import fit_trees

pytestmark = pytest.mark.slow

Floats = NDArray[np.float64]


def draw(count: int, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Whole numbers: many rows lie right on a threshold."""
    X = np.random.default_rng(seed).integers(0, 12, size=(count, 4)).astype(float)
    return X, np.where(X[:, 0] > 5, 3.0, 1.0) + 0.1 * X[:, 1] * X[:, 2]


def draw_questions() -> Floats:
    X, _ = draw(300, seed=1)
    X[:100] += 0.5
    X[-1] = (1e9, -1e9, 0.0, 0.0)
    return X


@pytest.mark.parametrize("leaves", [2, 31])
@pytest.mark.parametrize("pairs", [1, 65_536])
@pytest.mark.parametrize("many", [0, 100_000])
def test_boosted_trees_predict_as_scikit_learn(
    leaves: int, pairs: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_trees, "_PAIRS_AT_ONCE", pairs)
    monkeypatch.setattr(array_trees, "_MANY_ROWS", many)
    model = HistGradientBoostingRegressor(max_iter=40, max_leaf_nodes=leaves, random_state=0).fit(*draw(400))
    X = draw_questions()
    np.testing.assert_allclose(ArrayTrees.from_boosting(model).predict(X), model.predict(X), rtol=1e-12)
    rounded = ArrayTrees.from_boosting(model, dtype=np.float32)
    np.testing.assert_allclose(rounded.predict(X), model.predict(X), rtol=1e-5)


@pytest.mark.parametrize("leaves", [2, 31, 1024])
@pytest.mark.parametrize("scale", [1.0, 1 / 3, 1e-20])
def test_a_decision_tree_predicts_as_scikit_learn(leaves: int, scale: float) -> None:
    """Its thresholds are compared with 32-bit numbers."""
    X, y = draw(400)
    model = DecisionTreeRegressor(max_leaf_nodes=leaves, random_state=0).fit(X * scale, y)
    asked = draw_questions() * scale
    found = ArrayTrees.from_decision_tree(model).predict(asked.astype(np.float32))
    np.testing.assert_array_equal(found, model.predict(asked))


def test_a_law_is_found_again() -> None:
    trees = fit_trees(*draw(800))
    asked, expected = draw(300, seed=1)
    assert float(np.mean(np.abs(trees.predict(asked) - expected))) < 0.1


def test_rows_without_weight_do_not_count() -> None:
    X, y = draw(150)
    wrong = np.arange(150) % 2 == 0
    trees = fit_trees(X, np.where(wrong, 100.0, y), np.where(wrong, 0.0, 1.0))
    assert trees.predict(X).max() < 20


@pytest.mark.parametrize("count", [2, 5, 50])
def test_few_rows_are_enough(count: int) -> None:
    X, y = draw(count)
    found = fit_trees(X, y).predict(X)
    assert np.isfinite(found).all()
    assert y.min() - 1e-6 <= found.min() <= found.max() <= y.max() + 1e-6


def test_the_seed_decides() -> None:
    X, y = draw(150)
    first, again, other = (fit_trees(X, y, seed=seed).predict(X).tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_arrays_are_the_whole_model() -> None:
    X, y = draw(150)
    trees = fit_trees(X, y, seed=3)
    again = ArrayTrees.from_arrays({name: values.copy() for name, values in trees.to_arrays().items()}, columns=4)
    assert again.predict(X).tolist() == trees.predict(X).tolist()
    for name, values in again.to_arrays().items():
        np.testing.assert_array_equal(values, trees.to_arrays()[name])


@pytest.mark.parametrize(
    ("name", "value"),
    [("left", 10**6), ("right", -2), ("right", 0), ("feature", 4), ("feature", -1), ("threshold", np.nan)],
)
def test_nodes_that_lead_outside_or_back_are_refused(name: str, value: float) -> None:
    arrays = fit_trees(*draw(150)).to_arrays()
    inner = np.flatnonzero(arrays["left"] != np.arange(len(arrays["left"])))
    arrays[name][inner[0]] = value
    with pytest.raises(ValueError, match=r"a tree|no numbers|outside themselves"):
        ArrayTrees.from_arrays(arrays, columns=4)


@pytest.mark.parametrize("depth", [-1, 10**6])
def test_a_depth_that_trees_cannot_have_is_refused(depth: int) -> None:
    arrays = fit_trees(*draw(150)).to_arrays()
    with pytest.raises(ValueError, match="outside themselves"):
        ArrayTrees.from_arrays({**arrays, "scalars": np.array([0.0, depth])})


def test_too_few_columns_are_refused() -> None:
    with pytest.raises(StoreError, match="more than the 1 columns"):
        fit_trees(*draw(150)).predict(np.ones((2, 1)))


def test_no_rows_have_no_predictions() -> None:
    assert fit_trees(*draw(50)).predict(np.zeros((0, 4))).shape == (0,)
