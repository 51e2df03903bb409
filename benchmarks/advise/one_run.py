"""What one run of an application is worth: errors of its predictions elsewhere, before and after it.

A prediction from code is corrected by one measured step of the same network: on another device, or of a smaller batch
on the same one. Neither the prediction nor its interval nor the shares of errors were learned from the family of the
network; those "device left out too" not from its device either.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.advise.measured_errors import LANGUAGE, PredictedLabel, list_predicted
from benchmarks.advise.shared_errors import fit_shares
from foretell.advice.evidence_errors import ErrorShares, StepPlace
from foretell.advice.evidence_steps import PlacedStep, StepEvidence, combine
from foretell.core.prediction import Estimate

LARGE = 0.1  # errors that one run should halve


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRun:
    """Errors before and after one run, in per cent; ``inside`` and ``width`` are those of 90 % intervals."""

    protocol: str
    run: str  # what it was: of a smaller batch, or on another device
    cases: int
    mean_before: float
    mean_after: float
    median_before: float
    median_after: float
    inside_before: float
    inside_after: float
    width_before: float
    width_after: float
    large_cases: int  # with an error above 10 % before
    large_before: float
    large_after: float

    @property
    def left(self) -> float:
        """The share of large errors that is left; the goal is one half at most."""
        return self.large_after / self.large_before if self.large_before else 0.0


def judge_one_run(
    labels: Sequence[PredictedLabel] | None = None,
    *,
    find_shares: Callable[[Sequence[PredictedLabel]], ErrorShares] = fit_shares,
) -> list[OneRun]:
    """Each pair of measured steps of an application: one is predicted, the other one is known."""
    labels = list_predicted() if labels is None else labels
    pairs: dict[tuple[str, str], list[_Pair]] = defaultdict(list)
    families = sorted({each.family for each in labels})
    for half in (set(families[::2]), set(families[1::2])):
        for language in (False, True):
            some = [each for each in labels if (each.protocol == LANGUAGE) == language]
            shares = find_shares([each for each in some if each.family in half])
            for pair in _list_pairs([each for each in some if each.family not in half], shares):
                pairs[pair.protocol, pair.run].append(pair)
                pairs["all", pair.run].append(pair)
    return [_summarize(protocol, run, found) for (protocol, run), found in sorted(pairs.items())]


def print_one_run(rows: Sequence[OneRun] | None = None) -> None:
    """Print the rows."""
    for each in judge_one_run() if rows is None else rows:
        print(
            f"{each.protocol:20} {each.run:24} {each.cases:5} cases: mean {each.mean_before:5.1f} -> "
            f"{each.mean_after:4.1f} %, median {each.median_before:4.1f} -> {each.median_after:4.1f} %, inside "
            f"{each.inside_before:3.0f} -> {each.inside_after:3.0f} %, width {each.width_before:3.0f} -> "
            f"{each.width_after:3.0f} %; {each.large_cases:4} above 10 %: {each.large_before:5.1f} -> "
            f"{each.large_after:4.1f} % ({each.left:.2f})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    protocol: str
    run: str
    measured: float
    before: Estimate
    after: Estimate


def _list_pairs(labels: Sequence[PredictedLabel], shares: ErrorShares) -> Iterator[_Pair]:
    groups: dict[tuple[str, str], list[PredictedLabel]] = defaultdict(list)
    for each in labels:
        groups[each.protocol, each.application].append(each)
    for (protocol, _), group in groups.items():
        for target in group:
            for known in group:
                run = _name_run(target, known)
                if run:
                    yield _correct(protocol, run, target, known, shares)


def _name_run(target: PredictedLabel, known: PredictedLabel) -> str:
    if target.device != known.device:
        return "another device"
    return "a smaller batch" if known.step.case.label.batch < target.step.case.label.batch else ""


def _correct(protocol: str, run: str, target: PredictedLabel, known: PredictedLabel, shares: ErrorShares) -> _Pair:
    place = _place_step(known).place
    found = combine(
        [_place_step(target)],
        [StepEvidence(device=place.device, batch=place.batch, step_s=known.step.case.label.seconds)],
        predict=lambda _: _place_step(known),
        shares=shares,
    )
    measured = target.step.case.label.seconds
    return _Pair(protocol=protocol, run=run, measured=measured, before=target.estimate, after=found.after[0])


def _place_step(label: PredictedLabel) -> PlacedStep:
    place = StepPlace(device=label.device, batch=label.step.case.label.batch)
    return PlacedStep(place=place, estimate=label.estimate, known=label.step.seen)


def _summarize(protocol: str, run: str, pairs: Sequence[_Pair]) -> OneRun:
    measured = np.array([each.measured for each in pairs])
    before, after = ([getattr(each, name) for each in pairs] for name in ("before", "after"))
    errors = [100 * np.abs(np.array([each.value for each in some]) / measured - 1) for some in (before, after)]
    inside = [
        100 * float(np.mean([each.contains(value) for each, value in zip(some, measured, strict=True)]))
        for some in (before, after)
    ]
    widths = [100 * float(np.mean([(each.high - each.low) / each.value for each in some])) for some in (before, after)]
    large = errors[0] > 100 * LARGE
    return OneRun(
        protocol=protocol,
        run=run,
        cases=len(pairs),
        mean_before=float(errors[0].mean()),
        mean_after=float(errors[1].mean()),
        median_before=float(np.median(errors[0])),
        median_after=float(np.median(errors[1])),
        inside_before=inside[0],
        inside_after=inside[1],
        width_before=widths[0],
        width_after=widths[1],
        large_cases=int(large.sum()),
        large_before=float(errors[0][large].mean()) if large.any() else 0.0,
        large_after=float(errors[1][large].mean()) if large.any() else 0.0,
    )


if __name__ == "__main__":
    print_one_run()
