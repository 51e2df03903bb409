"""Where the evidence meets: candidates from the code, corrected by measured runs of the same training."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from foretell.advice.evidence_errors import SHARES, ErrorShares, StepPlace
from foretell.advice.evidence_next_run import (
    LEAST_STEPS,
    LONGEST_S,
    NextRun,
    RunCandidate,
    list_candidates,
    suggest_next_run,
)
from foretell.advice.evidence_recording import CPU
from foretell.advice.evidence_runs import name_device
from foretell.advice.evidence_steps import CombinedSteps, PlacedStep, StepEvidence, combine
from foretell.advice.training_candidates import Candidate, Obstacle
from foretell.advice.training_job import TrainingJob
from foretell.core.prices import price_per_hour
from foretell.core.run import Machine

_PART = 0.25  # of a job: a longer run is not a scaled-down one


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """What measured runs of a training are compared with: ``predict`` gives the step from code at any place."""

    predict: Callable[[StepPlace], PlacedStep | None] = lambda _: None
    shares: ErrorShares = SHARES
    batch: int = 1  # examples of the step on one GPU

    def place(self, candidates: Iterable[Candidate]) -> list[PlacedStep]:
        """The steps of candidates, as the code predicts them."""
        return [
            PlacedStep(place=place, estimate=each.choice.step.step, known=self._is_known(place))
            for each in candidates
            for place in [find_place(each)]
        ]

    def _is_known(self, place: StepPlace) -> bool:
        """Whether whole networks were measured on such a device."""
        cores = None if place.cores is None else 1
        alone = self.predict(StepPlace(device=place.device, batch=self.batch, cores=cores))
        return alone is None or alone.known


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A job and what was tried for it at each site, with what runs say of its start and of all steps."""

    job: TrainingJob
    found: tuple[tuple[Candidate | Obstacle, ...], ...]
    combined: CombinedSteps | None = None

    def find_number(self, candidate: Candidate) -> int:
        """The number of a candidate among the combined steps."""
        every = [each for site in self.found for each in site if isinstance(each, Candidate)]
        return next(number for number, each in enumerate(every) if each is candidate)


def correct_by_runs(
    job: TrainingJob,
    found: Sequence[Sequence[Candidate | Obstacle]],
    runs: Sequence[StepEvidence],
    comparison: RunComparison,
) -> Corrected:
    """All candidates at once: a run on one device says something of the others."""
    tried = tuple(tuple(each) for each in found)
    candidates = [each for site in tried for each in site if isinstance(each, Candidate)]
    if not runs or not candidates:
        return Corrected(job=job, found=tried)
    combined = combine(
        comparison.place(candidates),
        _choose_starts(runs, candidates),
        predict=comparison.predict,
        start_up=job.startup,
        shares=comparison.shares,
    )
    known = replace(job, startup=combined.start_up)
    steps = {id(each): after for each, after in zip(candidates, combined.after, strict=True)}
    corrected = tuple(
        tuple(each.with_step(steps[id(each)], known) if isinstance(each, Candidate) else each for each in site)
        for site in tried
    )
    return Corrected(job=known, found=corrected, combined=combined)


def _choose_starts(runs: Iterable[StepEvidence], candidates: Iterable[Candidate]) -> list[StepEvidence]:
    """The start of a run on a CPU says little of that of one on GPUs, and the reverse."""
    kinds = {each.gpus > 0 for each in candidates}
    return [each if kinds == {each.cores is None} else replace(each, start_up_s=None) for each in runs]


def find_place(candidate: Candidate) -> StepPlace:
    """Where a candidate's step runs; a CPU has the name of its model."""
    step, gpus = candidate.choice.step, max(1, candidate.gpus)
    device = step.topology.device.name
    return StepPlace(
        device=device if candidate.gpus else candidate.node.cpu_model or device,
        gpus=gpus,
        layout=str(step.layout) if gpus > 1 else "",
        batch=max(1, candidate.batch // gpus),
        cores=None if candidate.gpus else candidate.allocation.cores,
    )


def suggest_run(
    job: TrainingJob,
    offered: Sequence[Candidate],
    picked: Candidate,
    runs: Sequence[StepEvidence],
    comparison: RunComparison,
    machine: Machine,
) -> NextRun | None:
    """The run that would narrow the interval of the pick most: on nodes that are offered, or on this machine."""
    pick = next(number for number, each in enumerate(offered) if each is picked)
    placed = comparison.place(offered)

    def price(number: int) -> float:
        return float(price_per_hour(offered[number].node, offered[number].allocation))

    here = find_here(comparison, machine)
    return suggest_next_run(
        placed,
        _choose_starts(runs, offered),
        pick=pick,
        predict=comparison.predict,
        shares=comparison.shares,
        start_up=job.startup,
        candidates=[*([here] if here is not None else []), *list_candidates(placed, pick=pick, price=price)],
        longest_s=min(LONGEST_S, job.startup.value + _PART * picked.time.phases["steps"].value),
    )


def find_here(comparison: RunComparison, machine: Machine) -> RunCandidate | None:
    """The run that this machine could make; none where its step is not predicted, or takes too long."""
    step = comparison.predict(replace(name_machine(machine), batch=comparison.batch))
    if step is None or step.estimate.value * LEAST_STEPS > LONGEST_S:
        return None
    return RunCandidate(step=step, here=True)


def name_machine(machine: Machine) -> StepPlace:
    """A machine as predictions name it: its first GPU, or the cores that PyTorch uses by default."""
    if machine.gpu_model:
        return StepPlace(device=name_device(machine.gpu_model))
    cores = int(str(machine.extra.get("physical_cores") or machine.cores or 1))
    return StepPlace(device=machine.cpu_model or CPU, cores=cores)
