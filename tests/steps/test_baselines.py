"""Simple models of training steps find the laws of synthetic steps."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
from tests.steps.synthetic_steps import (
    KINDS,
    make_operator,
    make_workload,
    measure,
    measure_many,
    relative_error,
)

from foretell.core.devices import get_device
from foretell.core.workload import Operator, StepPhase, Workload
from foretell.steps._base import StepModel
from foretell.steps.baselines import OperatorRegressionModel, PaleoModel, RooflineModel, TotalsModel

pytestmark = pytest.mark.slow

SPEED, BANDWIDTH, LAUNCH = 4e12, 2e11, 5e-6
MODELS = [
    RooflineModel(),
    PaleoModel(),
    OperatorRegressionModel(trees=30),
    TotalsModel(trees=30),
]
SLOWNESS = {"conv2d": 1e-13, "relu": 4e-12, "linear": 2e-13, "layer_norm": 1e-12}


def roofline(operator: Operator) -> tuple[float, float]:
    return max(operator.flops / SPEED, operator.bytes_moved / BANDWIDTH), LAUNCH


def paleo(operator: Operator) -> tuple[float, float]:
    return SLOWNESS[operator.kind] * operator.flops + operator.bytes_moved / BANDWIDTH, 0.0


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: type(model).__name__)
def model(request: pytest.FixtureRequest) -> StepModel:
    """A model of each kind, fitted on the steps of a roofline."""
    found: StepModel = request.param
    return found.fit(measure_many(roofline))


def predict_times(model: StepModel, workloads: list[Workload]) -> list[float]:
    return [times.iteration_s for times in model.predict(workloads)]


def test_roofline_finds_the_law() -> None:
    found = RooflineModel().fit(measure_many(roofline))
    assert [found.flops_per_s_, found.bytes_per_s_, found.launch_s_] == pytest.approx(
        [SPEED, BANDWIDTH, LAUNCH], rel=1e-3
    )


def test_roofline_predicts_operators_and_gaps() -> None:
    step = measure(make_workload(999), roofline)
    (times,) = RooflineModel().fit(measure_many(roofline)).predict([step.workload])
    assert times.kernel_s == pytest.approx(step.kernel_s, rel=1e-3)
    assert times.gap_s == pytest.approx(np.full(24, LAUNCH), rel=1e-3)


def test_paleo_finds_the_speed_of_each_kind() -> None:
    found = PaleoModel().fit(measure_many(paleo))
    predicted = {kind: found.s_per_flop_[found.positions_[kind]] for kind in KINDS}
    assert predicted == pytest.approx(SLOWNESS, rel=1e-6)
    assert found.s_per_byte_ == pytest.approx(1 / BANDWIDTH, rel=1e-6)


def test_paleo_gives_an_unknown_kind_the_common_speed() -> None:
    speeds = dict.fromkeys(KINDS, 1e-12)
    found = PaleoModel().fit(measure_many(lambda one: (speeds[one.kind] * one.flops + one.bytes_moved * 1e-11, 0.0)))
    strange = make_operator("never_seen", flops=1e9, moved=1e6)
    assert predict_times(found, [Workload(name="a", operators=(strange,))]) == pytest.approx([1e-3 + 1e-5], rel=1e-6)


def test_regression_distinguishes_kinds() -> None:
    def law(operator: Operator) -> tuple[float, float]:
        return 1e-3 * (1 + KINDS.index(operator.kind)), 1e-6

    step = measure(make_workload(1000), law)
    (times,) = OperatorRegressionModel(trees=50).fit(measure_many(law)).predict([step.workload])
    assert times.kernel_s == pytest.approx(step.kernel_s, rel=0.01)


def test_regression_does_not_count_unrecorded_work_as_a_gap() -> None:
    def hidden(operator: Operator) -> bool:
        return operator.kind == "linear" and operator.phase is StepPhase.BACKWARD

    steps = [measure(make_workload(seed), lambda _: (1e-3, 2e-6), hidden=hidden) for seed in range(60)]
    (times,) = OperatorRegressionModel(trees=50).fit(steps).predict([make_workload(2000)])
    assert times.kernel_s == pytest.approx(np.full(24, 1e-3), rel=0.01)
    assert times.gap_s == pytest.approx(np.full(24, 2e-6), rel=0.01)


def test_totals_predicts_whole_steps() -> None:
    steps = measure_many(roofline, count=300)
    unseen = [measure(make_workload(seed), roofline) for seed in range(1000, 1020)]
    found = TotalsModel().fit(steps)
    assert relative_error(predict_times(found, [step.workload for step in unseen]), unseen) < 0.15


def test_totals_divides_the_step_among_operators() -> None:
    (times,) = TotalsModel(trees=30).fit(measure_many(roofline)).predict([make_workload(7)])
    assert times.kernel_s.sum() + times.gap_s.sum() == pytest.approx(times.iteration_s)
    assert times.kernel_s.argmax() == np.argmax([one.flops for one in make_workload(7).operators])


def test_times_are_finite_in_order_and_add_up(model: StepModel) -> None:
    strange = make_operator("never_seen", flops=1e8, moved=1e6)
    workload = replace(make_workload(5), operators=(*make_workload(5).operators, strange))
    (times,) = model.predict([workload])
    assert len(times.kernel_s) == len(times.gap_s) == 25
    assert np.isfinite(times.kernel_s).all()
    assert times.kernel_s.min() >= 0
    assert times.gap_s.min() >= 0
    assert times.kernel_s.sum() + times.gap_s.sum() == pytest.approx(times.iteration_s)


def test_more_work_of_an_unknown_kind_takes_longer(model: StepModel) -> None:
    few, many = (
        replace(make_workload(5), operators=make_workload(5).operators + (strange,) * 20)
        for strange in (make_operator("x", flops=1e5, moved=1e4), make_operator("x", flops=4e8, moved=4e6))
    )
    small, large = predict_times(model, [few, many])
    assert large > small


def test_same_steps_give_the_same_predictions(model: StepModel) -> None:
    workloads = [make_workload(seed) for seed in (100, 101)]
    again = copy.deepcopy(model).fit(measure_many(roofline))
    assert predict_times(model, workloads) == predict_times(again, workloads)


def test_no_workloads_give_no_predictions(model: StepModel) -> None:
    assert model.predict([]) == []


def test_a_state_gives_the_same_predictions(model: StepModel) -> None:
    record, arrays = model.to_state()
    loaded = type(model).from_state(json.loads(json.dumps(record)), arrays)
    workloads = [make_workload(seed) for seed in (100, 101)]
    assert predict_times(loaded, workloads) == predict_times(model, workloads)


@pytest.mark.parametrize("kind", [RooflineModel, PaleoModel])
def test_figures_of_a_device_are_enough(kind: type[RooflineModel | PaleoModel]) -> None:
    slow, fast = (kind.from_figures(get_device(name)) for name in ("T4", "H100"))
    workload = make_workload(5)
    assert 0 < predict_times(fast, [workload])[0] < predict_times(slow, [workload])[0]
