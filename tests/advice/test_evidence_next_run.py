"""The next run is the cheapest of those that narrow the pick most, and its description says by how much."""

import math

from tests.advice.test_evidence_steps import estimate, measure, place, predict

from foretell.advice.evidence_next_run import LONGEST_S, RunCandidate, list_candidates, suggest_next_run
from foretell.advice.evidence_render import describe_evidence, describe_next_run
from foretell.advice.evidence_steps import PlacedStep, combine

STEPS = [
    PlacedStep(place=place(), estimate=estimate(1.0, 0.25)),
    PlacedStep(place=place("H100"), estimate=estimate(0.5, 0.25)),
    PlacedStep(place=place(gpus=8, layout="ddp"), estimate=estimate(1.1, 0.25)),
]
PRICES = [2.0, 3.0, 16.0]


def test_same_device_is_best_where_it_is_cheap() -> None:
    found = suggest_next_run(STEPS, pick=0, candidates=list_candidates(STEPS, pick=0, price=PRICES.__getitem__))
    assert found is not None
    assert found.place == place()
    assert found.narrowing < 0.5
    assert 0 < found.seconds <= LONGEST_S * 1.01
    assert math.isclose(found.cost, 2.0 * found.seconds / 3600)


def test_candidates_are_the_smallest_on_each_device_and_the_pick() -> None:
    found = [each.step.place for each in list_candidates(STEPS, pick=2)]
    assert found == [place(), place("H100"), place(gpus=8, layout="ddp")]


def test_cheaper_run_is_chosen_among_equals() -> None:
    dear, cheap = (RunCandidate(step=STEPS[0], price_per_hour=price) for price in (9.0, 1.0))
    found = suggest_next_run(STEPS, pick=0, candidates=[dear, cheap])
    assert found is not None
    assert found.candidate is cheap


def test_nothing_is_suggested_where_it_would_not_help() -> None:
    known = [measure(place(), 1.0, noise=0.001) for _ in range(3)]
    assert suggest_next_run(STEPS, known, pick=0, candidates=[RunCandidate(step=STEPS[1])]) is None
    assert suggest_next_run(STEPS, pick=0, candidates=[]) is None


def test_expected_width_is_that_of_runs_that_are_as_expected() -> None:
    found = suggest_next_run(STEPS, pick=0, candidates=[RunCandidate(step=STEPS[0])])
    assert found is not None
    after = combine(STEPS, [measure(place(), 1.05)]).after[0]
    expected = math.log(found.after.high / found.after.low)
    assert 0.8 < math.log(after.high / after.low) / expected < 1.25


def test_sentences_say_what_changed() -> None:
    runs = [measure(place(), 1.3), measure(place("Strange"), 1.0)]
    lines = describe_evidence(combine(predict(place(), place("H100")), runs), 0)
    assert lines[0] == "A100, batch 64: 1.3 s a step."
    assert "not used: the code has no prediction for Strange" in lines[1]
    assert lines[2].startswith("1 run corrected the step of A100, batch 64 by +")
    found = suggest_next_run(STEPS, pick=0, candidates=list_candidates(STEPS, pick=0, price=PRICES.__getitem__))
    assert found is not None
    assert describe_next_run(found, "USD").startswith(
        "270 steps on A100, batch 64 (about 5 min 00 s, $0.17 by the rate card) would narrow"
    )


def test_runs_far_from_the_code_are_questioned() -> None:
    lines = describe_evidence(combine(predict(place()), [measure(place(), 20.0)]), 0)
    assert lines[-1].endswith("is it the same model, batch and precision?")
