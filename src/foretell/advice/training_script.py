"""The job script for an offered training."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from foretell.advice.advise_results import TrainingOffer
from foretell.advice.training_job import TrainingJob
from foretell.core.render.phrases import clean_line, count, render_interval
from foretell.core.run import Allocation
from foretell.core.site import Site
from foretell.core.units import render_bytes, render_duration, render_most_money
from foretell.schedulers.slurm.distributed_launch import render_launch
from foretell.schedulers.slurm.job_array import build_options, render_header

_SHELL = "shell"


def render_training_script(
    offer: TrainingOffer,
    job: TrainingJob,
    site: Site,
    *,
    account: str | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    remarks: Sequence[str] = (),
) -> str:
    """The script that starts the training on its allocation: for ``sbatch``, or for a shell without a scheduler.

    ``options`` are further options of ``sbatch``; they override those of the site and Foretell's. ``remarks`` are
    comments of one line each.

    Raises:
        RunnerError: An option or an argument cannot be written in such a script.
    """
    allocation, scheduled = offer.allocation, site.scheduler != _SHELL
    header = _render_header(job, allocation, site, account, options) if scheduled else ["#!/bin/bash"]
    comments = [*_describe(offer, job), *(f"# {clean_line(each)}" for each in remarks)]
    body = [
        *comments,
        "",
        "set -e",
        *_render_environment(allocation),
        "",
        *_question_command(job),
        *_name_batch(offer, job),
    ]
    return "\n".join([*header, "", *body, *render_launch(job.command, allocation, scheduled=scheduled)]) + "\n"


def _render_header(
    job: TrainingJob, allocation: Allocation, site: Site, account: str | None, options: Mapping[str, str]
) -> list[str]:
    node = site.find_node_type(allocation.node_type)
    cluster = node.cluster if node and node.cluster else site.name
    of_site = {name: value.replace("{cluster}", cluster) for name, value in site.script.items()}
    own = of_site.pop("account", None)  # the user may name another
    asked = build_options(name_job(job), allocation, account=account or own) | of_site | dict(options)
    return render_header({name: value for name, value in asked.items() if name not in site.refuses})


def name_job(job: TrainingJob) -> str:
    """The name of the model or script, without its folder and ending."""
    return job.name.rpartition("/")[2].partition(":")[0].removesuffix(".py") or "training"


def _render_environment(allocation: Allocation) -> Iterator[str]:
    if not allocation.gpus:  # on GPUs, torchrun gives each of several processes one thread
        yield f"export OMP_NUM_THREADS={allocation.cores}"


def _question_command(job: TrainingJob) -> Iterator[str]:
    """A comment above a command that was not given: the file of a model seldom trains it."""
    if job.command == build_command(job.name):
        yield "# CHECK THE NEXT LINE: no command was given. Does this one train the model?"
        yield "# If not, write the one that does, or name it: foretell advise --run 'COMMAND'"


def _name_batch(offer: TrainingOffer, job: TrainingJob) -> Iterator[str]:
    """A comment above a command that must divide its batch."""
    copies, batch = offer.candidate.choice.step.layout.copies, offer.candidate.batch
    if copies > 1 and not job.grows:
        yield f"# CHECK THE COMMAND: each copy of the model must be given a batch of {batch // copies:,}"


def _describe(offer: TrainingOffer, job: TrainingJob) -> Iterator[str]:
    """What was predicted, and what the training needs."""
    elapsed, candidate = offer.offer.prediction.elapsed_s, offer.candidate
    cost = offer.offer.cost_at_request
    at_most = f", at most {render_most_money(cost, offer.offer.currency)}" if cost else ""
    expected = (
        f"{render_duration(elapsed.value)} ({100 * elapsed.level:g} %: {render_interval(elapsed, render_duration)})"
    )
    yield f"# Predicted: {expected}{at_most}"
    if candidate.choice.needed is not None and offer.allocation.gpus:
        yield f"# Memory of each GPU: {render_bytes(candidate.choice.needed.value)}"
    yield f"# {describe_sharing(offer, job)}"


def describe_sharing(offer: TrainingOffer, job: TrainingJob) -> str:
    """The layout, and the batch of each copy of the model."""
    candidate = offer.candidate
    step, gpus = candidate.choice.step, max(1, candidate.gpus)
    copies = step.layout.copies
    each = max(1, candidate.batch // copies)
    shared = "copy" if copies == 1 else "copies"
    accumulated = f" in {count(step.micro_batches, 'part')}" if step.micro_batches > 1 else ""
    if gpus == 1:
        where = "one GPU" if candidate.gpus else count(offer.allocation.cores, "core")
        return f"A step has {candidate.batch:,} examples on {where}{accumulated}"
    return (
        f"A step has {candidate.batch:,} examples: {each} on each of {copies} {shared} of the model"
        f"{accumulated}, by {step.layout} on {gpus} GPUs"
    )


def build_command(source: str) -> tuple[str, ...]:
    """What a job of a model runs, where only its code is known: the file that the model is in."""
    path = source.partition(":")[0]
    return ("python", path if path.endswith(".py") else "train.py")
