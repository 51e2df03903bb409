"""Says what runs changed, and which run to make next."""

from collections.abc import Iterator

from foretell.advice.evidence_next_run import NextRun, measure_width
from foretell.advice.evidence_steps import CombinedSteps, StepEvidence
from foretell.core.prediction import Estimate
from foretell.core.render.phrases import count, render_interval
from foretell.core.units import describe_money, render_duration

_FAR = 9.0  # squared standard deviations
_SHOWN = 5  # runs
_MOVED = 1.02  # start-ups that differ less are the same


def describe_evidence(combined: CombinedSteps, pick: int) -> tuple[str, ...]:
    """Sentences: the runs, what they corrected, by how much the interval of the pick narrowed."""
    return tuple(_describe(combined, pick))


def _describe(combined: CombinedSteps, pick: int) -> Iterator[str]:
    for run in combined.used[-_SHOWN:]:
        yield f"{describe_run(run)}."
    for each in combined.unused[-_SHOWN:]:
        yield f"{describe_run(each.evidence)}; not used: {each.reason}."
    left = sum(max(0, len(each) - _SHOWN) for each in (combined.used, combined.unused))
    if left:
        yield f"And {count(left, 'other run')}."
    if not combined.used:
        return
    before, after = combined.before[pick].estimate, combined.after[pick]
    start_up, after_start = combined.start_up_before, combined.start_up
    change = 100 * (after.value / before.value - 1)
    yield (
        f"{count(len(combined.used), 'run')} corrected the step of {combined.before[pick].place} by "
        f"{change:+.0f} %, and its {100 * after.level:.0f} % interval from {_describe_width(before)} to "
        f"{_describe_width(after)}."
    )
    if max(start_up.high / after_start.high, after_start.low / start_up.low) > _MOVED:
        yield f"The start-up of a job: {_describe_start(start_up)} before, {_describe_start(after_start)} with them."
    if combined.surprise > _FAR:
        yield "The runs are far from what the code predicts: is it the same model, batch and precision?"


def describe_next_run(run: NextRun, currency: str) -> str:
    """What to run, what it takes, and what it is expected to change."""
    cost = f", {describe_money(run.cost, currency)} by the rate card" if run.cost >= 0.005 else ""
    where = "here" if run.candidate.here else f"on {run.place}"
    return (
        f"{count(run.steps, 'step')} {where} (about {render_duration(run.seconds)}{cost}) would narrow the interval of "
        f"the pick from {_describe_width(run.before)} to about {_describe_width(run.after)}."
    )


def describe_run(run: StepEvidence) -> str:
    """A measured run in a few words."""
    took = (
        f"{render_duration(run.step_s)} a step"
        if run.step_s is not None
        else f"{render_duration(run.elapsed_s or 0.0)} for {count(run.steps or 0, 'step')}"
    )
    source = f" ({run.source})" if run.source else ""
    return f"{run.place}: {took}{source}"


def _describe_start(estimate: Estimate) -> str:
    return f"{render_duration(estimate.value)} ({render_interval(estimate, render_duration)})"


def _describe_width(estimate: Estimate) -> str:
    return f"±{50 * measure_width(estimate):.0f} %"
