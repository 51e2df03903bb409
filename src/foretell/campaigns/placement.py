"""Opens the runner of an app and claims runs, so that no two processes make the same one."""

import abc
import os
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from foretell.apps.command import build_followed_launch, build_launch
from foretell.apps.workspace import batch_directory, make_work_folder, run_directory
from foretell.campaigns.planning import AUTO_RETRIED, list_specs
from foretell.core.app import RUNNERS, App, Submission
from foretell.core.batch import Batch
from foretell.core.errors import Mistake, NotFoundError, SpecError, StoreError
from foretell.core.run import OWNER, Claim, Launch, Owner, Run, RunSpec, State
from foretell.measure.machine import build_owner, is_alive
from foretell.schedulers import Runner
from foretell.schedulers.local import LocalRunner
from foretell.schedulers.slurm.batch_journal import BatchJournal, ForeignBatchError, check_batch, is_job_id
from foretell.schedulers.slurm.finished_runs import Task
from foretell.schedulers.slurm.runner import SlurmRunner
from foretell.stores import RunStore


class Claims(abc.ABC):
    """Claims runs and stores their results; ``retry`` are final states of runs that may be made again.

    ``lost`` are the ids of runs that another process had claimed first.
    """

    def __init__(self, store: RunStore, *, retry: frozenset[State]) -> None:
        self.lost: set[str] = set()
        self._store = store
        self._retry = retry

    @abc.abstractmethod
    def take(self, spec: RunSpec, *, replace_states: frozenset[State] = frozenset()) -> bool:
        """Claim a run, also one that is stored in these states; return whether that succeeded."""

    @abc.abstractmethod
    def owns(self, claim: Claim) -> bool:
        """Return whether a claim in the store is one of these."""

    @abc.abstractmethod
    def keep(self, runs: Collection[Run]) -> set[str]:
        """Store runs that ended; return the ids of those that were still claimed here."""

    @abc.abstractmethod
    def release(self, specs: Iterable[RunSpec]) -> None:
        """Release runs for other processes."""

    @abc.abstractmethod
    def beat(self) -> None:
        """Record that this process is alive."""

    @abc.abstractmethod
    def mark(self, launch: Launch) -> Launch:
        """Return the launch with a mark by which leftover processes are recognized."""


class OwnClaims(Claims):
    """Claims of a process, which end with it."""

    def __init__(self, store: RunStore, owner: Owner, *, retry: frozenset[State]) -> None:
        super().__init__(store, retry=retry)
        self._owner = owner

    def take(self, spec: RunSpec, *, replace_states: frozenset[State] = frozenset()) -> bool:
        is_ours = self._store.claim(spec, self._owner, retry=self._retry | replace_states)
        if not is_ours:
            self.lost.add(spec.id)
        return is_ours

    def owns(self, claim: Claim) -> bool:
        return claim.owner.token == self._owner.token

    def keep(self, runs: Collection[Run]) -> set[str]:
        return self._store.finish_all(runs, self._owner)

    def release(self, specs: Iterable[RunSpec]) -> None:
        with suppress(StoreError):  # the original error matters more, and claims of an ended process expire
            for spec in specs:
                self._store.release(spec.id, self._owner)

    def beat(self) -> None:
        self._store.heartbeat(self._owner)

    def mark(self, launch: Launch) -> Launch:
        return replace(launch, environment={**launch.environment, OWNER: self._owner.token})


class BatchClaims(Claims, BatchJournal):
    """Claims of batches: made when a batch is recorded, they last until its runs have ended."""

    def __init__(self, store: RunStore, *, retry: frozenset[State]) -> None:
        super().__init__(store, retry=retry)
        self._owners: dict[str, Owner] = {}

    def take(self, spec: RunSpec, *, replace_states: frozenset[State] = frozenset()) -> bool:
        return True  # it is claimed when its batch is recorded

    def owns(self, claim: Claim) -> bool:
        owner = self._owners.get(claim.spec.id)
        return owner is not None and owner.token == claim.owner.token

    def keep(self, runs: Collection[Run]) -> set[str]:
        by_owner: dict[Owner, list[Run]] = defaultdict(list)
        for run in runs:
            by_owner[self._owners[run.id]].append(run)
        kept = (self._store.finish_all(ended, owner) for owner, ended in by_owner.items())
        return set().union(*kept)

    def release(self, specs: Iterable[RunSpec]) -> None:
        pass  # submitted runs stay with the scheduler

    def beat(self) -> None:
        pass  # the scheduler knows whether its jobs live

    def mark(self, launch: Launch) -> Launch:
        return launch

    def adopt(self, batch: Batch) -> None:
        """Take over the runs of a batch that was recorded before."""
        self._owners |= dict.fromkeys(batch.run_ids, batch.owner)

    def open(self, batch: Batch, specs: Sequence[RunSpec]) -> Batch:
        opened = self._store.open_batch(batch, specs, retry=self._retry)
        self.lost |= {spec.id for spec in specs}.difference(opened.run_ids)
        self.adopt(opened)
        return opened

    def find(self, batch: Batch) -> Batch | None:
        kept = next((kept for kept in self._store.batches(batch.app) if kept.id == batch.id), None)
        if kept is None:
            return None
        return replace(
            batch, job_id=kept.job_id if is_job_id(kept.job_id) else ""
        )  # the rest of the stored batch is not trusted

    def keep_job_id(self, batch: Batch, job_id: str) -> None:
        self._store.keep_job_id(batch.id, job_id)

    def forget(self, batch: Batch) -> None:
        self._store.release_all(batch.owner)


