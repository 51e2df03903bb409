"""Selects and orders the runs of a campaign."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.apps.sweep import build_sweep, count_runs, pick_within
from foretell.apps.where import Where
from foretell.campaigns.campaign_plan import Ending, Plan
from foretell.core.app import App, Scale
from foretell.core.run import RETRIABLE, Run, RunSpec, State
from foretell.runtimes.durations import LEAST_FOR_LAW, estimate_durations, guess_size
from foretell.schedulers import Runner
from foretell.stores import RunStore

ROUND = 8  # runs made under a budget before it is planned again with their times
AUTO_RETRIED = frozenset({State.INTERRUPTED})  # made again automatically: a node failed or the job was preempted
_RECENT = 300  # runs from which durations are estimated
_FINAL = tuple(state for state in State if state.final)


def plan_campaign(
    app: App,
    store: RunStore,
    runner: Runner,
    *,
    budget_s: float | None,
    retry_failed: bool,
    made: Collection[str] = (),
) -> Plan:
    """Return all missing runs within the budget; ``made`` runs of this campaign are not made again."""
    sweep = list_specs(app, runner)
    states = store.known_ids(app.name)
    counts = Counter(states.get(run_id) for run_id in sweep)
    wanted = {
        run_id: spec
        for run_id, spec in sweep.items()
        if run_id not in made and _is_missing(states.get(run_id), retry_failed)
    }
    failed, running = sum(counts[state] for state in RETRIABLE - AUTO_RETRIED), counts[State.RUNNING]
    specs = list(wanted.values())
    seconds = estimate_durations(recent_runs(app, store), specs) if specs else None
    chosen = _order(specs, seconds, budget_s=budget_s, runner=runner)
    known = dict(zip(wanted, seconds, strict=True)) if seconds is not None else {}
    core_s = sum(float(known[spec.id]) * _count_cores(spec) for spec in chosen) if known else None
    obstacles = Counter(runner.find_obstacle(spec, time_limit_s=app.time_limit_s) for spec in chosen)
    return Plan(
        app=app.name,
        specs=tuple(chosen),
        stored=len(sweep) - len(wanted) - running - (0 if retry_failed else failed),
        failed=failed,
        running_elsewhere=running,
        left_out=len(wanted) - len(chosen),
        excluded=count_runs(app) - len(sweep),
        at_once=runner.max_parallel,
        expected_s=expect_duration(chosen, known, runner) if known else None,
        limit_s=None if app.time_limit_s is None else _bound_duration(chosen, app.time_limit_s, runner),
        core_h=core_s / 3600 if core_s is not None else None,
        partition=runner.partition,
        obstacles={obstacle: count for obstacle, count in obstacles.items() if obstacle is not None},
    )


def plan_round(
    app: App,
    store: RunStore,
    runner: Runner,
    *,
    budget_s: float | None,
    retry_failed: bool,
    until: float | None,
    made: Collection[str] = (),
) -> Plan:
    """Return the next round of an adaptive campaign; ``made`` runs of this campaign are not made again."""
    whole = plan_campaign(app, store, runner, budget_s=None, retry_failed=retry_failed, made=made)
    impossible = [spec for spec in whole.specs if not runner.fits(spec, time_limit_s=app.time_limit_s)]
    if impossible:  # first, so that the error comes before any run was made
        return replace(whole, specs=tuple(impossible), undecided=len(whole.specs) - len(impossible))
    if not whole.specs:
        return replace(whole, undecided=0, ending=Ending.NOTHING_LEFT)
    from foretell.campaigns.adaptive import list_targets, propose  # slow to import, and not needed before

    options = {spec.id for spec in whole.specs}
    where, targets = Where(app), list_targets(app)
    proposal = propose(
        [run for run in store.runs(app.name, states=_FINAL, version=app.version) if run.id not in options],
        whole.specs,
        [spec for spec in targets if where.allows(spec)] or targets,
        pending=[claim.spec for claim in store.claims(app.name)],
        at_once=runner.max_parallel,
        budget_s=budget_s,
        until=until,
    )
    specs, ending = () if proposal.ending else proposal.specs, proposal.ending
    if specs and budget_s is not None and proposal.width is None:
        runs = recent_runs(app, store)
        fitting = _order(specs, estimate_durations(runs, specs), budget_s=budget_s, runner=runner)
        specs = tuple(pick_next(fitting, runs, runner))
        ending = None if specs else Ending.BUDGET
    return replace(
        whole,
        specs=specs,
        undecided=len(options) - len(specs),
        width=proposal.width,
        width_after=proposal.width_after,
        ending=ending,
    )


def pick_next(planned: Sequence[RunSpec], runs: Sequence[Run], runner: Runner) -> Sequence[RunSpec]:
    """Return the runs of a plan within a budget to make before planning again.

    While too few configurations were measured to fit a scaling law, that is the smallest scaled-down one that was not,
    and a full-scale one only if nothing else is planned. On a scheduler it is a few at once, because jobs queue.
    """
    measured = {run.spec.configuration for run in runs}
    if len(measured) >= LEAST_FOR_LAW:
        return planned[:ROUND]
    known = [spec for spec in planned if spec.configuration in measured]
    pilots = sorted((spec for spec in planned if spec.configuration not in measured), key=_size)
    scaled_down = [spec for spec in pilots if spec.scale is Scale.SCALED_DOWN]
    at_once = LEAST_FOR_LAW if runner.survives_exit else 1
    return scaled_down[:at_once] or known[:ROUND] or pilots[:at_once]


def recent_runs(app: App, store: RunStore) -> list[Run]:
    return store.runs(app.name, states=[State.COMPLETED], limit=_RECENT, newest_first=True, version=app.version)


def list_specs(app: App, runner: Runner) -> dict[str, RunSpec]:
    """Return every run of the app file on that runner by id; slow for large sweeps, because ids are hashes."""
    return {spec.id: spec for spec in _build_sweep(app, runner)}


def expect_duration(specs: Sequence[RunSpec], seconds: Mapping[str, float], runner: Runner) -> float:
    """Return the expected seconds until all of these have run, as many in parallel as fit."""
    shares = [float(seconds[spec.id]) / runner.count_parallel(spec) for spec in specs]
    return max(sum(shares), max((float(seconds[spec.id]) for spec in specs), default=0.0))


def _bound_duration(specs: Sequence[RunSpec], limit_s: float, runner: Runner) -> float:
    """Return the longest possible seconds until all of these have run, each up to its limit."""
    sizes = Counter(spec.allocation for spec in specs)
    places = {spec.allocation: runner.count_parallel(spec) for spec in specs}
    return limit_s * sum(math.ceil(count / places[size]) for size, count in sizes.items())


def _count_cores(spec: RunSpec) -> int:
    return spec.allocation.cores * spec.allocation.nodes


def _build_sweep(app: App, runner: Runner) -> Sequence[RunSpec]:
    """Return the app's runs on that runner: a run in another partition is another run."""
    specs = build_sweep(app)
    if runner.partition is None:
        return specs
    return [replace(spec, allocation=replace(spec.allocation, partition=runner.partition)) for spec in specs]


def _is_missing(state: State | None, retry_failed: bool) -> bool:
    return state is None or state in AUTO_RETRIED or (retry_failed and state in RETRIABLE)


def _order(
    specs: Sequence[RunSpec], seconds: NDArray[np.float64] | None, *, budget_s: float | None, runner: Runner
) -> Sequence[RunSpec]:
    """Return runs within the budget, the shortest first; scaled-down ones first while times are unknown."""
    if seconds is None:
        return sorted(specs, key=_size)
    if budget_s is None:
        return [spec for _, spec in sorted(zip(seconds, specs, strict=True), key=lambda pair: pair[0])]
    sizes = [runner.max_parallel / runner.count_parallel(spec) for spec in specs]
    return pick_within(specs, seconds.tolist(), budget_s=budget_s, at_once=runner.max_parallel, sizes=sizes)


def _size(spec: RunSpec) -> tuple[bool, float]:
    """Return a sort key: scaled-down runs first, by their rough size."""
    return spec.scale is Scale.FULL_SCALE, guess_size(spec)
