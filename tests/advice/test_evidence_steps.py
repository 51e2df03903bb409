"""Runs correct predictions as Bayes' rule says: by hand, on simulated jobs, and by how much they have in common."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from foretell.advice.evidence_errors import (
    MEASURED_LOG,
    SHARES,
    ErrorShares,
    StepPlace,
    build_covariance,
    find_scale,
    t_quantile,
)
from foretell.advice.evidence_steps import PlacedStep, StepEvidence, combine
from foretell.core.errors import SpecError
from foretell.core.prediction import Estimate

NORMAL = ErrorShares(network=0.6, device=0.1, freedom=1e9, batch_doublings=2.0, device_freedom=1e9)
Z = t_quantile(0.95, 1e9)


def estimate(value: float, width: float = 0.3, level: float = 0.9) -> Estimate:
    """``width`` is half of the interval, as a logarithm."""
    return Estimate(value=value, low=value * math.exp(-width), high=value * math.exp(width), level=level)


def place(device: str = "A100", batch: int = 64, gpus: int = 1, layout: str = "") -> StepPlace:
    return StepPlace(device=device, gpus=gpus, layout=layout, batch=batch)


def predict(*places: StepPlace, value: float = 1.0, width: float = 0.3) -> list[PlacedStep]:
    return [PlacedStep(place=each, estimate=estimate(value, width)) for each in places]


def measure(at: StepPlace, step_s: float, noise: float = 0.03) -> StepEvidence:
    return StepEvidence(device=at.device, gpus=at.gpus, layout=at.layout, batch=at.batch, step_s=step_s, noise=noise)


def half_width(one: Estimate) -> float:
    return math.log(one.high / one.low) / 2


def test_without_runs_predictions_stay_as_they_are() -> None:
    found = combine(predict(place(), place("H100")), [])
    assert found.after == (estimate(1.0), estimate(1.0))
    assert not found.used
    assert combine([], []).after == ()


def test_one_run_is_weighted_by_precision() -> None:
    """By hand: the prior has a variance, the run has another, and the mean of both is weighted by their inverses."""
    found = combine(predict(place()), [measure(place(), 1.2, noise=0.05)], shares=NORMAL)
    prior, noise = (0.3 / Z) ** 2, 0.05**2
    error = math.log(1.2) * prior / (prior + noise)
    assert found.after[0].value == pytest.approx(math.exp(error), rel=1e-6)
    left = prior * noise / (prior + noise) + 0.03**2
    assert half_width(found.after[0]) == pytest.approx(Z * math.sqrt(left), rel=1e-6)


def test_two_runs_count_as_their_mean() -> None:
    runs = [measure(place(), 1.1, noise=0.06), measure(place(), 1.3, noise=0.06)]
    one = measure(place(), math.sqrt(1.1 * 1.3), noise=0.06 / math.sqrt(2))
    twice, once = (combine(predict(place()), some, shares=NORMAL).after[0] for some in (runs, [one]))
    assert twice.value == pytest.approx(once.value)
    assert half_width(twice) == pytest.approx(half_width(once))


def test_another_device_is_corrected_by_what_networks_have_in_common() -> None:
    found = combine(predict(place(), place("H100")), [measure(place(), 1.2)], shares=NORMAL)
    prior = (0.3 / Z) ** 2
    gain = NORMAL.network * prior / (prior + 0.03**2)
    assert math.log(found.after[1].value) == pytest.approx(gain * math.log(1.2), rel=1e-6)


def test_nearer_runs_are_followed_more() -> None:
    target = place(batch=128)
    near = [target, place(batch=64), place(batch=16), place("H100", batch=128)]
    values = [combine(predict(target, each), [measure(each, 1.2)]).after[0] for each in near]
    moved = [each.value for each in values]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] > 1
    widths = [half_width(each) for each in values]
    assert widths == sorted(widths)


def test_a_layout_of_several_gpus_is_corrected_in_part() -> None:
    shared = place(gpus=8, layout="ddp")
    found = combine(predict(place(), shared, place("H100")), [measure(place(), 1.3)])
    assert found.after[0].value > found.after[1].value >= found.after[2].value * 0.999


def test_what_a_device_errs_more_is_its_own() -> None:
    """The run of a device that was never measured says less of others than that of a known one."""
    known = PlacedStep(place=place("H100"), estimate=estimate(1.0, MEASURED_LOG))
    unknown = PlacedStep(place=place("New"), estimate=estimate(1.0, 2 * MEASURED_LOG), known=False)
    by_unknown = combine([known, unknown], [measure(place("New"), 1.3)], shares=NORMAL).after[0].value
    other = PlacedStep(place=place(), estimate=known.estimate)
    by_known = combine([known, other], [measure(place(), 1.3)], shares=NORMAL).after[0].value
    assert 1.0 < by_unknown < by_known


def test_large_errors_are_followed_more_than_small_ones() -> None:
    """Few networks err by far more than others, and everywhere."""
    shares = []
    for error in (0.05, 0.8):
        found = combine(predict(place(), place("H100")), [measure(place(), math.exp(error))])
        shares.append(math.log(found.after[1].value) / error)
    assert shares[0] < shares[1] < 1


def test_runs_of_different_lengths_separate_start_and_steps() -> None:
    at = place()
    jobs = [(10, 40 + 13.0), (1000, 40 + 1300.0)]
    runs = [
        StepEvidence(device=at.device, batch=at.batch, elapsed_s=elapsed, steps=steps, noise=0.01)
        for steps, elapsed in jobs
    ]
    found = combine(predict(at), runs)
    assert found.after[0].value == pytest.approx(1.3, rel=0.03)
    assert found.start_up.value == pytest.approx(40, rel=0.1)
    job = found.estimate_job(0, 500)
    assert job.value == pytest.approx(40 + 500 * 1.3, rel=0.03)
    assert job.low < 690 < job.high


def test_sum_is_known_better_than_its_parts() -> None:
    """One short job leaves open what of it was its start; of a job as long, that does not matter."""
    at = place()
    run = StepEvidence(device=at.device, batch=at.batch, elapsed_s=60.0, steps=30)
    found = combine(predict(at), [run])
    same, longer = found.estimate_job(0, 30), found.estimate_job(0, 3000)
    assert half_width(same) < half_width(found.start_up)
    assert half_width(same) < half_width(longer)


def test_run_elsewhere_needs_a_prediction_for_it() -> None:
    run = measure(place("Strange"), 1.2)
    found = combine(predict(place()), [run])
    assert found.after == (estimate(1.0),)
    assert [each.evidence for each in found.unused] == [run]
    there = PlacedStep(place=run.place, estimate=estimate(1.0))
    assert combine(predict(place()), [run], predict=lambda _: there).after[0].value > 1


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"step_s": 1.0, "elapsed_s": 2.0, "steps": 3},
        {"elapsed_s": 2.0},
        {"step_s": 0.0},
        {"step_s": math.nan},
        {"step_s": math.inf},
        {"step_s": -1.0},
        {"elapsed_s": 2.0, "steps": 0},
        {"step_s": 1.0, "noise": 0.0},
    ],
)
def test_evidence_without_a_time_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(SpecError, match="the measured run"):
        StepEvidence(device="A100", **given)  # type: ignore[arg-type]


def draw_errors(
    random: np.random.Generator, places: Sequence[StepPlace], shares: ErrorShares, scale: float
) -> list[float]:
    """From the law that is assumed, with normal parts."""
    parts = build_covariance(places, np.full(len(places), scale), [True] * len(places), shares)
    spread = parts.build(1.0, np.ones(len(places)))
    return list(random.multivariate_normal(np.zeros(len(places)), spread, method="cholesky"))


@pytest.mark.parametrize("runs", [0, 1, 3])
def test_intervals_hold_on_simulated_jobs(runs: int) -> None:
    """90 % of the measured times lie in them, within what chance allows."""
    random = np.random.default_rng(runs)
    places = [place(), place("H100"), place("T4", batch=32), place("L4")]
    scale, trials, inside, widths = 0.3 / Z, 700, 0, 0.0
    for _ in range(trials):
        errors = draw_errors(random, places, NORMAL, scale)
        noisy = np.exp(np.array(errors) + random.normal(0, 0.03, len(places)))
        seen = [measure(each, float(value)) for each, value in zip(places[1 : runs + 1], noisy[1:], strict=False)]
        after = combine(predict(*places), seen, shares=NORMAL).after[0]
        again = math.exp(errors[0]) * math.exp(random.normal(0, 0.03))
        inside += after.contains(again)
        widths += half_width(after)
    assert inside / trials == pytest.approx(0.9, abs=0.035)
    assert widths / trials <= 0.3 + 1e-9


def test_more_runs_never_widen_on_average() -> None:
    random = np.random.default_rng(5)
    places = [place(), place("H100"), place(batch=32), place("L4")]
    widths = np.zeros(4)
    for _ in range(120):
        errors = draw_errors(random, places, SHARES, 0.1)
        seen = [measure(each, math.exp(error)) for each, error in zip(places[1:], errors[1:], strict=True)]
        widths += [half_width(combine(predict(*places), seen[:count]).after[0]) for count in range(4)]
    assert list(widths) == sorted(widths, reverse=True)


def test_scale_and_covariance_are_those_of_the_intervals() -> None:
    places = [place(), place(), place("H100"), place(batch=16), place(gpus=4, layout="ddp"), place(batch=64)]
    scales = np.array([0.1, 0.1, 0.2, 0.1, 0.15, 0.1])
    found = build_covariance(places, scales, [True] * 6, SHARES).build(1.0, np.ones(6))
    assert np.diag(found) == pytest.approx(scales**2)
    assert np.linalg.eigvalsh(found).min() > -1e-12
    assert found[0, 1] == pytest.approx(found[0, 0])
    assert found[0, 2] < found[0, 4] <= found[0, 0]
    assert found[0, 2] < found[0, 3] < found[0, 1]
    assert find_scale(estimate(3.0, 0.2), 4.0) == pytest.approx(0.2 / t_quantile(0.95, 4.0))


@pytest.mark.parametrize(("freedom", "quantile"), [(2.0, 2.919986), (3.0, 2.353363), (10.0, 1.812461), (1e9, 1.644854)])
def test_quantiles_are_those_of_the_tables(freedom: float, quantile: float) -> None:
    assert t_quantile(0.95, freedom) == pytest.approx(quantile, abs=1e-5)
    assert t_quantile(0.05, freedom) == pytest.approx(-quantile, abs=1e-5)
