"""Plans runs, makes them, and keeps what came of them; interrupted in any way, it goes on where it was."""

import os
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.api.workspace import FOLDER, StoreLike, directory_of, resolve_app, using_store
from foretell.apps.command import build_launch
from foretell.apps.sweep import build_sweep, pick_within
from foretell.entities.app import App, Scale
from foretell.entities.plan import CampaignResult, Ending, Plan, Progress
from foretell.entities.run import RETRIABLE, Claim, Owner, Run, RunSpec, State
from foretell.errors import RunnerError, StoreError
from foretell.predictor.adaptive import list_questions, propose
from foretell.predictor.durations import estimate_durations
from foretell.probes.machine import OWNER, build_owner, current_load, is_alive, kill_leftovers
from foretell.runners import Runner
from foretell.runners.local import LocalRunner, read_finished
from foretell.stores import RunStore

_SILENT_AFTER = timedelta(minutes=2)  # a claim from another host without a sign of life for so long is given up
_HEARTBEAT_S = 15.0
_POLL_S = 0.25
_PILOTS = 4  # runs made before anything is known, to plan the rest by
_ROUND = 8  # runs made under a budget before planning again by what they took
_RECENT = 300  # runs that durations are guessed from
_AT_WORK: set[str] = set()  # tokens of the campaigns under way in this process
_BUSY = 0.3  # cores used by others above which measurements suffer
_FINAL = tuple(state for state in State if state.final)


def plan(
    app: App | str | Path,
    *,
    store: StoreLike = None,
    budget_s: float | None = None,
    retry_failed: bool = False,
    jobs: int | None = None,
    adaptive: bool = False,
    until: float | None = None,
) -> Plan:
    """What :func:`generate` would do."""
    with using_store(store, directory_of(app)) as opened, _open_runner(jobs) as runner:
        known = resolve_app(app, opened)
        if adaptive or until is not None:
            planned = _plan_adaptive(known, opened, runner, budget_s=budget_s, retry_failed=retry_failed, until=until)
        else:
            planned = _plan(known, opened, runner, budget_s=budget_s, retry_failed=retry_failed)
        return replace(planned, busy_cores=current_load())


