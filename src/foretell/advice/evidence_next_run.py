"""Which run to make next: the cheapest of those that narrow the interval of the pick most."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from foretell.advice.evidence_errors import SHARES, ErrorShares, StepPlace
from foretell.advice.evidence_steps import START_UP, CombinedSteps, PlacedStep, StepEvidence, combine
from foretell.core.prediction import Estimate

LONGEST_S = 300.0  # of a scaled-down run
LEAST_STEPS, MOST_STEPS = 20, 500
_AS_GOOD = 1.15  # widths up to this factor are as good as the least
_WORTH = 0.95  # of the width: a run that leaves more is not worth making
_USUAL = 0.3  # of the half width of a 90 % interval: as far as a run usually is from what is predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCandidate:
    """A run that could be made. ``price_per_hour`` is that of its allocation, nothing for this machine."""

    step: PlacedStep
    price_per_hour: float = 0.0
    here: bool = False  # on this machine, without a scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """A run to make: so many steps, what it takes, and the pick's interval before it and, as expected, after it."""

    candidate: RunCandidate
    steps: int
    seconds: float
    cost: float
    before: Estimate
    after: Estimate

    @property
    def place(self) -> StepPlace:
        """Where it runs."""
        return self.candidate.step.place

    @property
    def narrowing(self) -> float:
        """The width that is left, of the one before."""
        return measure_width(self.after) / measure_width(self.before)


def measure_width(estimate: Estimate) -> float:
    """The width of an interval, as a logarithm."""
    return math.log(estimate.high / estimate.low)


def suggest_next_run(
    predictions: Sequence[PlacedStep],
    runs: Sequence[StepEvidence] = (),
    *,
    pick: int,
    candidates: Sequence[RunCandidate],
    predict: Callable[[StepPlace], PlacedStep | None] = lambda _: None,
    start_up: Estimate = START_UP,
    shares: ErrorShares = SHARES,
    longest_s: float = LONGEST_S,
) -> NextRun | None:
    """The smallest run that narrows the interval of the pick most, or nearly so; None if none is worth making."""
    chosen = [predictions[pick], *(each.step for each in candidates)]
    places = {each.place: each for each in (*predictions, *chosen)}

    def find(place: StepPlace) -> PlacedStep | None:
        return places.get(place) or predict(place)

    known = combine(chosen, runs, predict=find, start_up=start_up, shares=shares)
    found = []
    for candidate, expected in zip(candidates, known.after[1:], strict=True):
        evidence = _imagine(candidate, expected)
        then = combine(chosen[:1], [*runs, evidence], predict=find, start_up=start_up, shares=shares)
        found.append(_build(candidate, expected, known, then, longest_s))
    worth = [each for each in found if each.narrowing < _WORTH]
    if not worth:
        return None
    least = min(each.narrowing for each in worth)
    return min(
        (each for each in worth if each.narrowing <= _AS_GOOD * least), key=lambda each: (each.cost, each.seconds)
    )


def list_candidates(
    predictions: Sequence[PlacedStep], *, pick: int, price: Callable[[int], float] = lambda _: 0.0
) -> list[RunCandidate]:
    """On each device the run with the fewest GPUs, and the pick itself; ``price`` is of the prediction of a number."""
    smallest: dict[str, int] = {}
    for number, each in enumerate(predictions):
        known = smallest.setdefault(each.place.device, number)
        if each.place.gpus < predictions[known].place.gpus:
            smallest[each.place.device] = number
    numbers = dict.fromkeys([*smallest.values(), pick])
    return [RunCandidate(step=predictions[each], price_per_hour=price(each)) for each in numbers]


def _imagine(candidate: RunCandidate, expected: Estimate) -> StepEvidence:
    """The run, as far from its prediction as one usually is."""
    place = candidate.step.place
    far = (expected.high / expected.value) ** _USUAL
    return StepEvidence(
        device=place.device,
        gpus=place.gpus,
        layout=place.layout,
        batch=place.batch,
        cores=place.cores,
        step_s=expected.value * far,
        source="imagined",
    )


def _build(
    candidate: RunCandidate,
    expected: Estimate,
    known: CombinedSteps,
    then: CombinedSteps,
    longest_s: float,
) -> NextRun:
    left_s = longest_s - known.start_up.value
    steps = min(MOST_STEPS, max(LEAST_STEPS, int(left_s / expected.value)))
    seconds = known.start_up.value + steps * expected.value
    before, after = known.after[0], then.after[0]
    ratio = before.value / after.value  # the interval that is expected is about the present value
    return NextRun(
        candidate=candidate,
        steps=steps,
        seconds=seconds,
        cost=candidate.price_per_hour * seconds / 3600,
        before=before,
        after=replace(after, value=before.value, low=after.low * ratio, high=after.high * ratio),
    )
