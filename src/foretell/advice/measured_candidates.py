"""Where the evidence meets: candidates from the code, corrected by measured runs of the same training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretell.advice.evidence import CombinedSteps, PlacedStep, StepEvidence, combine
from foretell.advice.evidence_errors import StepPlace
from foretell.advice.training_candidates import Candidate, Obstacle
from foretell.advice.training_job import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A job and what was tried for it at each site, with what runs say of its start and of all steps."""

    job: TrainingJob
    found: tuple[tuple[Candidate | Obstacle, ...], ...]
    combined: CombinedSteps | None = None


def correct_by_runs(
    job: TrainingJob, found: Sequence[Sequence[Candidate | Obstacle]], runs: Sequence[StepEvidence]
) -> Corrected:
    """All candidates at once: a run on one device says something of the others."""
    tried = tuple(tuple(each) for each in found)
    if not runs:
        return Corrected(job=job, found=tried)
    candidates = [each for site in tried for each in site if isinstance(each, Candidate)]
    placed = [PlacedStep(place=find_place(each), estimate=each.step) for each in candidates]
    combined = combine(placed, runs, start_up=job.startup)
    known = replace(job, startup=combined.start_up)
    steps = {id(each): after for each, after in zip(candidates, combined.after, strict=True)}
    corrected = tuple(
        tuple(each.with_step(steps[id(each)], known) if isinstance(each, Candidate) else each for each in site)
        for site in tried
    )
    return Corrected(job=known, found=corrected, combined=combined)


def find_place(candidate: Candidate) -> StepPlace:
    """Where a candidate's step runs."""
    step = candidate.choice.step
    gpus = max(1, candidate.gpus)
    layout = str(step.layout) if gpus > 1 else ""
    return StepPlace(device=step.topology.device.name, gpus=gpus, layout=layout, batch=max(1, candidate.batch // gpus))
