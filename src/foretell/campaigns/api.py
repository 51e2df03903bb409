"""Plans runs, and makes them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from foretell.apps.program_version import settle_version
from foretell.apps.workspace import StoreLike, directory_of, may_run, resolve_app, resolve_own_app, using_store
from foretell.campaigns.campaign import Campaign
from foretell.campaigns.campaign_plan import CampaignResult, CampaignStatus, Cancellation, Plan, Progress
from foretell.campaigns.claims import BatchClaims
from foretell.campaigns.placement import Where, list_own_batches, open_slurm
from foretell.campaigns.planning import plan_campaign, plan_round
from foretell.campaigns.waiting import Patience, find_load
from foretell.core.app import App, Submission
from foretell.core.batch import Batch, BatchStatus
from foretell.core.errors import RunnerError, SchedulerError
from foretell.core.run import RETRIABLE, Run, RunSpec
from foretell.schedulers.slurm.runner import SlurmRunner
from foretell.stores import RunStore


def plan(
    app: App | str | Path,
    *,
    store: StoreLike = None,
    budget_s: float | None = None,
    retry_failed: bool = False,
    jobs: int | None = None,
    adaptive: bool = False,
    until: float | None = None,
    runner: str | None = None,
    submission: Submission | None = None,
    keep_runs: bool = False,
    start_over: bool = False,
) -> Plan:
    """What :func:`generate` would do."""
    where = Where(runner=runner, submission=submission or Submission(), jobs=jobs)
    with using_store(store, directory_of(app), or_empty=True) as opened:
        known = settle_version(resolve_own_app(app, opened), opened, keep_runs=keep_runs, start_over=start_over)
        with where.open(known, opened) as (place, _):
            if adaptive or until is not None:
                planned = plan_round(known, opened, place, budget_s=budget_s, retry_failed=retry_failed, until=until)
            else:
                planned = plan_campaign(known, opened, place, budget_s=budget_s, retry_failed=retry_failed)
            is_measured_here = planned.specs and not place.survives_exit
            return replace(planned, busy_cores=find_load(place)) if is_measured_here else planned


def generate(
    app: App | str | Path,
    *,
    store: StoreLike = None,
    budget_s: float | None = None,
    retry_failed: bool = False,
    jobs: int | None = None,
    adaptive: bool = False,
    until: float | None = None,
    runner: str | None = None,
    submission: Submission | None = None,
    wait: bool = False,
    keep_runs: bool = False,
    start_over: bool = False,
    wait_quiet_s: float = 0.0,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> CampaignResult:
    """Make the app's runs that are not stored yet, as far as the budget goes, cheap ones first.

    ``runner`` is ``local`` or ``slurm``, ``submission`` how runs are handed to Slurm, both where it is not as the app
    says. What was handed to Slurm goes on by itself, and is picked up by the next call; or, with ``wait``, by this one,
    which then also waits for runs that other processes make.

    ``wait_quiet_s`` is the longest to wait until others leave this machine alone, before the first run on it. If it is
    not 0, runs that were measured while others used it are made once more in the end, if it is quiet then.

    An ``adaptive`` campaign makes those first that narrow the answers most for their time, and ends when that no longer
    pays; or when the mean half-width of their 90 % interval is at most ``until``, a share of the prediction.

    Where the app's command, set-up, environment or working directory have changed, ``keep_runs`` says that its stored
    runs still count, ``start_over`` that they do not: they stay stored, and are not used.

    Raises:
        ProgramChangedError: if it has changed, and neither is said.
        RunnerError: if a run can never fit there, its directory cannot be written, or Slurm refuses it.
        StoreError: if the store fails; what was measured stays in the run's directory, and the next call picks it up.
    """
    with using_store(store, directory_of(app), create=True) as opened:
        known = settle_version(resolve_own_app(app, opened), opened, keep_runs=keep_runs, start_over=start_over)
        opened.save_app(known)
        where = Where(runner=runner, submission=submission or Submission(), jobs=jobs)
        patience = Patience(opened)
        retry = RETRIABLE if retry_failed else frozenset()
        with where.open(known, patience.store, retry=retry) as (place, claims):
            campaign = Campaign(
                app=known,
                store=patience.store,
                patience=patience,
                runner=place,
                claims=claims,
                on_progress=on_progress,
                adaptive=adaptive or until is not None,
                until=until,
                wait=wait or not place.survives_exit,
                wait_for_others=wait,
                wait_quiet_s=0.0 if place.survives_exit else wait_quiet_s,
            )
            return campaign.run(budget_s=budget_s, retry_failed=retry_failed)


def make_run(app: App, spec: RunSpec, store: RunStore) -> Run:
    """Make one run here and store it.

    Raises:
        RunnerError: if it cannot run here, or somebody else is running it.
    """
    with Where(runner="local").open(app, store) as (runner, claims):
        campaign = Campaign(app=app, store=store, runner=runner, claims=claims)
        campaign.make([spec])
    if not campaign.finished:
        raise RunnerError(f"run {spec.id} of {app.name!r} is being made by somebody else; try again when it has ended")
    return campaign.finished[0]


def status(app: App | str | Path, *, store: StoreLike = None) -> CampaignStatus:
    """How the app's runs stand; what has ended with the scheduler is stored on the way.

    Raises:
        NotFoundError: if there is no such app.
        SchedulerError: if runs are with Slurm, and it does not answer.
    """
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        collected = 0
        batches: list[BatchStatus] = []
        own, notes = _list_batches(app, known, opened)
        for runner, claims in _open_each(known, opened, own, notes):
            collected += len(claims.keep(runner.collect()))
            batches += runner.list_statuses()
            notes += runner.take_notes()
        return CampaignStatus(
            app=known.name,
            counts=opened.count_runs(known.name, version=known.version),
            batches=tuple(batches),
            collected=collected,
            notes=tuple(notes),
        )


def cancel(app: App | str | Path, *, store: StoreLike = None) -> Cancellation:
    """Cancel what the scheduler has of the app's runs; what had ended is stored, the rest can be made again.

    Raises:
        NotFoundError: if there is no such app.
        SchedulerError: if Slurm does not answer; then nothing has changed.
    """
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        collected = released = 0
        jobs: list[str] = []
        own, notes = _list_batches(app, known, opened)
        for runner, claims in _open_each(known, opened, own, notes):
            collected += len(claims.keep(runner.collect()))
            notes += runner.take_notes()
            batches = [standing.batch for standing in runner.list_statuses()]
            runner.stop()
            jobs += [batch.job_id for batch in batches if batch.job_id]
            released += sum(opened.release_all(batch.owner) for batch in batches)
        return Cancellation(
            app=known.name, jobs=tuple(jobs), cancelled=released, collected=collected, notes=tuple(notes)
        )


def _list_batches(app: App | str | Path, known: App, store: RunStore) -> tuple[list[Batch], list[str]]:
    """Batches to follow, and notes on those that are left alone."""
    if may_run(app, store):
        return list_own_batches(known, store)
    count = len(store.batches(known.name))
    reason = "others can write this store: name the app file to store what ended, or to cancel"
    return [], [f"{count} batches of {known.name!r} are left alone: {reason}"] if count else []


def _open_each(
    app: App, store: RunStore, batches: list[Batch], notes: list[str]
) -> Iterator[tuple[SlurmRunner, BatchClaims]]:
    """A runner for each cluster that has runs of the app, with these followed; it submits nothing.

    A cluster that only the store names may be none: then a note says so, and the others are followed.
    """
    for cluster in dict.fromkeys(batch.submission.cluster for batch in batches):
        where = Submission(partition=app.submission.partition, cluster=cluster)
        with ExitStack() as stack:
            try:
                opened = stack.enter_context(open_slurm(app, store, where, batches=batches, read_only=True))
            except SchedulerError as exc:
                if cluster in (None, app.submission.cluster):
                    raise
                count = sum(batch.submission.cluster == cluster for batch in batches)
                notes.append(f"{count} batches on cluster {cluster!r} are left alone: {exc}")
            else:
                yield opened