ACTIVE_OWNERS: set[str] = set()  # tokens of the campaigns that run in this process


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """How to make runs, where that differs from the app file. ``jobs`` limits parallel local runs."""

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
        """Open the runner and claims on the app's runs; ``retry`` are states to make again, besides interrupted ones.

        Batches that were submitted before are tracked; with ``only``, just those of these runs.

        Raises:
            NotFoundError: if there is no runner or partition of that name.
            SpecError: if options of Slurm are given for local runs.
            RunnerError: if the runner cannot be used here, or the work folder cannot be written.
        """
        make_work_folder(app)
        name = self.runner or app.runner
        if name not in RUNNERS:
            raise NotFoundError("runner", name, known=RUNNERS)
        retried = retry | AUTO_RETRIED
        if name == "local":
            check_local(self.submission)
            with _open_local(store, jobs=self.jobs, retry=retried) as (runner, claims):
                yield runner, claims
        else:
            submission = self.submission.over(app.submission)
            batches, notes = list_own_batches(app, store)
            with open_slurm(app, store, submission, batches=batches, retry=retried, only=only) as (runner, claims):
                for note in notes:
                    runner.note(note)
                yield runner, claims


def check_local(submission: Submission, *, remedy: str = "--runner slurm, or runner: slurm in the app file") -> None:
    """Refuse options of Slurm for local runs, which would ignore them.

    An account is allowed, because it may come from the environment.

    Raises:
        SpecError: if another option is given.
    """
    given = {
        "partition": submission.partition,
        "cluster": submission.cluster,
        "option": ", ".join(submission.options),
        "sample": submission.sample,
    }
    mistakes = [
        Mistake(place=name, found=repr(value), expected=f"jobs of Slurm: {remedy}")
        for name, value in given.items()
        if value
    ]
    if mistakes:
        raise SpecError("runs on this machine", mistakes)


@contextmanager
def _open_local(store: RunStore, *, jobs: int | None, retry: frozenset[State]) -> Iterator[tuple[Runner, Claims]]:
    owner = replace(build_owner(), token=uuid.uuid4().hex)
    ACTIVE_OWNERS.add(owner.token)
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
        ACTIVE_OWNERS.discard(owner.token)


@contextmanager
def open_slurm(
    app: App,
    store: RunStore,
    submission: Submission,
    *,
    batches: Iterable[Batch],
    retry: frozenset[State] = AUTO_RETRIED,
    only: Mapping[str, RunSpec] | None = None,
    read_only: bool = False,
) -> Iterator[tuple[SlurmRunner, BatchClaims]]:
    """Open the runner and track the ``batches`` of its cluster; with ``only``, just those of these runs."""
    claims = BatchClaims(store, retry=retry)
    with SlurmRunner(submission, directory=batch_directory(app), journal=claims, read_only=read_only) as runner:
        _adopt(app, store, runner, claims, batches=batches, only=only)
        yield runner, claims


def adopt_batches(app: App, store: RunStore, runner: Runner, claims: Claims) -> None:
    """Track batches that other processes have submitted since, if there is a scheduler."""
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
            _track(batch, app, runner, unfinished, only)


def list_own_batches(app: App, store: RunStore) -> tuple[list[Batch], list[str]]:
    """Return the app's batches that this user submitted from this app file, and why others are ignored."""
    own: list[Batch] = []
    notes: list[str] = []
    for batch in store.batches(app.name):
        try:
            own.append(check_batch(batch, app=app.name, directory=batch_directory(app)))
        except ForeignBatchError as exc:
            notes.append(str(exc))
    return own, notes


def _track(
    batch: Batch,
    app: App,
    runner: SlurmRunner,
    unfinished: Mapping[str, RunSpec],
    only: Mapping[str, RunSpec] | None,
) -> None:
    specs = {run_id: unfinished[run_id] for run_id in batch.run_ids if run_id in unfinished}
    may_submit = False
    if not batch.job_id:  # it may have to be submitted again, then with the specifications of the app file or user
        if only is not None and not only.keys() >= specs.keys():
            return  # 'foretell generate' finds its job
        asked = list_specs(app, runner) if only is None else only
        may_submit = asked.keys() >= specs.keys()
        specs = {run_id: asked.get(run_id, spec) for run_id, spec in specs.items()}
    elif only is not None:
        specs = {run_id: spec for run_id, spec in specs.items() if run_id in only}
    if specs:
        tasks = {run_id: _build_task(app, spec, may_submit=may_submit) for run_id, spec in specs.items()}
        runner.adopt(batch, tasks, may_submit=may_submit)


def _build_task(app: App, spec: RunSpec, *, may_submit: bool) -> Task:
    # A tracked run is not started here, so the store or an older app file may have other parameters.
    build = build_launch if may_submit else build_followed_launch
    return Task(spec=spec, launch=build(app, spec, run_directory=run_directory(app, spec.id)), phases=app.phases)


_SILENT_AFTER = timedelta(minutes=2)  # a claim from another host without a sign of life for so long is given up


def is_abandoned(claim: Claim) -> bool:
    """Return whether the owner of a claim is dead by what the store knows; a lock decides for local processes."""
    if claim.owner.is_batch:
        return False  # it belongs to the scheduler
    alive = is_alive(claim.owner)
    if alive and claim.owner.pid == os.getpid():
        return claim.owner.token not in ACTIVE_OWNERS
    return alive is False or (alive is None and datetime.now(UTC) - claim.heartbeat_at > _SILENT_AFTER)
