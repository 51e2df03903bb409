"""Steps on more GPUs than were measured: right where the law is known, and with a warning where it is not."""

from dataclasses import replace

import numpy as np
import pytest
from tests.measured_steps import ONE_NODE, TWO_NODES, compute_step, measure, place

from foretell.core.devices import get_device
from foretell.core.errors import ImportDataError, NotFoundError
from foretell.distributed.placed_steps import PlacedPrediction, PlacedStep
from foretell.distributed.placement_predictor import PlacedPredictor

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two() -> PlacedPredictor:
    return PlacedPredictor.fit(measure(TWO_NODES), workload="net", cluster="lab")


@pytest.fixture(scope="module")
def one() -> PlacedPredictor:
    return PlacedPredictor.fit(measure(ONE_NODE), workload="net", cluster="lab")


def predict_one(predictor: PlacedPredictor, step: PlacedStep, level: float = 0.9) -> PlacedPrediction:
    (predicted,) = predictor.predict([step], level=level)
    return predicted


@pytest.mark.parametrize("gpus", [(4, 4, 4), (4, 4, 4, 4), (2, 2, 2)])
def test_more_gpus_are_inside_their_intervals(two: PlacedPredictor, gpus: tuple[int, ...]) -> None:
    predicted = predict_one(two, place(gpus))
    assert predicted.step_s.value == pytest.approx(compute_step(place(gpus)), rel=0.1)
    assert predicted.step_s.low < compute_step(place(gpus)) < predicted.step_s.high
    assert predicted.compute_s + predicted.exposed_s == pytest.approx(predicted.step_s.value)
    assert predicted.examples_per_s == pytest.approx(16 * sum(gpus) / predicted.step_s.value)
    assert not predicted.warnings


def test_a_measured_placement_has_its_median_and_a_narrower_interval(two: PlacedPredictor) -> None:
    seen, more = predict_one(two, place((4, 4))), predict_one(two, place((4, 4, 4, 4)))
    assert seen.measured_s == pytest.approx(compute_step(place((4, 4))))
    assert more.measured_s is None
    assert predict_one(two, place((4, 4), 24)).measured_s is None
    assert seen.step_s.high / seen.step_s.low < more.step_s.high / more.step_s.low


def test_a_level_makes_bounds(two: PlacedPredictor) -> None:
    wide, narrow = predict_one(two, place((4, 4, 4)), 0.95), predict_one(two, place((4, 4, 4)), 0.5)
    assert narrow.step_s.level == 0.5
    assert wide.step_s.low < narrow.step_s.low < narrow.step_s.high < wide.step_s.high


def test_figures_without_effect_have_a_warning(two: PlacedPredictor) -> None:
    asked = replace(place((4,)), cluster="new", device=get_device("H100"), link_bytes_per_s=1e10)
    assert any("figures of H100 have no effect" in warning.text for warning in predict_one(two, asked).warnings)
    assert any("its rate has no effect" in warning.text for warning in predict_one(two, asked).warnings)


def test_several_nodes_have_a_warning_where_one_was_measured(one: PlacedPredictor, two: PlacedPredictor) -> None:
    predicted = predict_one(one, place((4, 4)))
    assert "No step on several nodes of lab was measured" in predicted.warnings[0].text
    known = predict_one(two, place((4, 4, 4, 4)))
    assert predicted.step_s.high / predicted.step_s.low > known.step_s.high / known.step_s.low
    assert predicted.step_s.value > 0.97 * predict_one(one, place((4,))).step_s.value  # nodes are not faster than one


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (place((8,)), "More GPUs on a node than the 4 that were measured on lab."),
        (place((4,) * 5), "More than 2 times the 8 GPUs that were measured on lab."),
        (place((2,), 65), "A batch of 65; measured: 4 to 32."),
        (place((2,), 1), "A batch of 1; measured: 4 to 32."),
        (place((2,), cluster="away"), "No step on away was measured, only on lab"),
    ],
)
def test_what_lies_outside_has_a_warning(two: PlacedPredictor, step: PlacedStep, text: str) -> None:
    assert predict_one(two, step).warnings[0].text.startswith(text)


def test_a_workload_of_another_cluster_has_a_warning_and_a_wide_interval() -> None:
    rows = [*measure(TWO_NODES), *measure(TWO_NODES, cluster="away"), *measure(ONE_NODE, workload="other")]
    predicted = predict_one(
        PlacedPredictor.fit(rows, workload="other", cluster="away"), place((2,), workload="other", cluster="away")
    )
    assert list(map(str, predicted.warnings)) == ["other was not measured on away, only on other clusters."]
    assert predicted.step_s.low < compute_step(place((2,))) < predicted.step_s.high


def test_bounds_hold_noisy_steps_of_twice_the_gpus() -> None:
    random, held = np.random.default_rng(3), []
    for _ in range(12):
        rows = [replace(row, step_s=row.step_s * random.lognormal(0, 0.04)) for row in measure(TWO_NODES)]
        predictor = PlacedPredictor.fit(rows, workload="net", cluster="lab")
        for gpus in ((4, 4, 4), (4, 4, 4, 4)):
            actual = compute_step(place(gpus)) * random.lognormal(0, 0.04)
            estimate = predict_one(predictor, place(gpus)).step_s
            held.append(estimate.low <= actual <= estimate.high)
    assert np.mean(held) >= 0.85


