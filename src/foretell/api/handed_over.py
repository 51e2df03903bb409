"""How an app's runs stand with the scheduler, and how to have them cancelled."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from foretell.api.claims import BatchClaims
from foretell.api.runners import list_own_batches, open_slurm
from foretell.api.workspace import StoreLike, directory_of, may_run, resolve_app, using_store
from foretell.entities.app import App, Submission
from foretell.entities.job import Batch, Standing
from foretell.entities.plan import CampaignStatus, Cancellation
from foretell.errors import SchedulerError
from foretell.runners.slurm.runner import SlurmRunner
from foretell.stores import RunStore


def status(app: App | str | Path, *, store: StoreLike = None) -> CampaignStatus:
    """How the app's runs stand; what has ended with the scheduler is stored on the way.

    Raises:
        NotFoundError: if there is no such app.
        SchedulerError: if runs are with Slurm, and it does not answer.
    """
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        collected = 0
        batches: list[Standing] = []
        own, notes = _list_batches(app, known, opened)
        for runner, claims in _open_each(known, opened, own, notes):
            collected += len(claims.keep(runner.look()))
            batches += runner.list_standings()
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
            collected += len(claims.keep(runner.look()))
            notes += runner.take_notes()
            batches = [standing.batch for standing in runner.list_standings()]
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
                opened = stack.enter_context(open_slurm(app, store, where, batches=batches, only_follows=True))
            except SchedulerError as exc:
                if cluster in (None, app.submission.cluster):
                    raise
                count = sum(batch.submission.cluster == cluster for batch in batches)
                notes.append(f"{count} batches on cluster {cluster!r} are left alone: {exc}")
            else:
                yield opened
