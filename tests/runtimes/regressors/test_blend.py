"""Weights of a blend: none negative, together one, and on the side of whoever is right."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from tests.contracts.regressors import build_rows

from foretell.runtimes.regressors import BlendRunRegressor, weigh_members
from foretell.runtimes.regressors.harp import LinearRunRegressor
from foretell.runtimes.regressors.scaling_law import ScalingLawRegressor

Floats = NDArray[np.float64]


@given(errors=arrays(float, st.tuples(st.integers(1, 20), st.integers(1, 5)), elements=st.floats(-5, 5)))
def test_weights_are_shares(errors: Floats) -> None:
    weights = weigh_members(errors)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)


def test_better_member_weighs_more() -> None:
    draw = np.random.default_rng(0)
    weights = weigh_members(np.column_stack([draw.normal(0, 0.02, 50), draw.normal(0, 0.5, 50)]))
    assert weights[0] > 0.95


def test_members_that_err_apart_share() -> None:
    draw = np.random.default_rng(0)
    weights = weigh_members(draw.normal(0, 0.1, (200, 2)))
    assert weights == pytest.approx([0.5, 0.5], abs=0.1)


def test_opposite_errors_cancel() -> None:
    errors = np.column_stack([np.full(100, 0.1), np.full(100, -0.3)])
    assert weigh_members(errors) == pytest.approx([0.75, 0.25], abs=0.02)


def test_few_rows_hardly_move_the_weights_from_what_the_errors_suggest() -> None:
    """Two rows in which a member happened to cancel the other's error are no reason to lean on it."""
    errors = np.array([[0.1, -0.3], [0.1, -0.3]])
    believed = 0.9  # the inverse of 0.01 and 0.09, as shares
    many = weigh_members(np.tile(errors, (100, 1)))
    assert abs(weigh_members(errors)[0] - believed) < abs(many[0] - believed)


def test_blend_is_the_weighted_geometric_mean() -> None:
    X, y = build_rows()
    law, line = ScalingLawRegressor().fit(X, y), LinearRunRegressor().fit(X, y)
    blend = BlendRunRegressor.of([law, line], [0.75, 0.25])
    np.testing.assert_allclose(blend.predict(X), law.predict(X) ** 0.75 * line.predict(X) ** 0.25)


def test_fitting_a_blend_leaves_its_members_alone() -> None:
    X, y = build_rows()
    member = LinearRunRegressor()
    BlendRunRegressor(members=(member,), weights=(1.0,)).fit(X, y)
    assert not hasattr(member, "n_features_in_")
