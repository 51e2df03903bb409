"""Intervals of predicted steps, learned from steps that were left out, and whether they hold."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.gpus.results import Result, judge
from benchmarks.gpus.whole_steps import UnseenStep
from foretell.core.intervals import QuantileSpread
from foretell.steps.kernels._base import Evidence
from foretell.steps.kernels.step_intervals import QUANTILES, StepSpread

LEVEL = 0.9
_SIMILAR = 0.5  # of the way from the quantiles of measured devices to those of others


def fit_spread(seen: Sequence[UnseenStep], *, left_out_steps: Sequence[UnseenStep]) -> StepSpread:
    """Quantiles of errors by evidence: none narrower than those of stronger evidence."""
    measured = _learn(seen)
    figures = _widen(_mirror(_learn(left_out_steps)), measured)
    similar = [low + _SIMILAR * (high - low) for low, high in zip(measured, figures, strict=True)]
    found = {Evidence.MEASURED: measured, Evidence.SIMILAR: similar, Evidence.FIGURES: figures}
    return StepSpread(spreads={str(name): QuantileSpread(quantiles=tuple(each)) for name, each in found.items()})


def _learn(steps: Sequence[UnseenStep]) -> list[float]:
    """Quantiles of log(measured / predicted); each source and device counts the same."""
    errors = np.array([each.error for each in steps])
    names = [f"{each.case.label.source} {each.case.device.name} {each.case.label.mode}" for each in steps]
    weights = np.array([1 / names.count(name) ** 0.5 for name in names])
    order = np.argsort(errors)
    places = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
    found: list[float] = np.interp(np.linspace(0, 1, QUANTILES), places, errors[order]).tolist()
    return found


def _mirror(quantiles: Sequence[float]) -> list[float]:
    """As wide on both sides: with few devices left out, it is chance on which side they lie."""
    half = [max(-low, high) for low, high in zip(quantiles, reversed(quantiles), strict=True)][: len(quantiles) // 2]
    return [*(-each for each in half), 0.0, *reversed(half)]


def _widen(quantiles: Sequence[float], inner: Sequence[float]) -> list[float]:
    half = len(quantiles) // 2
    pairs = enumerate(zip(quantiles, inner, strict=True))
    return [min(one, other) if place < half else max(one, other) for place, (one, other) in pairs]


def measure_coverage(seen: Sequence[UnseenStep], *, left_out_steps: Sequence[UnseenStep]) -> list[Result]:
    """Intervals learned from half of the families, on the other half."""
    families = sorted({each.case.label.family for each in (*seen, *left_out_steps)})
    found: list[Result] = []
    for what, steps, evidence in (
        ("intervals, seen device", seen, Evidence.MEASURED),
        ("intervals, device left out", left_out_steps, Evidence.FIGURES),
    ):
        inside: list[bool] = []
        widths: list[float] = []
        tested: list[UnseenStep] = []
        for half in (set(families[::2]), set(families[1::2])):
            spread = fit_spread(
                [each for each in seen if each.case.label.family in half],
                left_out_steps=[each for each in left_out_steps if each.case.label.family in half],
            )
            for each in steps:
                if each.case.label.family not in half:
                    low, high = _bound(each, spread, evidence)
                    inside.append(low <= each.case.label.seconds <= high)
                    widths.append((high - low) / each.predicted_s)
                    tested.append(each)
        predicted, measured = [each.predicted_s for each in tested], [each.case.label.seconds for each in tested]
        row = judge(what, "all", predicted, measured, note="goal: 87 to 93 % inside")
        found.append(replace(row, inside=100 * float(np.mean(inside)), width=100 * float(np.mean(widths))))
    return found


def _bound(step: UnseenStep, spread: StepSpread, evidence: Evidence) -> tuple[float, float]:
    times = replace(step.case.times, iteration_s=step.predicted_s, evidence={str(evidence): 1.0})
    interval = spread.bound(times, LEVEL)
    return interval.low, interval.high
