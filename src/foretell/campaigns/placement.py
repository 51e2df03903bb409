"""Where an app's runs are made: the runner, and who takes runs on there."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from foretell.apps.command import build_followed_launch, build_launch
from foretell.apps.workspace import batch_directory, make_work_folder, run_directory
from foretell.campaigns.claims import BatchClaims, Claims, OwnClaims
from foretell.campaigns.planning import UNASKED, list_specs
from foretell.core.app import RUNNERS, App, Submission
from foretell.core.batch import Batch
from foretell.core.errors import Mistake, NotFoundError, SpecError
from foretell.core.run import RunSpec, State
from foretell.measure.machine import build_owner
from foretell.schedulers import Runner
from foretell.schedulers.local import LocalRunner
from foretell.schedulers.slurm.batch_journal import ForeignBatchError, check_batch
from foretell.schedulers.slurm.finished_runs import Task
from foretell.schedulers.slurm.runner import SlurmRunner
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
        only: Mapping[str, RunSpec] | None = None,
    ) -> Iterator[tuple[Runner, Claims]]:
        """The runner, and claims on the app's runs; ``retry`` are states to make again beside those made unasked.

        What was handed to a scheduler before is followed; if there are ``only`` some runs to care for, no others.

        Raises:
            NotFoundError: if there is no runner or partition of that name.
            SpecError: if what is said of Slurm is for runs on this machine.
            RunnerError: if it cannot be used here, or there is no place for what runs leave.
        """
        make_work_folder(app)
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
            batches, notes = list_own_batches(app, store)
            with open_slurm(app, store, submission, batches=batches, retry=anew, only=only) as (runner, claims):
                for note in notes:
                    runner.note(note)
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
    batches: Iterable[Batch],
    retry: frozenset[State] = UNASKED,
    only: Mapping[str, RunSpec] | None = None,
    read_only: bool = False,
) -> Iterator[tuple[SlurmRunner, BatchClaims]]:
    """The runner, with those of the ``batches`` followed that its cluster has; if runs are named, ``only`` these."""
    claims = BatchClaims(store, retry=retry)
    with SlurmRunner(submission, directory=batch_directory(app), journal=claims, read_only=read_only) as runner:
        _adopt(app, store, runner, claims, batches=batches, only=only)
        yield runner, claims


def adopt_batches(app: App, store: RunStore, runner: Runner, claims: Claims) -> None:
    """Follow what others have handed to the scheduler since, where there is one."""
    if isinstance(runner, SlurmRunner) and isinstance(claims, BatchClaims):
        _adopt(app, store, runner, claims, batches=list_own_batches(app, store)[0])


def _adopt(
    app: App,
    store: RunStore,
    runner: SlurmRunner,
    claims: BatchClaims,
    *,
    batches: Iterable[Batch],
    only: Mapping[str, RunSpec] | None = None,
) -> None:
    unfinished = {
        claim.spec.id: claim.spec for claim in store.claims(app.name) if claim.owner.is_batch and not claims.owns(claim)
    }
    for batch in batches:
        if batch.submission.cluster == runner.cluster:
            claims.adopt(batch)
            _follow(batch, app, runner, unfinished, only)


def list_own_batches(app: App, store: RunStore) -> tuple[list[Batch], list[str]]:
    """The app's batches that this user submitted from this app file, and why others in the store are left alone."""
    own: list[Batch] = []
    notes: list[str] = []
    for batch in store.batches(app.name):
        try:
            own.append(check_batch(batch, app=app.name, directory=batch_directory(app)))
        except ForeignBatchError as exc:
            notes.append(str(exc))
    return own, notes


def _follow(
    batch: Batch,
    app: App,
    runner: SlurmRunner,
    unfinished: Mapping[str, RunSpec],
    only: Mapping[str, RunSpec] | None,
) -> None:
    specs = {run_id: unfinished[run_id] for run_id in batch.run_ids if run_id in unfinished}
    may_submit = False
    if not batch.job_id:  # it may have to be submitted again: then by what the app file or the user asks for
        if only is not None and not only.keys() >= specs.keys():
            return  # 'foretell generate' finds out what became of it
        asked = list_specs(app, runner) if only is None else only
        may_submit = asked.keys() >= specs.keys()
        specs = {run_id: asked.get(run_id, spec) for run_id, spec in specs.items()}
    elif only is not None:
        specs = {run_id: spec for run_id, spec in specs.items() if run_id in only}
    if specs:
        tasks = {run_id: _build_task(app, spec, may_submit=may_submit) for run_id, spec in specs.items()}
        runner.adopt(batch, tasks, may_submit=may_submit)


def _build_task(app: App, spec: RunSpec, *, may_submit: bool) -> Task:
    # What is only followed is not run: the store, or an older app file, may know other parameters.
    build = build_launch if may_submit else build_followed_launch
    return Task(spec=spec, launch=build(app, spec, run_directory=run_directory(app, spec.id)), phases=app.phases)
