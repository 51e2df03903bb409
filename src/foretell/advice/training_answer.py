"""What was tried for a training, answered with the runs that are known of it, and with one more."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from foretell.advice.advise_results import Advice, SiteAdvice
from foretell.advice.evidence_errors import choose_shares
from foretell.advice.evidence_identity import TrainingIdentity, identify
from foretell.advice.evidence_local_run import MadeRun
from foretell.advice.evidence_next_run import NextRun
from foretell.advice.evidence_places import build_place_predictor
from foretell.advice.evidence_steps import StepEvidence
from foretell.advice.measured_candidates import (
    Corrected,
    RunComparison,
    correct_by_runs,
    find_place,
    name_machine,
    suggest_run,
)
from foretell.advice.nearest_changes import build_error
from foretell.advice.policy import Policy
from foretell.advice.training_candidates import Candidate, Obstacle
from foretell.advice.training_job import TrainingJob
from foretell.advice.training_offers import build_site_advice, compare_sites
from foretell.advice.training_plan import RecordedTraining, find_plan_warnings
from foretell.advice.training_script import build_command
from foretell.core.errors import ForetellError, Mistake, SpecError
from foretell.core.run import Machine
from foretell.core.site import Site
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import Workload
from foretell.measure.machine import detect_machine

# Makes a run of a training on this machine: the suggested one, if that is one, or a usual one.
RunMaker = Callable[[TrainingIdentity, TrainingJob, NextRun | None], MadeRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedTraining:
    """A training and what was tried for it at each site, from its code."""

    job: TrainingJob
    recorded: RecordedTraining
    sites: Sequence[Site]
    found: Sequence[Sequence[Candidate | Obstacle]]
    policy: Policy
    comparison: RunComparison
    risk: float
    level: float
    machine: Machine = field(default_factory=detect_machine)
    command_known: bool = True

    @property
    def identity(self) -> TrainingIdentity:
        """By which its runs are known."""
        return identify(self.recorded.workload, batches=self.recorded.in_step)

    def answer(self, runs: Sequence[StepEvidence]) -> Advice:
        """The advice, with these measured runs.

        Raises:
            InfeasibleError: Nothing works, or nothing within the limits.
        """
        corrected = correct_by_runs(self.job, self.found, runs, self.comparison)
        found = [
            build_site_advice(site, each, corrected.job, self.policy, risk=self.risk)
            for site, each in zip(self.sites, corrected.found, strict=True)
        ]
        if not any(each.picked for each in found):
            raise build_error(found)
        advice = Advice(
            job=corrected.job,
            policy=self.policy,
            sites=tuple(compare_sites(found, self.policy)),
            risk=self.risk,
            level=self.level,
            identity=self.identity,
            combined=corrected.combined,
            warnings=tuple(self._list_warnings(corrected.job, found)),
        )
        return self._add_next_run(advice, corrected, runs)

    def _add_next_run(self, advice: Advice, corrected: Corrected, runs: Sequence[StepEvidence]) -> Advice:
        picked = advice.picked.candidate
        offered = [offer.candidate for offer in advice.best.offers]
        return replace(
            advice,
            number=corrected.find_number(picked),
            next_run=suggest_run(self.job, offered, picked, runs, self.comparison, self.machine),
        )

    def answer_again(self, advice: Advice, runs: Sequence[StepEvidence], make: RunMaker) -> Advice:
        """The advice after one more run, which is made here; with the first one. A run that fails changes nothing.

        Raises:
            SpecError: What runs here says nothing of the training elsewhere.
        """
        self._check_here()
        try:
            made = make(self.identity, self.job, advice.next_run)
        except ForetellError as exc:
            failed = build_warning(
                "run-failed", f"The run that was made here failed, and nothing is known of it: {exc}"
            )
            return replace(advice, warnings=(failed, *advice.warnings))
        return replace(self.answer([*runs, made.evidence]), made=made, before=advice)

    def _check_here(self) -> None:
        """Refuse a run that could not be compared with what the code predicts."""
        here = name_machine(self.machine)
        every = (each for site in self.found for each in site if isinstance(each, Candidate))
        if self.comparison.predict(here) is None and here.device not in {find_place(each).device for each in every}:
            expected = "a machine whose steps can be predicted; 'foretell device learn' makes a model of this one"
            raise SpecError("options", [Mistake(place="--then-run", found=here.device, expected=expected)])

    def _list_warnings(self, job: TrainingJob, found: Sequence[SiteAdvice]) -> list[PredictionWarning]:
        most = max((offer.candidate.gpus for site in found for offer in site.offers), default=0)
        return [
            *self.recorded.warnings,
            *find_plan_warnings(job, self.recorded, most_gpus=most),
            *compare_currencies(found),
            *([] if self.command_known else [_warn_of_command(job)]),
        ]


def build_comparison(
    job: TrainingJob,
    recorded: RecordedTraining,
    *,
    read: Callable[[int], Workload | None],
    learned: Path,
    level: float,
) -> RunComparison:
    """What runs of a recorded training are compared with; ``read`` gives its step with another batch."""
    batch = recorded.workload.batch * recorded.in_step
    return RunComparison(
        predict=build_place_predictor(recorded.workload, batch=batch, learned=learned, level=level, read=read),
        shares=choose_shares(convolutions=any("conv" in each.kind for each in recorded.workload.operators)),
        batch=job.count_batch(1),
    )


def compare_currencies(found: Sequence[SiteAdvice]) -> list[PredictionWarning]:
    """A warning where the costs of sites are in several currencies."""
    currencies = sorted({each.site.currency for each in found})
    if len(currencies) == 1:
        return []
    named = f"{', '.join(currencies[:-1])} and {currencies[-1]}"
    text = (
        f"Costs are in {named}, which cannot be compared: --max-cost is a limit in each, and sites "
        f"in {found[0].site.currency} come first."
    )
    return [build_warning("other-currency", text, currencies=currencies)]


def _warn_of_command(job: TrainingJob) -> PredictionWarning:
    command = " ".join(build_command(job.name))
    text = (
        f"The job runs '{command}', which may not train the model: name the command that does by --run 'COMMAND', or "
        "ask for advice on the script: foretell advise -- COMMAND."
    )
    return build_warning("command-unknown", text, command=command)
