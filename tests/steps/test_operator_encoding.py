"""Distinct operators, their columns, and recorded times."""

import numpy as np
import pytest
from tests.steps.synthetic_steps import make_operator, make_workload, measure

from foretell.core.workload import Operator, StepPhase, Workload
from foretell.steps.operator_encoding import COLUMNS, encode, find_distinct, read_times


def test_equal_operators_are_one_even_as_two_objects() -> None:
    one, same, other = make_operator("relu"), make_operator("relu"), make_operator("gelu")
    distinct = find_distinct([Workload(name="a", operators=(one, other)), Workload(name="b", operators=(same, same))])
    assert distinct.operators == (one, other)
    assert [rows.tolist() for rows in distinct.rows] == [[0, 1], [0, 0]]
    assert distinct.count().toarray().tolist() == [[1, 1], [2, 0]]


def test_counts_are_summed_where_operators_share_a_column() -> None:
    operators = (make_operator("relu"), make_operator("gelu"), make_operator("linear"))
    counts = find_distinct([Workload(name="a", operators=operators)]).count(np.array([0, 0, 2]), 3)
    assert counts.toarray().tolist() == [[2, 0, 1]]


def test_columns_have_the_hyper_parameters_of_a_convolution() -> None:
    convolution = Operator(
        kind="conv2d",
        phase=StepPhase.BACKWARD,
        inputs=((16, 32, 28, 28), (64, 8, 3, 3)),
        output=(16, 64, 14, 14),
        attributes=(("groups", 4),),
    )
    values = dict(zip(COLUMNS, encode([convolution])[0], strict=True))
    assert values["backward"] == 1
    assert values["forward"] == 0
    assert values["batch"] == pytest.approx(4)
    assert np.exp(values["window"]) == pytest.approx(9)
    assert np.exp(values["stride"]) == pytest.approx(2)
    assert np.exp(values["groups"]) == pytest.approx(4)
    assert np.expm1([values["channels"], values["output_channels"]]) == pytest.approx([32, 64])


def test_operators_without_shapes_have_finite_columns() -> None:
    bare = Operator(kind="item", phase=StepPhase.FORWARD, inputs=())
    assert np.isfinite(encode([bare])).all()
    assert encode([]).shape == (0, len(COLUMNS))


def test_recorded_times_add_up_to_the_iteration() -> None:
    step = measure(make_workload(1), lambda operator: (operator.flops * 1e-9, 2e-6))
    times = read_times(step)
    assert times.gap_s == pytest.approx(np.full(24, 2e-6))
    assert times.alone.all()
    assert times.kernel_s.sum() + times.gap_s.sum() == pytest.approx(step.iteration_s)


def test_unrecorded_work_is_in_a_gap_that_is_not_alone() -> None:
    workload = Workload(name="a", operators=(make_operator("relu"), make_operator("linear"), make_operator("gelu")))
    step = measure(workload, lambda _: (1e-3, 1e-6), hidden=lambda operator: operator.kind == "linear")
    times = read_times(step)
    assert times.positions.tolist() == [0, 2]
    assert times.gap_s == pytest.approx([1e-3 + 2e-6, 1e-6])
    assert times.alone.tolist() == [False, True]
    assert times.kernel_s.sum() + times.gap_s.sum() == pytest.approx(step.iteration_s)
