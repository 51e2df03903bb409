"""The functions that plan, make, follow and cancel runs."""

import io
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from logging.handlers import RotatingFileHandler
from pathlib import Path

from foretell.apps.workspace import directory_of, make_log_file, may_run, resolve_app, resolve_own_app, resolve_version
from foretell.campaigns.campaign import Campaign
from foretell.campaigns.campaign_plan import CampaignResult, CampaignStatus, Cancellation, Plan, Progress
from foretell.campaigns.placement import BatchClaims, RunnerOptions, list_own_batches, open_slurm
from foretell.campaigns.planning import plan_campaign, plan_round
from foretell.campaigns.waiting import RetryingStore, find_load
from foretell.core.app import App, Submission
from foretell.core.batch import Batch, BatchStatus
from foretell.core.errors import OutputError, RunnerError, SchedulerError
from foretell.core.run import RETRIABLE, Run, RunSpec
from foretell.schedulers.slurm.runner import SlurmRunner
from foretell.stores import RunStore
from foretell.stores.opening import StoreLike, using_store

_LOG_BYTES = 1 << 20


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
    """Return what :func:`generate` would do."""
    where = RunnerOptions(runner=runner, submission=submission or Submission(), jobs=jobs)
    with using_store(store, directory_of(app), or_empty=True) as opened:
        known = resolve_version(resolve_own_app(app, opened), opened, keep_runs=keep_runs, start_over=start_over)
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
    """Make the app's runs that are not stored yet within the budget, the shortest first.

    ``runner`` (``local`` or ``slurm``) and ``submission`` (options of Slurm) override the app file. Runs submitted to
    Slurm continue after this call, and the next call collects them. With ``wait``, this call waits for them, and also
    for runs that other processes make.

    ``wait_quiet_s`` is the longest time to wait for an idle machine before the first local run. If it is not 0, runs
    that other processes disturbed are made once more at the end, if the machine is idle then.

    An ``adaptive`` campaign first makes runs that narrow prediction intervals most for their time, and ends when that
    no longer pays, or when the mean half-width of 90 % intervals is at most ``until``, a share of the prediction.

    If the app's command, setup, environment or working directory has changed, ``keep_runs`` keeps using its stored
    runs, and ``start_over`` sets them aside: they stay stored, but are not used.

    A log of the campaign is written to the work folder; ``log`` of the result is its path.

    Raises:
        ProgramChangedError: if the program has changed, and neither is given.
        RunnerError: if a run can never fit, its directory cannot be written, or Slurm refuses it.
        StoreError: if the store fails; results stay in the run's directory, and the next call stores them.
    """
    with using_store(store, directory_of(app), create=True) as opened:
        known = resolve_version(resolve_own_app(app, opened), opened, keep_runs=keep_runs, start_over=start_over)
        opened.save_app(known)
        where = RunnerOptions(runner=runner, submission=submission or Submission(), jobs=jobs)
        retrying = RetryingStore(opened)
        retry = RETRIABLE if retry_failed else frozenset()
        with _log_to_file(known) as log, where.open(known, retrying.store, retry=retry) as (place, claims):
            campaign = Campaign(
                app=known,
                store=retrying.store,
                retrying=retrying,
                runner=place,
                claims=claims,
                on_progress=on_progress,
                adaptive=adaptive or until is not None,
                until=until,
                wait=wait or not place.survives_exit,
                wait_for_others=wait,
                wait_quiet_s=0.0 if place.survives_exit else wait_quiet_s,
            )
            return replace(campaign.run(budget_s=budget_s, retry_failed=retry_failed), log=log)


class _PrivateLog(RotatingFileHandler):
    """A log file that only this user can read; older lines are in one file of the same size."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8", errors="backslashreplace")
        self.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))

    def _open(self) -> io.TextIOWrapper:
        def open_private(path: str, flags: int) -> int:
            return os.open(path, flags | os.O_NOFOLLOW, 0o600)

        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=open_private)


@contextmanager
def _log_to_file(app: App) -> Iterator[str]:
    """Also write messages of all levels to the app's log file; yield its path, empty if it cannot be written."""
    try:
        handler = _PrivateLog(make_log_file(app))
    except (OSError, OutputError):  # a campaign without a log is better than none
        yield ""
        return
    logger = logging.getLogger("foretell")
    level, shown = logger.level, logger.getEffectiveLevel()
    # Other handlers get the messages that they got before; without any, Python prints warnings by itself.
    others = [*logger.handlers, *logging.getLogger().handlers]
    added = [handler] if others or logging.lastResort is None else [handler, logging.lastResort]
    levels = [other.level for other in others]
    for other in others:
        other.setLevel(max(other.level, shown))
    for each in added:
        logger.addHandler(each)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler.baseFilename
    finally:
        logger.setLevel(level)
        for each in added:
            logger.removeHandler(each)
        for other, before in zip(others, levels, strict=True):
            other.setLevel(before)
        handler.close()


def make_run(app: App, spec: RunSpec, store: RunStore) -> Run:
    """Make one run here and store it.

    Raises:
        RunnerError: if it cannot run here, or another process makes it.
    """
    with RunnerOptions(runner="local").open(app, store) as (runner, claims):
        campaign = Campaign(app=app, store=store, runner=runner, claims=claims)
        campaign.make([spec])
    if not campaign.finished:
        raise RunnerError(f"another process makes run {spec.id} of {app.name!r}; try again when it has ended")
    return campaign.finished[0]


def status(app: App | str | Path, *, store: StoreLike = None) -> CampaignStatus:
    """Return the state of the app's runs; runs that have ended on the scheduler are stored.

    Raises:
        NotFoundError: if there is no such app.
        SchedulerError: if runs are submitted to Slurm, and it does not respond.
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
    """Cancel the app's submitted runs; those that had ended are stored, the others can be made again.

    Raises:
        NotFoundError: if there is no such app.
        SchedulerError: if Slurm does not respond; then nothing has changed.
    """
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        collected = released = 0
        jobs: list[str] = []
        own, notes = _list_batches(app, known, opened)
        for runner, claims in _open_each(known, opened, own, notes):
            collected += len(claims.keep(runner.collect()))
            notes += runner.take_notes()
            batches = [unfinished.batch for unfinished in runner.list_statuses()]
            runner.stop()
            jobs += [batch.job_id for batch in batches if batch.job_id]
            released += sum(opened.release_all(batch.owner) for batch in batches)
        return Cancellation(
            app=known.name, jobs=tuple(jobs), cancelled=released, collected=collected, notes=tuple(notes)
        )


def _list_batches(app: App | str | Path, known: App, store: RunStore) -> tuple[list[Batch], list[str]]:
    """Return batches to track, and messages about those that are ignored."""
    if may_run(app, store):
        return list_own_batches(known, store)
    count = len(store.batches(known.name))
    reason = "other users can write this store; name the app file to collect or cancel runs"
    return [], [f"{count} batches of {known.name!r} are ignored: {reason}"] if count else []


def _open_each(
    app: App, store: RunStore, batches: list[Batch], notes: list[str]
) -> Iterator[tuple[SlurmRunner, BatchClaims]]:
    """Yield a read-only runner for each cluster with runs of the app, which tracks them.

    A cluster that only the store names may not exist: then a message is added, and the others are tracked.
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
                notes.append(f"{count} batches on cluster {cluster!r} are ignored: {exc}")
            else:
                yield opened
