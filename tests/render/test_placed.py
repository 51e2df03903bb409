"""Steps on more GPUs, as text and records."""

from collections.abc import Callable

import pytest
from tests.measured_steps import place

from foretell.core.prediction import Estimate
from foretell.core.serialization import to_record
from foretell.core.warning import PredictionWarning, build_warning
from foretell.distributed.placed_steps import PlacedPrediction, Placement
from foretell.distributed.placement_render import (
    build_placements_record,
    describe_choice,
    find_choice,
    find_efficiencies,
    render_placements,
)

GUESS = build_warning(
    "nodes-not-measured",
    "No step on several nodes of lab was measured: what the network between them costs is a guess.",
)


def tell(
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


TOLD = [tell((1,), 0.2, measured=True), tell((4,), 0.25, measured=True), tell((4, 4), 0.5, warnings=(GUESS,))]


def test_each_gpu_does_less_the_more_there_are() -> None:
    assert find_efficiencies(TOLD) == pytest.approx([1.0, 0.8, 0.4])


def test_the_most_is_asked_for_that_still_pays() -> None:
    assert find_choice(TOLD, 0.7) is TOLD[1]
    assert find_choice(TOLD, 0.3) is TOLD[1]  # the third is not sure
    assert find_choice(TOLD, 0.9) is None
    assert "Stay with 1 GPU: on more, each GPU does less than 90 %" in describe_choice(TOLD[:2], 0.9)


def test_where_nothing_is_sure_the_warning_is_shown() -> None:
    unsure = [tell((1,), 0.2, warnings=(GUESS,)), tell((4, 4), 0.25, warnings=(GUESS,))]
    assert find_choice(unsure, 0.7) is unsure[1]
    assert f"It is not sure: {GUESS}" in describe_choice(unsure, 0.7)


def test_one_placement_is_only_described() -> None:
    assert describe_choice(TOLD[1:2], 0.7) == "20 % of a step on 4 GPUs waits for gradients."


def test_what_lies_outside_is_to_be_measured_first() -> None:
    assert describe_choice([TOLD[0], TOLD[2]], 0.3) == f"Stay with 1 GPU until more is measured. {GUESS}"
    assert "on more of those that are sure, each GPU does less than 90 %" in describe_choice(TOLD, 0.9)


def test_as_many_gpus_are_compared_with_the_fastest() -> None:
    spread = tell((2, 2), 0.4)
    assert find_efficiencies([spread, TOLD[1]]) == pytest.approx([0.625, 1.0])
    assert describe_choice([spread, TOLD[1]], 0.7) == "20 % of a step on 4 GPUs waits for gradients."


def test_placements_for_people(to_text: Callable[..., str], check_golden: Callable[[str, str], None]) -> None:
    text = to_text(render_placements(TOLD, efficiency=0.7))
    assert max(map(len, text.splitlines())) <= 100
    check_golden("report_placements.txt", text)


def test_placements_for_programs() -> None:
    record = build_placements_record(TOLD, efficiency=0.7)
    assert (record["choice"], record["workload"], record["batch"]) == ("4", "net", 16)
    last = record["placements"][-1]
    assert (last["placement"], last["gpus"], last["nodes"], last["warnings"]) == ("2x4", 8, 2, [to_record(GUESS)])
    assert last["gpu_hours_per_million"] == pytest.approx(1e6 / 16 * 0.5 / 3600)
    assert build_placements_record(TOLD, efficiency=0.9)["choice"] is None
