"""Where an app's runs are made: the runner, and who takes runs on there."""

import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from foretell.api.claims import BatchClaims, Claims, OwnClaims
from foretell.api.planning import UNASKED
from foretell.api.workspace import batch_directory, run_directory
from foretell.apps.command import build_launch
from foretell.entities.app import RUNNERS, App, Submission
from foretell.entities.run import RunSpec, State
from foretell.errors import Mistake, NotFoundError, SpecError
from foretell.probes.machine import build_owner
from foretell.runners import Runner
from foretell.runners.local import LocalRunner
from foretell.runners.slurm.collect import Task
from foretell.runners.slurm.runner import SlurmRunner
from foretell.stores import RunStore

AT_WORK: set[str] = set()  # tokens of the owners under way in this process


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where runs are made: as the app says, but for what is said here. ``jobs``: at most so many at once, locally."""

    runner: str | None = None
    submission: Submission = field(default_factory=Submission)
    jobs: int | None = None

    @contextmanager
    def open(
        self,
        app: App,
        store: RunStore,
        *,
        retry: frozenset[State] = frozenset(),
        only: Collection[str] | None = None,
    ) -> Iterator[tuple[Runner, Claims]]:
        """The runner, and claims on the app's runs; ``retry`` are states to make again beside those made unasked.

        What was handed to a scheduler before is followed; if there are ``only`` some runs to care for, no others.

        Raises:
            NotFoundError: if there is no runner or partition of that name.
            SpecError: if what is said of Slurm is for runs on this machine.
            RunnerError: if it cannot be used here.
        """
        name = self.runner or app.runner
        if name not in RUNNERS:
            raise NotFoundError("runner", name, known=RUNNERS)
        anew = retry | UNASKED
        if name == "local":
            check_local(self.submission)
            with _open_local(store, jobs=self.jobs, retry=anew) as (runner, claims):
                yield runner, claims
        else:
            submission = self.submission.over(app.submission)
            with open_slurm(app, store, submission, retry=anew, only=only) as (runner, claims):
                yield runner, claims


def check_local(submission: Submission, *, remedy: str = "--runner slurm, or runner: slurm in the app file") -> None:
    """Do not pass over what only Slurm understands: the runs would be made in another place than asked for.

    An account may be said: it may come from the environment, and here nobody pays.

    Raises:
        SpecError: if anything else is said.
    """
    said = {
        "partition": submission.partition,
        "cluster": submission.cluster,
        "option": ", ".join(submission.options),
        "sample": submission.sample,
    }
    mistakes = [
        Mistake(place=name, found=repr(value), expected=f"jobs of Slurm: {remedy}")
        for name, value in said.items()
        if value
    ]
    if mistakes:
        raise SpecError("runs on this machine", mistakes)


@contextmanager
def _open_local(store: RunStore, *, jobs: int | None, retry: frozenset[State]) -> Iterator[tuple[Runner, Claims]]:
    owner = replace(build_owner(), token=uuid.uuid4().hex)
    AT_WORK.add(owner.token)
    claims = OwnClaims(store, owner, retry=retry)
    try:
        with LocalRunner(jobs=jobs) as runner:
            try:
                yield runner, claims
            finally:
                running = runner.running
                runner.stop()
                claims.release(running)
    finally:
        AT_WORK.discard(owner.token)


@contextmanager
def open_slurm(
    app: App,
    store: RunStore,
    submission: Submission,
    *,
    retry: frozenset[State] = UNASKED,
    only: Collection[str] | None = None,
) -> Iterator[tuple[SlurmRunner, BatchClaims]]:
    """The runner, with what was handed to Slurm before already followed."""
    claims = BatchClaims(store, retry=retry)
    with SlurmRunner(submission, directory=batch_directory(app), ledger=claims) as runner:
        unfinished = {
            claim.spec.id: claim.spec
            for claim in store.claims(app.name)
            if claim.owner.is_batch and (only is None or claim.spec.id in only)
        }
        for batch in store.batches(app.name):
            if batch.submission.cluster != submission.cluster:
                continue
            claims.adopt(batch)
            tasks = {run_id: _build_task(app, unfinished[run_id]) for run_id in batch.run_ids if run_id in unfinished}
            if tasks:
                runner.adopt(batch, tasks)
        yield runner, claims


def _build_task(app: App, spec: RunSpec) -> Task:
    launch = build_launch(app, spec, run_directory=run_directory(app, spec.id))
    return Task(spec=spec, launch=launch, phases=app.phases)
