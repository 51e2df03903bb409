"""Which runs a campaign makes, and in which order."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.apps.sweep import build_sweep, pick_within
from foretell.entities.app import App, Scale
from foretell.entities.plan import Ending, Plan
from foretell.entities.run import RETRIABLE, Run, RunSpec, State
from foretell.predictor.durations import estimate_durations
from foretell.runners import Runner
from foretell.stores import RunStore

PILOTS = 4  # runs made before anything is known, to plan the rest by
ROUND = 8  # runs made under a budget before planning again by what they took
UNASKED = frozenset({State.INTERRUPTED})  # made again without being asked for: nobody's fault
_RECENT = 300  # runs that durations are guessed from
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
    """All that is left to make, within the budget; ``made`` runs of this campaign are not made again."""
    sweep = _build_sweep(app, runner)
    states = store.known_ids(app.name)
    wanted = [spec for spec in sweep if spec.id not in made and _is_wanted(states.get(spec.id), retry_failed)]
    failed = sum(states.get(spec.id) in RETRIABLE - UNASKED for spec in sweep)
    running = sum(states.get(spec.id) is State.RUNNING for spec in sweep)
    seconds = estimate_durations(recent_runs(app, store), wanted) if wanted else None
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
        partition=runner.partition,
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
    """The next round, by what is stored; ``made`` runs of this campaign are not made again."""
    from foretell.predictor.adaptive import list_questions, propose  # other campaigns need no models

    whole = plan_campaign(app, store, runner, budget_s=None, retry_failed=retry_failed, made=made)
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
        specs = specs[:PILOTS]  # what they take is not known
    return replace(
        whole,
        specs=specs,
        undecided=len(options) - len(specs),
        width=proposal.width,
        width_after=proposal.width_after,
        ending=proposal.ending,
    )


def recent_runs(app: App, store: RunStore) -> list[Run]:
    return store.runs(app.name, states=[State.COMPLETED], limit=_RECENT, newest_first=True)


def _build_sweep(app: App, runner: Runner) -> Sequence[RunSpec]:
    """The app's runs, as they are made there: what ran in another partition is another run."""
    specs = build_sweep(app)
    if runner.partition is None:
        return specs
    return [replace(spec, allocation=replace(spec.allocation, partition=runner.partition)) for spec in specs]


def _is_wanted(state: State | None, retry_failed: bool) -> bool:
    return state is None or state in UNASKED or (retry_failed and state in RETRIABLE)


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