def test_few_rows_of_one_number_of_gpus_are_enough_for_an_answer() -> None:
    rows = [replace(row, sync_s=0.1 * row.step_s) for row in measure([(4,)], (16,))]
    predicted = predict_one(PlacedPredictor.fit(rows, workload="net", cluster="lab"), place((8,)))
    assert predicted.step_s.low < predicted.step_s.value < predicted.step_s.high


def test_a_workload_without_one_gpu_does_no_harm() -> None:
    late = [replace(row, sync_s=0.3 * row.step_s) for row in measure([(4, 4)], workload="late")]
    predictor = PlacedPredictor.fit([*measure(TWO_NODES), *late], workload="late", cluster="lab")
    predicted = predict_one(predictor, place((4, 4, 4), workload="late"))
    assert predicted.step_s.low < compute_step(place((4, 4, 4))) < predicted.step_s.high


@pytest.mark.parametrize("factor", [1 / 30, 30])
def test_units_of_time_do_not_matter(two: PlacedPredictor, factor: float) -> None:
    rows = [replace(row, step_s=factor * row.step_s) for row in measure(TWO_NODES)]
    other = PlacedPredictor.fit(rows, workload="net", cluster="lab")
    for gpus in ((1,), (4, 4), (4, 4, 4, 4)):
        predicted, scaled = predict_one(two, place(gpus)), predict_one(other, place(gpus))
        assert scaled.step_s.value / factor == pytest.approx(predicted.step_s.value, rel=0.03)
        assert scaled.exposed_share == pytest.approx(predicted.exposed_share, abs=0.03)


@pytest.mark.parametrize("factor", [1 / 30, 1, 30])
def test_bounds_of_two_placements_are_in_proportion(factor: float) -> None:
    rows = [replace(row, step_s=factor * row.step_s) for row in measure([(1,), (2,)])]
    predicted = predict_one(PlacedPredictor.fit(rows, workload="net", cluster="lab"), place((4,)))
    assert predicted.step_s.high < 2 * predicted.step_s.value


def test_more_nodes_wait_no_less(two: PlacedPredictor) -> None:
    predicted = two.predict([place(gpus) for gpus in ((1,), (4, 4), (4, 4, 4), (4, 4, 4, 4))])
    assert predicted[0].exposed_s == 0
    assert [each.step_s.value for each in predicted] == sorted(each.step_s.value for each in predicted)


def test_the_only_row_of_a_batch_is_reproduced() -> None:
    rows = [*measure(TWO_NODES), *measure([(1,)], (128,))]
    predicted = predict_one(PlacedPredictor.fit(rows, workload="net", cluster="lab"), place((1,), 128))
    assert predicted.step_s.value == pytest.approx(compute_step(place((1,), 128)), rel=0.03)


def test_batches_far_from_those_measured_are_less_sure(two: PlacedPredictor) -> None:
    near, far = predict_one(two, place((4, 4), 32)).step_s, predict_one(two, place((4, 4), 256)).step_s
    assert far.high / far.low > near.high / near.low


def test_a_step_is_not_shorter_than_its_computing(two: PlacedPredictor) -> None:
    far = predict_one(two, place((4,) * 100))
    assert far.step_s.low > 0.7 * compute_step(place((1,)))


def test_of_many_workloads_the_nearest_are_fitted_to() -> None:
    rows = [row for name in range(40) for row in measure([(1,), (2,)], (8,), workload=f"net{name:02}")]
    predictor = PlacedPredictor.fit(rows, workload="net39", cluster="lab")
    assert "net39" in {row.placed.workload for row in predictor.rows}
    assert len(predictor.rows) == 2 * 30


def test_another_workload_that_cannot_be_fitted_does_no_harm() -> None:
    rows = [*measure(TWO_NODES), *measure([(4,)], workload="late")]
    assert predict_one(PlacedPredictor.fit(rows, workload="net", cluster="lab"), place((4, 4))).step_s.value > 0
    with pytest.raises(ImportDataError, match="the compute time of 'late' is unknown"):
        PlacedPredictor.fit(rows, workload="late", cluster="lab")


def test_figures_of_a_device_transfer_to_another_cluster() -> None:
    rows = [replace(row, placed=replace(row.placed, device=get_device("T4"))) for row in measure(TWO_NODES)]
    predictor = PlacedPredictor.fit(rows, workload="net", cluster="away")
    slow, fast = (
        predict_one(predictor, replace(place((1,), cluster="away"), device=get_device(name))) for name in ("T4", "A100")
    )
    assert fast.step_s.value < 0.8 * slow.step_s.value


def test_steps_of_one_gpu_are_not_enough() -> None:
    with pytest.raises(ImportDataError, match=r"none of 4 steps ran on more than one GPU.* Measure a step on two GPUs"):
        PlacedPredictor.fit(measure([(1,)]), workload="net", cluster="lab")


def test_a_workload_never_measured_is_refused(two: PlacedPredictor) -> None:
    with pytest.raises(NotFoundError, match=r"'other'.*Known: net"):
        predict_one(two, place((2,), workload="other"))
