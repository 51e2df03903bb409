"""Boosted trees as arrays answer as scikit-learn's own do."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from foretell.core.workload import Floats
from foretell.steps.boosted_trees import BoostedTrees


def draw(count: int, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Whole numbers: many rows lie right on a threshold."""
    X = np.random.default_rng(seed).integers(0, 12, size=(count, 4)).astype(float)
    return X, np.where(X[:, 0] > 5, 3.0, 1.0) + 0.1 * X[:, 1] * X[:, 2]


@pytest.mark.parametrize("leaves", [2, 31])
def test_answers_are_scikit_learn_s(leaves: int) -> None:
    X, y = draw(400)
    model = HistGradientBoostingRegressor(max_iter=40, max_leaf_nodes=leaves, random_state=0).fit(X, y)
    trees = BoostedTrees()
    trees._take(model)
    asked, _ = draw(300, seed=1)
    asked[:100] += 0.5
    asked[-1] = (1e9, -1e9, 0.0, 0.0)
    assert trees.predict(asked) == pytest.approx(model.predict(asked), rel=1e-5)


def test_a_law_is_found_again() -> None:
    trees = BoostedTrees().fit(*draw(800))
    asked, wanted = draw(300, seed=1)
    assert float(np.mean(np.abs(trees.predict(asked) - wanted))) < 0.1


def test_rows_without_weight_do_not_count() -> None:
    X, y = draw(150)
    wrong = np.arange(150) % 2 == 0
    trees = BoostedTrees().fit(X, np.where(wrong, 100.0, y), np.where(wrong, 0.0, 1.0))
    assert trees.predict(X).max() < 20


@pytest.mark.parametrize("count", [2, 5, 50])
def test_few_rows_are_enough(count: int) -> None:
    X, y = draw(count)
    told = BoostedTrees().fit(X, y).predict(X)
    assert np.isfinite(told).all()
    assert y.min() - 1e-6 <= told.min() <= told.max() <= y.max() + 1e-6


def test_the_seed_decides() -> None:
    X, y = draw(150)
    first, again, other = (BoostedTrees(seed=seed).fit(X, y).predict(X).tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_arrays_are_the_whole_model() -> None:
    X, y = draw(150)
    trees = BoostedTrees(seed=3).fit(X, y)
    again = BoostedTrees.from_arrays({name: values.copy() for name, values in trees.to_arrays().items()})
    assert again.predict(X).tolist() == trees.predict(X).tolist()
    assert {name: values.tolist() for name, values in again.to_arrays().items()} == {
        name: values.tolist() for name, values in trees.to_arrays().items()
    }


def test_nothing_asked_nothing_told() -> None:
    assert BoostedTrees().fit(*draw(50)).predict(np.zeros((0, 4))).shape == (0,)
