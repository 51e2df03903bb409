"""Plans runs, makes them, and keeps what came of them; interrupted in any way, it goes on where it was."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from foretell.api.claims import Claims
from foretell.api.planning import PILOTS, ROUND, UNASKED, plan_campaign, plan_round, recent_runs
from foretell.api.runners import AT_WORK, Where
from foretell.api.workspace import StoreLike, directory_of, resolve_app, run_directory, using_store
from foretell.apps.command import build_launch
from foretell.entities.app import App, Submission
from foretell.entities.plan import CampaignResult, Ending, Plan, Progress
from foretell.entities.run import RETRIABLE, Claim, Run, RunSpec, State
from foretell.errors import RunnerError, StoreError
from foretell.predictor.durations import estimate_durations, preload
from foretell.probes.machine import current_load, is_alive, kill_leftovers
from foretell.runners import Runner
from foretell.runners.local import read_finished
from foretell.stores import RunStore

_SILENT_AFTER = timedelta(minutes=2)  # a claim from another host without a sign of life for so long is given up
_HEARTBEAT_S = 15.0
_POLL_S = 0.25
_MOST_INTERRUPTIONS = 3  # of one run, before it is left for the next campaign
_STOPPED = "interrupted; run the same command again to go on"
_GOES_ON = "you left; the jobs go on: 'foretell status' shows them, and the same command collects them"
_BUSY = 0.3  # cores used by others above which measurements suffer


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
) -> Plan:
    """What :func:`generate` would do."""
    where = Where(runner=runner, submission=submission or Submission(), jobs=jobs)
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        with where.open(known, opened) as (place, _):
            if adaptive or until is not None:
                planned = plan_round(known, opened, place, budget_s=budget_s, retry_failed=retry_failed, until=until)
            else:
                planned = plan_campaign(known, opened, place, budget_s=budget_s, retry_failed=retry_failed)
            return planned if place.lasting else replace(planned, busy_cores=current_load())


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
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> CampaignResult:
    """Make the app's runs that are not stored yet, as far as the budget goes, cheap ones first.

    ``runner`` is ``local`` or ``slurm``, ``submission`` how runs are handed to Slurm, both where it is not as the app
    says. What was handed to Slurm goes on by itself, and is picked up by the next call; or, with ``wait``, by this one.

    An ``adaptive`` campaign makes those first that narrow the answers most for their time, and ends when that no longer
    pays; or when the mean half-width of their 90 % interval is at most ``until``, a share of the prediction.

    Raises:
        RunnerError: if a run can never fit there, its directory cannot be written, or Slurm refuses it.
        StoreError: if the store fails; what was measured stays in the run's directory, and the next call picks it up.
    """
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        opened.save_app(known)
        where = Where(runner=runner, submission=submission or Submission(), jobs=jobs)
        with where.open(known, opened, retry=RETRIABLE if retry_failed else frozenset()) as (place, claims):
            campaign = Campaign(
                app=known,
                store=opened,
                runner=place,
                claims=claims,
                on_progress=on_progress,
                adaptive=adaptive or until is not None,
                until=until,
                wait=wait or not place.lasting,
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


@dataclass(kw_only=True)
class Campaign:
    """One process's share of the work on an app; others may be at the same store."""

    app: App
    store: RunStore
    runner: Runner
    claims: Claims
    on_progress: Callable[[Progress], None] = lambda _: None
    adaptive: bool = False
    until: float | None = None
    wait: bool = True
    finished: list[Run] = field(default_factory=list)
    recovered: int = 0
    total: int = 0
    held_back: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    beat_at: float = 0.0
    started_at: float = field(default_factory=time.monotonic)
    round: Plan | None = None
    interruptions: Counter[str] = field(default_factory=Counter)
    taken_away: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def run(self, *, budget_s: float | None, retry_failed: bool) -> CampaignResult:
        stopped = ""
        try:
            self._prepare()
            self._recover()
            self._collect([], timeout_s=0.0)
            while (specs := self._next_round(budget_s, retry_failed=retry_failed)) or self._has_to_wait():
                before = len(self.finished)
                self.make(specs)
                retry_failed = retry_failed and self.adaptive  # once is enough
                if len(self.finished) == before or not self.wait:
                    break  # others are at what is left
        except KeyboardInterrupt:
            stopped = _GOES_ON if self.runner.lasting else _STOPPED
        return self._build_result(stopped)

    def _prepare(self) -> None:
        if not self.runner.lasting:
            preload()
        elif self.wait:  # beside what follows: nothing is measured here, and jobs need not wait for it
            threading.Thread(target=preload, daemon=True).start()

    def _has_to_wait(self) -> bool:
        return self.wait and bool(self.runner.running)

    def _build_result(self, stopped: str) -> CampaignResult:
        failures = tuple(run for run in self.finished if run.state is not State.COMPLETED)
        return CampaignResult(
            app=self.app.name,
            completed=len(self.finished) - len(failures),
            failed=len(failures),
            recovered=self.recovered,
            elapsed_s=time.monotonic() - self.started_at,
            failures=failures,
            stopped=stopped,
            ending=self.round.ending if self.round else None,
            width=self.round.width if self.round else None,
            submitted=len(self.runner.running) - self.runner.held_back,
            held_back=self.held_back + self.runner.held_back,
            jobs=self._list_jobs(),
            notes=tuple(self.notes),
        )

    def _list_jobs(self) -> tuple[str, ...]:
        batches = self.store.batches(self.app.name) if self.runner.lasting else ()
        return tuple(batch.job_id for batch in batches if batch.job_id)

    def _next_round(self, budget_s: float | None, *, retry_failed: bool) -> Sequence[RunSpec]:
        left_s = None if budget_s is None else budget_s - (time.monotonic() - self.started_at)
        if self.adaptive:
            return self._next_adaptive_round(left_s, retry_failed=retry_failed)
        if left_s is not None and left_s <= 0:
            return ()
        planned = plan_campaign(
            self.app, self.store, self.runner, budget_s=left_s, retry_failed=retry_failed, made=self._list_made()
        )
        self.total = len(self.finished) + len(self.runner.running) + len(planned.specs)
        if budget_s is None:
            return planned.specs
        return planned.specs[: PILOTS if planned.expected_s is None else ROUND]

    def _next_adaptive_round(self, left_s: float | None, *, retry_failed: bool) -> Sequence[RunSpec]:
        self.round = plan_round(
            self.app,
            self.store,
            self.runner,
            budget_s=left_s,
            retry_failed=retry_failed,
            until=self.until,
            made=self._list_made(),
        )
        if left_s is not None and left_s <= 0 and self.round.specs:
            self.round = replace(self.round, specs=(), ending=Ending.BUDGET)
        left = len(self.round.specs) + (self.round.undecided or 0)
        self.total = len(self.finished) + len(self.runner.running) + left
        return self.round.specs

    def _list_made(self) -> set[str]:
        return {run.id for run in self.finished} | self.taken_away

    def make(self, specs: Sequence[RunSpec]) -> None:
        """Make these runs, in this order, as room allows; without ``wait``, only hand over what there is room for."""
        waiting = sorted(specs, key=self.runner.fits)  # what can never run here first: its error costs nothing yet
        self._estimate(waiting)
        while waiting or self.runner.running:
            while waiting and (self.runner.has_room(waiting[0]) or not self.runner.fits(waiting[0])):
                self._start(waiting.pop(0))
            self.on_progress(self._survey(waiting))
            self._collect(waiting, timeout_s=_POLL_S if self.wait else 0.0)
            self._beat()
            if not self.wait:
                self.held_back = len(waiting)
                return

    def _start(self, spec: RunSpec) -> None:
        launch = build_launch(self.app, spec, run_directory=run_directory(self.app, spec.id))
        if not self.claims.take(spec):
            self.total -= 1  # somebody else has it
            return
        try:
            self.runner.start(spec, self.claims.mark(launch), phases=self.app.phases)
        except RunnerError:
            self.claims.release([spec])
            raise

    def _collect(self, waiting: list[RunSpec], *, timeout_s: float) -> None:
        """Keep runs that have ended; those nobody is to blame for wait again."""
        ended = self.runner.poll(timeout_s)
        kept = self._keep(ended) if ended else set()
        for run in ended:
            self._settle(run, waiting, kept=run.id in kept)
        notes = self.runner.take_notes()
        self.notes += notes
        if ended or notes:
            standing = self._survey(waiting)
            for run in (run for run in ended if run.id in kept):
                self.on_progress(replace(standing, last=run, note=_note_if_busy(run)))
            for note in notes:
                self.on_progress(replace(standing, note=note))

    def _settle(self, run: Run, waiting: list[RunSpec], *, kept: bool) -> None:
        if not kept:
            self.taken_away.add(run.id)  # somebody else has kept or cancelled it
            return
        self.interruptions[run.id] += run.state in UNASKED
        if run.state in UNASKED and self.interruptions[run.id] <= _MOST_INTERRUPTIONS:
            waiting.append(run.spec)
        else:
            self.finished.append(run)

    def _keep(self, runs: Sequence[Run]) -> set[str]:
        try:
            return self.claims.keep(runs)
        except StoreError as exc:
            where = run_directory(self.app, runs[-1].id)
            raise StoreError(
                f"{exc}\nThe run just finished is kept in {where}; the next 'foretell generate' picks it up."
            ) from exc

    def _beat(self) -> None:
        if time.monotonic() - self.beat_at > _HEARTBEAT_S:
            self.claims.beat()
            self.beat_at = time.monotonic()

    def _recover(self) -> None:
        """Runs that somebody took on and can no longer finish: kept if they ended, else free to be made again."""
        for claim in self.store.claims(self.app.name):
            if not _is_abandoned(claim):
                continue
            ended = read_finished(run_directory(self.app, claim.spec.id))
            kill_leftovers(claim.spec.id, owner=claim.owner)
            if ended is not None and ended.id == claim.spec.id and self.store.finish(ended, claim.owner):
                self.recovered += 1
            else:
                self.store.release(claim.spec.id, claim.owner)

    def _estimate(self, specs: Sequence[RunSpec]) -> None:
        seconds = estimate_durations(recent_runs(self.app, self.store), specs) if specs else None
        self.seconds = {} if seconds is None else dict(zip((spec.id for spec in specs), seconds, strict=True))

    def _survey(self, waiting: Sequence[RunSpec]) -> Progress:
        """How it stands; once for all runs that are then told of, of which there may be thousands."""
        done = sum(run.state is State.COMPLETED for run in self.finished)
        return Progress(
            total=self.total,
            done=done,
            failed=len(self.finished) - done,
            running=self.runner.running,
            left_s=None if self.adaptive else self._left_s(waiting),
            used_s=time.monotonic() - self.started_at,
            queued=self.runner.queued,
            width=self.round.width if self.round else None,
            width_after=self.round.width_after if self.round else None,
        )

    def _left_s(self, waiting: Sequence[RunSpec]) -> float | None:
        if len(self.finished) >= PILOTS and not self.seconds:
            self._estimate([*waiting, *self.runner.running])
        known = [self.seconds[spec.id] for spec in waiting if spec.id in self.seconds]
        return sum(known) / self.runner.width if known and len(known) == len(waiting) else None


def _is_abandoned(claim: Claim) -> bool:
    if claim.owner.is_batch:
        return False  # the scheduler has it
    alive = is_alive(claim.owner)
    if alive and claim.owner.pid == os.getpid():
        return claim.owner.token not in AT_WORK
    return alive is False or (alive is None and datetime.now(UTC) - claim.heartbeat_at > _SILENT_AFTER)


def _note_if_busy(run: Run | None) -> str:
    load = run.machine.load if run is not None else None
    return (
        f"others used {load:.1f} cores during a run: measured times may be too long"
        if load is not None and load > _BUSY
        else ""
    )
