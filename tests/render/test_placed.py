"""Placements of a training: which one is worth requesting, and how they are rendered."""

from collections.abc import Callable

import pytest
from tests.measured_steps import place

from foretell.core.prediction import Estimate
from foretell.core.serialization import to_record
from foretell.core.warning import PredictionWarning, build_warning
from foretell.distributed.placed_steps import ChoiceReason, PlacedPrediction, Placement, PlacementComparison
from foretell.distributed.render import build_placements_record, describe_choice, render_placements

GUESS = build_warning(
    "nodes-not-measured",
    "No step on several nodes of lab was measured: the cost of the network between them is a guess.",
)


def predict(
    gpus: Placement, step_s: float, *, warnings: tuple[PredictionWarning, ...] = (), measured: bool = False
) -> PlacedPrediction:
    return PlacedPrediction(
        step=place(gpus),
        step_s=Estimate(value=step_s, low=0.9 * step_s, high=1.2 * step_s, level=0.9),
        compute_s=0.2,
        exposed_s=step_s - 0.2,
        measured_s=1.01 * step_s if measured else None,
        warnings=warnings,
    )


ONE, FOUR = predict((1,), 0.2, measured=True), predict((4,), 0.25, measured=True)
NODES = predict((4, 4), 0.5, warnings=(GUESS,))


def compare(*predictions: PlacedPrediction, efficiency: float = 0.7) -> PlacementComparison:
    return PlacementComparison(predictions=predictions or (ONE, FOUR, NODES), efficiency=efficiency)


def test_efficiency_is_relative_to_the_smallest_placement() -> None:
    comparison = compare()
    assert [comparison.get_efficiency(each) for each in (ONE, FOUR, NODES)] == pytest.approx([1.0, 0.8, 0.4])


@pytest.mark.parametrize(
    ("comparison", "choice", "reason"),
    [
        (compare(), FOUR, ChoiceReason.EFFICIENT),
        (compare(efficiency=0.3), FOUR, ChoiceReason.EFFICIENT),  # the third has a warning
        (compare(efficiency=0.9), None, ChoiceReason.INEFFICIENT),
        (compare(ONE, NODES, efficiency=0.3), None, ChoiceReason.NOT_MEASURED),
        (compare(FOUR), None, ChoiceReason.NO_LARGER),
    ],
)
def test_the_most_examples_per_second_at_the_required_efficiency_are_chosen(
    comparison: PlacementComparison, choice: PlacedPrediction | None, reason: ChoiceReason
) -> None:
    assert comparison.choice is choice
    assert comparison.reason is reason


def test_where_all_have_warnings_one_is_chosen_and_its_warning_shown() -> None:
    small, large = predict((1,), 0.2, warnings=(GUESS,)), predict((4, 4), 0.25, warnings=(GUESS,))
    comparison = compare(small, large)
    assert comparison.choice is large
    assert f"Warning: {GUESS}" in describe_choice(comparison)


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        (compare(FOUR), "20 % of a step on 4 GPUs waits for gradients."),
        (compare(ONE, NODES, efficiency=0.3), f"Stay with 1 GPU until more is measured. {GUESS}"),
        (compare(ONE, FOUR, efficiency=0.9), "Stay with 1 GPU: the efficiency of more GPUs is below 90 %."),
        (
            compare(efficiency=0.9),
            "Stay with 1 GPU: the efficiency of more GPUs is below 90 %, or outside the measured range.",
        ),
    ],
)
def test_without_a_choice_the_reason_is_given(comparison: PlacementComparison, expected: str) -> None:
    assert describe_choice(comparison) == expected


def test_equally_many_gpus_are_compared_with_the_fastest() -> None:
    spread = predict((2, 2), 0.4)
    comparison = compare(spread, FOUR)
    assert [comparison.get_efficiency(each) for each in (spread, FOUR)] == pytest.approx([0.625, 1.0])
    assert comparison.reason is ChoiceReason.NO_LARGER


def test_placements_as_text(to_text: Callable[..., str], check_golden: Callable[[str, str], None]) -> None:
    text = to_text(render_placements(compare()))
    assert max(map(len, text.splitlines())) <= 100
    check_golden("report_placements.txt", text)


def test_placements_as_json() -> None:
    record = build_placements_record(compare())
    assert (record["choice"], record["reason"]) == ("4", "efficient")
    assert (record["workload"], record["batch"]) == ("net", 16)
    last = record["placements"][-1]
    assert (last["placement"], last["gpus"], last["nodes"], last["warnings"]) == ("2x4", 8, 2, [to_record(GUESS)])
    assert last["gpu_hours_per_million"] == pytest.approx(1e6 / 16 * 0.5 / 3600)
    assert build_placements_record(compare(efficiency=0.9))["choice"] is None
