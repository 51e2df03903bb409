"""The measured runs that an advice starts from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foretell.advice.ended_jobs import collect_ended_jobs, collect_job
from foretell.advice.evidence_identity import TrainingIdentity
from foretell.advice.evidence_runs import ProfileSetting, find_evidence
from foretell.advice.evidence_steps import StepEvidence
from foretell.advice.training_job import TrainingJob
from foretell.core.warning import PredictionWarning
from foretell.stores.opening import StoreLike


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRuns:
    """Runs of a training, and what is wrong with others."""

    runs: tuple[StepEvidence, ...] = ()
    warnings: tuple[PredictionWarning, ...] = ()


def find_known_runs(
    identity: TrainingIdentity,
    job: TrainingJob,
    *,
    runs: tuple[StepEvidence, ...] | None,
    jobs: Sequence[str] = (),
    command: Sequence[str] = (),
    store: StoreLike = None,
    folder: Path,
    profiled: ProfileSetting | None = None,
) -> KnownRuns:
    """The runs that are given; else those in the store, after what advised jobs have used was added to it.

    Raises:
        NotFoundError: One of the ``jobs`` is unknown, has not ended, or is none of this training.
        SchedulerError: They cannot be read.
        StoreError: The store cannot be read.
    """
    if runs is not None:
        return KnownRuns(runs=runs)
    warnings = [each for one in jobs for each in collect_job(one, identity, folder=folder, store=store)]
    warnings += collect_ended_jobs(identity, folder=folder, store=store)

    def count_steps(epochs: float, batch: int) -> int | None:
        return None if job.samples is None else max(1, math.ceil(epochs * math.ceil(job.samples / batch)))

    found = find_evidence(identity, command=command, count_steps=count_steps, profiled=profiled, store=store)
    return KnownRuns(runs=found, warnings=tuple(warnings))
