"""Makes the runs of an app and stores their results; an interrupted campaign can be resumed."""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from foretell.apps.command import build_launch
from foretell.apps.workspace import run_directory
from foretell.campaigns.campaign_plan import CampaignResult, Ending, Plan, Progress
from foretell.campaigns.placement import Claims, adopt_batches, is_abandoned
from foretell.campaigns.planning import (
    AUTO_RETRIED,
    expect_duration,
    list_specs,
    pick_next,
    plan_campaign,
    plan_round,
    recent_runs,
)
from foretell.campaigns.waiting import RetryingStore, describe_load, is_disturbed, is_idle, wait_until_idle
from foretell.core.app import App
from foretell.core.errors import ForetellError, RunTakenError, StoreError
from foretell.core.run import Claim, Run, RunSpec, State
from foretell.measure.machine import kill_abandoned
from foretell.measure.run_lock import is_run_locked
from foretell.runtimes.durations import LEAST_FOR_LAW, estimate_durations, preload
from foretell.schedulers import Runner
from foretell.schedulers.local import read_finished
from foretell.stores import RunStore

_HEARTBEAT_S = 15.0
_POLL_S = 0.25
_OTHERS_S = 2.0  # between two checks of runs that other processes make
_MAX_INTERRUPTIONS = 3  # of one run, before it is left for the next campaign
_TAKEN = "another process makes some of these runs in the same folders with another store; they are skipped"
_AGAIN = "run the same command again to continue"
_CONTINUES = "the jobs continue: 'foretell status' shows them, and the same command collects them"
_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Campaign:
    """One process's campaign of an app; other processes may use the same store."""

    app: App
    store: RunStore
    runner: Runner
    claims: Claims
    on_progress: Callable[[Progress], None] = lambda _: None
    adaptive: bool = False
    until: float | None = None
    wait: bool = True
    wait_for_others: bool = False
    wait_quiet_s: float = 0.0
    retrying: RetryingStore | None = None
    finished: list[Run] = field(default_factory=list)
    recovered: int = 0
    total: int = 0
    held_back: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    beat_at: float = 0.0
    budget_s: float = math.inf
    started_at: float = field(default_factory=lambda: time.monotonic())
    is_prepared: bool = False
    round: Plan | None = None
    interruptions: Counter[str] = field(default_factory=Counter)
    taken_away: set[str] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)
    disturbed: dict[str, Run] = field(default_factory=dict)
    repeated: int = 0
    asked: dict[str, RunSpec] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self, *, budget_s: float | None, retry_failed: bool) -> CampaignResult:
        stopped = ""
        self.budget_s = math.inf if budget_s is None else budget_s
        try:
            with self.retrying_store():
                self._recover()
                self._collect([], timeout_s=0.0)
                while self._advance(retry_failed=retry_failed):
                    retry_failed = retry_failed and self.adaptive  # otherwise only in the first round
                self._repeat_disturbed()
        except KeyboardInterrupt:
            stopped = self._explain_stop()
            self._give_up_claims()
        return self._build_result(stopped)

    def _advance(self, *, retry_failed: bool) -> bool:
        """Make one round; return whether there may be another."""
        specs = self._next_round(retry_failed=retry_failed)
        if specs and not self.is_prepared:
            self._prepare()
            if self.budget_s < math.inf:  # part of it may be used
                specs = self._next_round(retry_failed=retry_failed)
        if specs or (self.wait and self.runner.running):
            before = len(self.finished)
            self.make(specs)
            if not self.wait or len(self.finished) > before:
                return self.wait
        return self.wait_for_others and self._wait_for_others()

    def _wait_for_others(self) -> bool:
        """Wait a moment for runs of other processes; return whether there are any."""
        others = self._list_elsewhere()
        if not others:
            return False
        self.awaited |= others
        self._report(f"another process is making {len(others)} of these runs; waiting for them")
        time.sleep(_OTHERS_S)
        self._recover()
        adopt_batches(self.app, self.store, self.runner, self.claims)
        return True

    def _list_elsewhere(self) -> set[str]:
        """Return runs of this campaign that other processes have claimed."""
        claims = [claim for claim in self.store.claims(self.app.name) if not self.claims.owns(claim)]
        if not claims:
            return set()
        return {claim.spec.id for claim in claims} & list_specs(self.app, self.runner).keys()

    @contextmanager
    def retrying_store(self) -> Iterator[None]:
        """Wait for the store while it does not respond, if the campaign waits for runs anyway."""
        if self.retrying is None or not self.wait:
            yield
            return
        with self.retrying.waiting(self._report):
            yield

    def _report(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
            _log.info("%s", note)
        self.on_progress(replace(self._build_progress(None), note=note))

    def _explain_stop(self) -> str:
        if self.runner.survives_exit:
            return _CONTINUES
        under_way = len(self.runner.running)
        runs = f"{under_way} running {'run was' if under_way == 1 else 'runs were'} stopped"
        return f"{runs if under_way else 'interrupted'}; {_AGAIN}"

    def _give_up_claims(self) -> None:
        """Release all claims, also of runs that had not started or had ended when the interruption came."""
        if self.runner.survives_exit:
            return
        under_way = {spec.id for spec in self.runner.running}
        self.runner.stop()
        with suppress(StoreError):  # claims of an ended process are released by the next one
            for claim in self.store.claims(self.app.name):
                ended = None if claim.spec.id in under_way else self._read_finished(claim)
                if self.claims.owns(claim) and self._free(claim, ended=ended) and ended is not None:
                    self.finished.append(ended)

    def _prepare(self) -> None:
        """Do once, before the first run, what takes long but is not part of the budget, which starts here."""
        self.is_prepared = True
        if not self.runner.survives_exit:
            preload()
        elif self.wait:  # in the background: nothing is measured here, and jobs need not wait for it
            threading.Thread(target=preload, daemon=True).start()
        self.started_at = time.monotonic()
        if self.wait_quiet_s:  # half of the budget is left for the runs
            wait_until_idle(self.runner, most_s=min(self.wait_quiet_s, self.budget_s / 2), report=self._report)

    @property
    def budget_left_s(self) -> float:
        """The rest of the budget; all of it until the first run starts."""
        return self.budget_s - (time.monotonic() - self.started_at if self.is_prepared else 0.0)

    def _repeat_disturbed(self) -> None:
        """Repeat runs that other processes disturbed, if the machine is idle now; keep the less disturbed result."""
        disturbed = dict(self.disturbed)
        if not disturbed or not self.wait_quiet_s or not is_idle(self.runner):
            return
        waiting = self._pick_repeats()
        if not waiting:
            return
        runs, them = ("1 run was", "it") if len(waiting) == 1 else (f"{len(waiting)} runs were", "them")
        self._report(f"{runs} measured while other processes used the machine; making {them} once more")
        while waiting or self.runner.running:
            while waiting and self.runner.has_capacity(waiting[0]):
                with suppress(RunTakenError):
                    self._launch(waiting.pop(0))
            for run in self.runner.poll(_POLL_S):
                self._keep_less_disturbed(run, than=disturbed[run.id])
            self._beat()

    def _pick_repeats(self) -> list[RunSpec]:
        """Return disturbed runs that fit the rest of the budget together, short ones first."""
        seconds = {run.id: run.usage.elapsed_s for run in self.disturbed.values() if run.usage is not None}
        specs = [self.disturbed[run_id].spec for run_id in sorted(seconds, key=lambda run_id: seconds[run_id])]
        left_s = self.budget_left_s
        while specs and expect_duration(specs, seconds, self.runner) > left_s:
            specs.pop()
        return specs

    def _keep_less_disturbed(self, run: Run, *, than: Run) -> None:
        if run.state is not State.COMPLETED or (run.machine.load or 0.0) >= (than.machine.load or 0.0):
            return
        if self.claims.take(run.spec, replace_states=frozenset({State.COMPLETED})) and self._keep([run]):
            self.finished[self.finished.index(than)] = run
            del self.disturbed[run.id]
            self.repeated += 1

    def _build_result(self, stopped: str) -> CampaignResult:
        failures = tuple(run for run in self.finished if run.state is not State.COMPLETED)
        submitted = len(self.runner.running) - self.runner.held_back if self.runner.survives_exit else 0
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
            submitted=submitted,
            held_back=self.held_back + self.runner.held_back,
            notes=tuple(self.notes),
            disturbed=len(self.disturbed),
            repeated=self.repeated,
            remarks=Counter(run.reason for run in self.finished if run.state is State.COMPLETED and run.reason),
            **self._count_rest(has_budget=self.budget_s < math.inf and not stopped),
        )

    def _count_rest(self, *, has_budget: bool) -> dict[str, Any]:
        """Return counts from the store; nothing if it does not respond, so that the result is shown anyway."""
        with suppress(StoreError):
            left = self._count_left() if has_budget else {}
            return {"jobs": self._list_jobs(), **self._count_elsewhere(), **left}
        return {}

    def _list_jobs(self) -> tuple[str, ...]:
        batches = self.store.batches(self.app.name) if self.runner.survives_exit else ()
        return tuple(batch.job_id for batch in batches if batch.job_id)

    def _count_elsewhere(self) -> dict[str, int]:
        others = (self.awaited | self.taken_away | self.claims.lost) - {run.id for run in self.finished}
        states = self.store.known_ids(self.app.name) if others else {}
        ended = [states[run_id] for run_id in others if run_id in states and states[run_id].final]
        completed = ended.count(State.COMPLETED)
        return {
            "running_elsewhere": len(self._list_elsewhere()),
            "elsewhere_completed": completed,
            "elsewhere_failed": len(ended) - completed,
        }

    def _count_left(self) -> dict[str, Any]:
        rest = plan_campaign(
            self.app, self.store, self.runner, budget_s=None, retry_failed=False, made=self._list_made()
        )
        return {"left": len(rest.specs), "left_s": rest.expected_s}

    def _next_round(self, *, retry_failed: bool) -> Sequence[RunSpec]:
        left_s = self.budget_left_s if self.budget_s < math.inf else None
        if self.adaptive:
            return self._next_adaptive_round(left_s, retry_failed=retry_failed)
        if left_s is not None and left_s <= 0:
            return ()
        planned = plan_campaign(
            self.app, self.store, self.runner, budget_s=left_s, retry_failed=retry_failed, made=self._list_made()
        )
        self.total = len(self.finished) + len(self.runner.running) + len(planned.specs)
        if left_s is None:
            return planned.specs
        return pick_next(planned.specs, recent_runs(self.app, self.store), self.runner)

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
        """Make these runs in order; without ``wait``, only submit as many as there is capacity for."""
        self.asked |= {spec.id: spec for spec in specs}
        waiting = sorted(specs, key=self._fits)  # those that can never run first: their error comes before any run
        self._estimate(waiting)
        while waiting or self.runner.running:
            self._drop_late(waiting)
            while waiting and (self.runner.has_capacity(waiting[0]) or not self._fits(waiting[0])):
                self._start(waiting.pop(0))
            self.on_progress(self._build_current_progress(waiting))
            self._collect(waiting, timeout_s=_POLL_S if self.wait else 0.0)
            self._beat()
            if waiting and not self.runner.running:  # other processes use the capacity
                time.sleep(_POLL_S)
            if not self.wait:
                self.held_back = len(waiting)
                return

    def _fits(self, spec: RunSpec) -> bool:
        return self.runner.fits(spec, time_limit_s=self.app.time_limit_s)

    def _drop_late(self, waiting: list[RunSpec]) -> None:
        """Drop runs that no longer fit the budget, because others took longer than planned."""
        if self.budget_s == math.inf:
            return
        left_s = self.budget_left_s
        late = [spec for spec in waiting if self.seconds.get(spec.id, 0.0) > left_s]
        waiting[:] = [spec for spec in waiting if spec not in late]
        if late and self.round is not None:
            self.round = replace(self.round, ending=Ending.BUDGET)

    def _start(self, spec: RunSpec) -> None:
        if not self.claims.take(spec):
            self.total -= 1  # another process makes it
            return
        try:
            self._launch(spec)
        except RunTakenError:
            self.claims.release([spec])
            self.total -= 1
            if _TAKEN not in self.notes:
                self._report(_TAKEN)
        except ForetellError:
            self.claims.release([spec])
            raise

    def _launch(self, spec: RunSpec) -> None:
        _log.info("run %s starts: %s", spec.id, dict(spec.parameters))
        launch = build_launch(self.app, spec, run_directory=run_directory(self.app, spec.id))
        self.runner.start(spec, self.claims.mark(launch), phases=self.app.phases)

    def _collect(self, waiting: list[RunSpec], *, timeout_s: float) -> None:
        """Store runs that have ended; interrupted ones wait again."""
        ended = self.runner.poll(timeout_s)
        kept = self._keep(ended) if ended else set()
        for run in ended:
            self._record(run, waiting, kept=run.id in kept)
        notes = self.runner.take_notes()
        for note in notes:
            _log.info("%s", note)
        self.notes += notes
        if ended or notes:
            current = self._build_current_progress(waiting)
            for run in (run for run in ended if run.id in kept):
                note = describe_load(run) if run.id in self.disturbed else ""
                self.on_progress(replace(current, last=run, note=note))
            for note in notes:
                self.on_progress(replace(current, note=note))

    def _record(self, run: Run, waiting: list[RunSpec], *, kept: bool) -> None:
        if not kept:
            self.taken_away.add(run.id)  # another process has stored or cancelled it
            return
        _log.info("run %s ended: %s", run.id, ", ".join(filter(None, [run.state, run.reason])))
        self.interruptions[run.id] += run.state in AUTO_RETRIED
        may_retry = run.state in AUTO_RETRIED and self.interruptions[run.id] <= _MAX_INTERRUPTIONS
        if may_retry and (own := self._find_own(run)):
            _log.info("run %s is made again", run.id)
            waiting.append(own)
        else:
            self.finished.append(run)
            if is_disturbed(run, self.runner):
                self.disturbed[run.id] = run

    def _find_own(self, run: Run) -> RunSpec | None:
        """Return the run as specified by this process or the app file; one from the store is never run."""
        if run.id not in self.asked:
            self.asked = list_specs(self.app, self.runner) | self.asked
        return self.asked.get(run.id)

    def _keep(self, runs: Sequence[Run]) -> set[str]:
        try:
            return self.claims.keep(runs)
        except StoreError as exc:
            where = run_directory(self.app, runs[-1].id)
            raise StoreError(
                f"{exc}\nThe result of the last run is kept in {where}; the next 'foretell generate' stores it."
            ) from exc

    def _beat(self) -> None:
        if time.monotonic() - self.beat_at > _HEARTBEAT_S:
            self.claims.beat()
            self.beat_at = time.monotonic()

    def _recover(self) -> None:
        """Store or release runs of processes that have died."""
        for claim in self.store.claims(self.app.name):
            if not is_abandoned(claim) or is_run_locked(run_directory(self.app, claim.spec.id)):
                continue
            ended = self._read_finished(claim)
            kill_abandoned(claim.spec.id, claim.owner, without_lock=self.store.private)
            self.recovered += self._free(claim, ended=ended)

    def _read_finished(self, claim: Claim) -> Run | None:
        ended = read_finished(run_directory(self.app, claim.spec.id))
        return ended if ended is not None and ended.id == claim.spec.id else None

    def _free(self, claim: Claim, *, ended: Run | None) -> bool:
        """Store the result of a run, or release it to be made again; return whether it was stored."""
        if ended is not None and self.store.finish(ended, claim.owner):
            return True
        self.store.release(claim.spec.id, claim.owner)
        return False

    def _estimate(self, specs: Sequence[RunSpec]) -> None:
        seconds = estimate_durations(recent_runs(self.app, self.store), specs) if specs else None
        self.seconds = {} if seconds is None else dict(zip((spec.id for spec in specs), seconds, strict=True))

    def _build_current_progress(self, waiting: Sequence[RunSpec]) -> Progress:
        """Return the current progress; computed once for all runs that ended, of which there may be thousands."""
        return self._build_progress(None if self.adaptive else self._left_s(waiting))

    def _build_progress(self, left_s: float | None) -> Progress:
        done = sum(run.state is State.COMPLETED for run in self.finished)
        return Progress(
            total=self.total,
            done=done,
            failed=len(self.finished) - done,
            running=self.runner.running,
            left_s=left_s,
            used_s=time.monotonic() - self.started_at,
            queued=self.runner.queued,
            width=self.round.width if self.round else None,
            width_after=self.round.width_after if self.round else None,
        )

    def _left_s(self, waiting: Sequence[RunSpec]) -> float | None:
        if not waiting:
            return None
        if len(self.finished) >= LEAST_FOR_LAW and not self.seconds:
            self._estimate([*waiting, *self.runner.running])
        known = all(spec.id in self.seconds for spec in waiting)
        return expect_duration(waiting, self.seconds, self.runner) if known else None
