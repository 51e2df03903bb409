"""What was advised, in a file for each job script: so that the job's usage is known for that of this training."""

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from foretell.advice.advise_results import Advice, TrainingOffer
from foretell.advice.evidence_errors import StepPlace
from foretell.advice.evidence_identity import TrainingIdentity
from foretell.advice.measured_candidates import find_place
from foretell.advice.training_script import name_job
from foretell.core.errors import ForetellError
from foretell.core.prediction import Estimate
from foretell.core.private_files import keep_file, make_kept_folder
from foretell.core.render.phrases import clean_line
from foretell.core.run import Allocation
from foretell.core.serialization import from_record, to_record
from foretell.core.site import Site
from foretell.schedulers.slurm.job_array import clean_name

FOLDER = "advised"
_LONGEST_NAME = 40
_LARGEST = 2**20  # bytes of a file that is read


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedJob:
    """A job as it was advised. ``other_s`` of its time is expected for what is neither start-up nor steps."""

    name: str  # of the job, by which the scheduler finds it
    identity: TrainingIdentity
    place: StepPlace
    allocation: Allocation
    steps: int
    predicted: Estimate
    step: Estimate
    other_s: float = 0.0
    site: str = ""
    cluster: str | None = None  # that the scheduler must be asked for
    created_at: datetime | None = None


def build_advised_job(advice: Advice) -> AdvisedJob:
    """The pick, under a name that only jobs of this training on this allocation have."""
    offer, site = advice.picked, advice.best.site
    candidate = offer.candidate
    planned = AdvisedJob(
        name="",
        identity=advice.identity,
        place=find_place(candidate),
        allocation=replace(offer.allocation, walltime_s=None, memory_bytes=None),
        steps=candidate.time.steps,
        predicted=offer.offer.prediction.elapsed_s,
        step=candidate.step,
        other_s=_find_other_s(offer),
        site=site.name,
        cluster=_find_cluster(offer, site),
    )
    return replace(planned, name=_name(name_job(advice.job), planned), created_at=datetime.now(UTC))


def describe_advised(job: AdvisedJob) -> tuple[str, ...]:
    """Comments of the job script: the training, and how its usage comes back."""
    return (
        f"Training: {clean_line(job.identity.network)}, {clean_line(job.identity.precision)}",
        f"Foretell finds this job by its name, {job.name}: its usage corrects the next advice",
    )


def keep_advised_job(job: AdvisedJob, folder: Path) -> Path:
    """Write it into its file below a work folder.

    Raises:
        OutputError: It cannot be written.
    """
    path = make_kept_folder(folder, FOLDER) / f"{job.name}.json"
    keep_file(path, json.dumps(to_record(job), indent=1).encode())
    return path


def list_advised_jobs(identity: TrainingIdentity, folder: Path) -> list[AdvisedJob]:
    """What was advised for a training, the newest first; a file that is none is left out."""
    found = [_read(path) for path in (folder / FOLDER).glob("*.json") if path.is_file()]  # a pipe would never end
    own = [each for each in found if each is not None and each.created_at is not None and _is_same(each, identity)]
    return sorted(own, key=lambda each: each.created_at or datetime.min, reverse=True)


def _read(path: Path) -> AdvisedJob | None:
    try:
        with path.open("rb") as file:
            job = from_record(AdvisedJob, json.loads(file.read(_LARGEST)))
        usable = job.steps > 0 and clean_name(job.name) == job.name == path.stem
    except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, ForetellError):
        return None
    return job if usable else None


def _is_same(job: AdvisedJob, identity: TrainingIdentity) -> bool:
    own = {"network": job.identity.network, "precision": job.identity.precision}
    return job.identity.app == identity.app and identity.is_same(own)


def _find_other_s(offer: TrainingOffer) -> float:
    time, step = offer.candidate.time, offer.candidate.step
    return max(0.0, time.total.value - time.phases["start-up"].value - time.steps * step.value)


def _find_cluster(offer: TrainingOffer, site: Site) -> str | None:
    node = offer.candidate.node
    return (
        site.script["clusters"].replace("{cluster}", node.cluster or site.name) if "clusters" in site.script else None
    )


def _name(title: str, job: AdvisedJob) -> str:
    """Made of what the job is, so that the same advice has the same script."""
    what = [to_record(job.identity), to_record(job.place), to_record(job.allocation), job.steps, job.site]
    mark = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:8]
    return clean_name(f"{title[:_LONGEST_NAME]}-{mark}")