def generate(
    app: App | str | Path,
    *,
    store: StoreLike = None,
    budget_s: float | None = None,
    retry_failed: bool = False,
    jobs: int | None = None,
    adaptive: bool = False,
    until: float | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> CampaignResult:
    """Make the app's runs that are not stored yet, as far as the budget goes, cheap ones first.

    An ``adaptive`` campaign makes those first that narrow the answers most for their time, and ends when that no longer
    pays; or when the mean half-width of their 90 % interval is at most ``until``, a share of the prediction.

    Raises:
        RunnerError: if a run can never fit this machine, or its directory cannot be written.
        StoreError: if the store fails; what was measured stays in the run's directory, and the next call picks it up.
    """
    with using_store(store, directory_of(app)) as opened:
        known = resolve_app(app, opened)
        opened.save_app(known)
        with _open_campaign(known, opened, jobs=jobs, on_progress=on_progress) as campaign:
            campaign.adaptive, campaign.until = adaptive or until is not None, until
            return campaign.run(budget_s=budget_s, retry_failed=retry_failed)


def make_run(app: App, spec: RunSpec, store: RunStore) -> Run:
    """Make one run here and store it.

    Raises:
        RunnerError: if it cannot run here, or somebody else is running it.
    """
    with _open_campaign(app, store) as campaign:
        campaign.make([spec])
    if not campaign.finished:
        raise RunnerError(f"run {spec.id} of {app.name!r} is being made by somebody else; try again when it has ended")
    return campaign.finished[0]


def run_directory(app: App, run_id: str) -> Path:
    """Where a run of the app keeps its logs."""
    return Path(app.directory).absolute() / FOLDER / "runs" / app.name / run_id


def _open_runner(jobs: int | None) -> Runner:
    return LocalRunner(jobs=jobs)


def _plan(
    app: App,
    store: RunStore,
    runner: Runner,
    *,
    budget_s: float | None,
    retry_failed: bool,
    made: Collection[str] = (),
) -> Plan:
    sweep = build_sweep(app)
    states = store.known_ids(app.name)
    wanted = [spec for spec in sweep if spec.id not in made and _is_wanted(states.get(spec.id), retry_failed)]
    failed = sum(states.get(spec.id) in RETRIABLE for spec in sweep)
    running = sum(states.get(spec.id) is State.RUNNING for spec in sweep)
    seconds = estimate_durations(_recent(app, store), wanted) if wanted else None
    chosen = _order(wanted, seconds, budget_s=budget_s, at_once=runner.width)
    known = dict(zip((spec.id for spec in wanted), seconds, strict=True)) if seconds is not None else {}
    total_s = sum(float(known[spec.id]) * spec.allocation.cores for spec in chosen) if known else None
    limit_s = app.time_limit_s
    return Plan(
        app=app.name,
        specs=tuple(chosen),
        stored=len(sweep) - len(wanted) - running - (0 if retry_failed else failed),
        failed=failed,
        running_elsewhere=running,
        left_out=len(wanted) - len(chosen),
        at_once=runner.width,
        expected_s=total_s / runner.width if total_s is not None else None,
        limit_s=limit_s * len(chosen) / runner.width if limit_s is not None else None,
        core_h=total_s / 3600 if total_s is not None else None,
    )


def _plan_adaptive(
    app: App,
    store: RunStore,
    runner: Runner,
    *,
    budget_s: float | None,
    retry_failed: bool,
    until: float | None,
    made: Collection[str] = (),
) -> Plan:
    """The next round, by what is stored; ``made`` runs of this campaign are not made again."""
    whole = _plan(app, store, runner, budget_s=None, retry_failed=retry_failed, made=made)
    impossible = [spec for spec in whole.specs if not runner.fits(spec)]
    if impossible:  # first, because its error costs nothing yet
        return replace(whole, specs=tuple(impossible), undecided=len(whole.specs) - len(impossible))
    if not whole.specs:
        return replace(whole, undecided=0, ending=Ending.NOTHING_LEFT)
    options = {spec.id for spec in whole.specs}
    proposal = propose(
        [run for run in store.runs(app.name, states=_FINAL) if run.id not in options],
        whole.specs,
        list_questions(app),
        pending=[claim.spec for claim in store.claims(app.name)],
        at_once=runner.width,
        budget_s=budget_s,
        until=until,
    )
    specs = () if proposal.ending else proposal.specs
    if budget_s is not None and proposal.width is None:
        specs = specs[:_PILOTS]  # what they take is not known
    return replace(
        whole,
        specs=specs,
        undecided=len(options) - len(specs),
        width=proposal.width,
        width_after=proposal.width_after,
        ending=proposal.ending,
    )


def _recent(app: App, store: RunStore) -> list[Run]:
    return store.runs(app.name, states=[State.COMPLETED], limit=_RECENT, newest_first=True)


def _is_wanted(state: State | None, retry_failed: bool) -> bool:
    return state is None or (retry_failed and state in RETRIABLE)


def _order(
    specs: Sequence[RunSpec], seconds: NDArray[np.float64] | None, *, budget_s: float | None, at_once: int
) -> Sequence[RunSpec]:
    """Cheap first, and within the budget; scaled-down first while nothing is known."""
    if seconds is None:
        return sorted(specs, key=_size)
    if budget_s is None:
        return [spec for _, spec in sorted(zip(seconds, specs, strict=True), key=lambda pair: pair[0])]
    return pick_within(specs, seconds.tolist(), budget_s=budget_s, at_once=at_once)


def _size(spec: RunSpec) -> tuple[bool, float]:
    """A guess at what a run costs, before any was made: the product of its numbers."""
    product = 1.0
    for value in spec.parameters.values():
        if isinstance(value, int | float) and value > 0:
            product *= value
    return spec.scale is Scale.FULL_SCALE, product


@dataclass
class _Campaign:
    """One process's share of the work on an app; others may be at the same store."""

    app: App
    store: RunStore
    runner: Runner
    on_progress: Callable[[Progress], None]
    owner: Owner
    finished: list[Run] = field(default_factory=list)
    recovered: int = 0
    total: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    beat_at: float = 0.0
    adaptive: bool = False
    until: float | None = None
    started_at: float = field(default_factory=time.monotonic)
    round: Plan | None = None

    def run(self, *, budget_s: float | None, retry_failed: bool) -> CampaignResult:
        retry = RETRIABLE if retry_failed else frozenset()
        stopped = ""
        try:
            self._recover()
            while specs := self._next_round(budget_s, retry_failed=retry_failed):
                before = len(self.finished)
                self.make(specs, retry=retry)
                retry_failed = retry_failed and self.adaptive  # once is enough
                if len(self.finished) == before:
                    break  # others are at what is left
        except KeyboardInterrupt:
            stopped = "interrupted; run the same command again to go on"
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
        )

    def _next_round(self, budget_s: float | None, *, retry_failed: bool) -> Sequence[RunSpec]:
        left_s = None if budget_s is None else budget_s - (time.monotonic() - self.started_at)
        if self.adaptive:
            return self._next_adaptive_round(left_s, retry_failed=retry_failed)
        if left_s is not None and left_s <= 0:
            return ()
        planned = _plan(self.app, self.store, self.runner, budget_s=left_s, retry_failed=retry_failed)
        self.total = len(self.finished) + len(planned.specs)
        if budget_s is None:
            return planned.specs
        return planned.specs[: _PILOTS if planned.expected_s is None else _ROUND]

    def _next_adaptive_round(self, left_s: float | None, *, retry_failed: bool) -> Sequence[RunSpec]:
        self.round = _plan_adaptive(
            self.app,
            self.store,
            self.runner,
            budget_s=left_s,
            retry_failed=retry_failed,
            until=self.until,
            made={run.id for run in self.finished},
        )
        if left_s is not None and left_s <= 0 and self.round.specs:
            self.round = replace(self.round, specs=(), ending=Ending.BUDGET)
        self.total = len(self.finished) + len(self.round.specs) + (self.round.undecided or 0)
        return self.round.specs

    def make(self, specs: Sequence[RunSpec], *, retry: frozenset[State] = frozenset()) -> None:
        """Make these runs, in this order, as room allows."""
        waiting = sorted(specs, key=self.runner.fits)  # what can never run here first: its error costs nothing yet
        self._estimate(waiting)
        while waiting or self.runner.running:
            while waiting and (self.runner.has_room(waiting[0]) or not self.runner.fits(waiting[0])):
                self._start(waiting.pop(0), retry=retry)
            self._report(waiting)
            for run in self.runner.poll(_POLL_S):
                self._keep(run)
                self._report(waiting, last=run)
            self._beat()

    def _start(self, spec: RunSpec, *, retry: frozenset[State]) -> None:
        launch = build_launch(self.app, spec, run_directory=run_directory(self.app, spec.id))
        if not self.store.claim(spec, self.owner, retry=retry):
            self.total -= 1  # somebody else has it
            return
        marked = replace(launch, environment={**launch.environment, OWNER: self.owner.token})
        try:
            self.runner.start(spec, marked, phases=self.app.phases)
        except RunnerError:
            self.store.release(spec.id, self.owner)
            raise

    def _keep(self, run: Run) -> None:
        try:
            kept = self.store.finish(run, self.owner)
        except StoreError as exc:
            where = run_directory(self.app, run.id)
            raise StoreError(
                f"{exc}\nThe run just finished is kept in {where}; the next 'foretell generate' picks it up."
            ) from exc
        if kept:
            self.finished.append(run)

    def _beat(self) -> None:
        if time.monotonic() - self.beat_at > _HEARTBEAT_S:
            self.store.heartbeat(self.owner)
            self.beat_at = time.monotonic()

    def let_go(self) -> None:
        """Stop what still runs, so that it can be made again."""
        running = self.runner.running
        self.runner.stop()
        with suppress(StoreError):  # why we let go matters more, and claims of a process that ended are given up
            for spec in running:
                self.store.release(spec.id, self.owner)

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
        seconds = estimate_durations(_recent(self.app, self.store), specs) if specs else None
        self.seconds = {} if seconds is None else dict(zip((spec.id for spec in specs), seconds, strict=True))

    def _report(self, waiting: Sequence[RunSpec], last: Run | None = None) -> None:
        done = sum(run.state is State.COMPLETED for run in self.finished)
        self.on_progress(
            Progress(
                total=self.total,
                done=done,
                failed=len(self.finished) - done,
                running=self.runner.running,
                left_s=None if self.adaptive else self._left_s(waiting),
                last=last,
                note=_note_if_busy(last),
                used_s=time.monotonic() - self.started_at,
                width=self.round.width if self.round else None,
                width_after=self.round.width_after if self.round else None,
            )
        )

    def _left_s(self, waiting: Sequence[RunSpec]) -> float | None:
        if len(self.finished) >= _PILOTS and not self.seconds:
            self._estimate([*waiting, *self.runner.running])
        known = [self.seconds[spec.id] for spec in waiting if spec.id in self.seconds]
        return sum(known) / self.runner.width if known and len(known) == len(waiting) else None


@contextmanager
def _open_campaign(
    app: App, store: RunStore, *, jobs: int | None = None, on_progress: Callable[[Progress], None] = lambda _: None
) -> Iterator[_Campaign]:
    owner = replace(build_owner(), token=uuid.uuid4().hex)
    _AT_WORK.add(owner.token)
    try:
        with _open_runner(jobs) as runner:
            campaign = _Campaign(app=app, store=store, runner=runner, owner=owner, on_progress=on_progress)
            try:
                yield campaign
            finally:
                campaign.let_go()
    finally:
        _AT_WORK.discard(owner.token)


def _is_abandoned(claim: Claim) -> bool:
    alive = is_alive(claim.owner)
    if alive and claim.owner.pid == os.getpid():
        return claim.owner.token not in _AT_WORK
    return alive is False or (alive is None and datetime.now(UTC) - claim.heartbeat_at > _SILENT_AFTER)


def _note_if_busy(run: Run | None) -> str:
    load = run.machine.load if run is not None else None
    return (
        f"others used {load:.1f} cores during a run: measured times may be too long"
        if load is not None and load > _BUSY
        else ""
    )
