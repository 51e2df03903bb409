"""Which runs a campaign makes, and in which order."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from foretell.apps.sweep import build_sweep, count_runs, pick_within
from foretell.apps.where import Where
from foretell.campaigns.campaign_plan import Ending, Plan
from foretell.core.app import App, Scale
from foretell.core.run import RETRIABLE, Run, RunSpec, State
from foretell.runtimes.encoding import fit_encoder
from foretell.runtimes.run_table import RunTable, build_columns, build_table
from foretell.schedulers import Runner
from foretell.stores import RunStore

LEAST_FOR_LAW = 4  # configurations
_MOST_GROWTH = 50.0  # in logs: beyond that, longer means nothing


def preload() -> None:
    """Import what estimates need, so that it is not imported while runs are measured, or a Ctrl-C lost in it."""
    import_module("foretell.runtimes.regressors")


def estimate_durations(runs: Sequence[Run], specs: Sequence[RunSpec]) -> NDArray[np.float64] | None:
    """Seconds for each specification; ``None`` before anything was measured.

    From too few configurations for a law, it is rather too long than too short.
    """
    table = build_table(runs)
    if not len(table):
        return None
    if len(np.unique(table.group)) < LEAST_FOR_LAW:
        return _guess_by_size(table, {run.id: run.spec for run in runs}, specs)
    encoder = fit_encoder(table.columns)
    from foretell.runtimes.regressors import REGRESSORS  # a campaign's first runs need not wait for scikit-learn

    law = REGRESSORS["law"]().fit(encoder.encode(table.columns, len(table)), table.elapsed_s)
    return law.predict(encoder.encode(build_columns(specs), len(specs)))


def guess_size(spec: RunSpec) -> float:
    """A guess at what a run costs, before any was made: the product of its numbers, as a logarithm."""
    numbers = [value for value in spec.parameters.values() if isinstance(value, int | float)]
    return sum(math.log(number) for number in numbers if 0 < number < math.inf)


def _guess_by_size(table: RunTable, known: Mapping[str, RunSpec], specs: Sequence[RunSpec]) -> NDArray[np.float64]:
    """What the next larger measured size took; beyond the largest, in proportion to the size, or as it grew so far."""
    measured = np.array([guess_size(known[run_id]) for run_id in table.run_ids])
    sizes = np.unique(measured)
    seconds = np.array([np.median(table.elapsed_s[measured == size]) for size in sizes])
    seconds = np.maximum.accumulate(seconds)
    grown = math.log(seconds[-1] / seconds[0]) / (sizes[-1] - sizes[0]) if len(sizes) > 1 else 1.0
    wanted = np.array([guess_size(spec) for spec in specs])
    next_larger = np.minimum(np.searchsorted(sizes, wanted), len(sizes) - 1)
    beyond = np.maximum(wanted - sizes[-1], 0.0) * max(grown, 1.0)
    return np.asarray(seconds[next_larger] * np.exp(np.minimum(beyond, _MOST_GROWTH)))


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
    sweep = list_specs(app, runner)
    states = store.known_ids(app.name)
    counts = Counter(states.get(run_id) for run_id in sweep)
    wanted = {
        run_id: spec
        for run_id, spec in sweep.items()
        if run_id not in made and _is_wanted(states.get(run_id), retry_failed)
    }
    failed, running = sum(counts[state] for state in RETRIABLE - UNASKED), counts[State.RUNNING]
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
    """The next round, by what is stored; ``made`` runs of this campaign are not made again."""
    whole = plan_campaign(app, store, runner, budget_s=None, retry_failed=retry_failed, made=made)
    impossible = [spec for spec in whole.specs if not runner.fits(spec, time_limit_s=app.time_limit_s)]
    if impossible:  # first, because its error costs nothing yet
        return replace(whole, specs=tuple(impossible), undecided=len(whole.specs) - len(impossible))
    if not whole.specs:
        return replace(whole, undecided=0, ending=Ending.NOTHING_LEFT)
    from foretell.campaigns.adaptive import list_questions, propose  # what needs no models does not wait for them

    options = {spec.id for spec in whole.specs}
    where, questions = Where(app), list_questions(app)
    proposal = propose(
        [run for run in store.runs(app.name, states=_FINAL, version=app.version) if run.id not in options],
        whole.specs,
        [spec for spec in questions if where.allows(spec)] or questions,
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
    """Those of a plan within a budget to make before planning again.

    While too few configurations were measured for a law, that is the smallest scaled-down one that was not; a
    full-scale one only if nothing else is planned. Jobs of a scheduler wait for their turn: there it is a few at once.
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
    """Every run that the app file asks for there, by its id, which is dear to make: once for each of a million."""
    return {spec.id: spec for spec in _build_sweep(app, runner)}


def expect_duration(specs: Sequence[RunSpec], seconds: Mapping[str, float], runner: Runner) -> float:
    """Until all of these have run, as many side by side as fit."""
    shares = [float(seconds[spec.id]) / runner.count_parallel(spec) for spec in specs]
    return max(sum(shares), max((float(seconds[spec.id]) for spec in specs), default=0.0))


def _bound_duration(specs: Sequence[RunSpec], limit_s: float, runner: Runner) -> float:
    """The most it can take until all of these have run, each up to its limit: size by size, in full rounds."""
    sizes = Counter(spec.allocation for spec in specs)
    places = {spec.allocation: runner.count_parallel(spec) for spec in specs}
    return limit_s * sum(math.ceil(count / places[size]) for size, count in sizes.items())


def _count_cores(spec: RunSpec) -> int:
    return spec.allocation.cores * spec.allocation.nodes


def _build_sweep(app: App, runner: Runner) -> Sequence[RunSpec]:
    """The app's runs, as they are made there: what ran in another partition is another run."""
    specs = build_sweep(app)
    if runner.partition is None:
        return specs
    return [replace(spec, allocation=replace(spec.allocation, partition=runner.partition)) for spec in specs]


def _is_wanted(state: State | None, retry_failed: bool) -> bool:
    return state is None or state in UNASKED or (retry_failed and state in RETRIABLE)


def _order(
    specs: Sequence[RunSpec], seconds: NDArray[np.float64] | None, *, budget_s: float | None, runner: Runner
) -> Sequence[RunSpec]:
    """Cheap first, and within the budget; scaled-down first while nothing is known."""
    if seconds is None:
        return sorted(specs, key=_size)
    if budget_s is None:
        return [spec for _, spec in sorted(zip(seconds, specs, strict=True), key=lambda pair: pair[0])]
    sizes = [runner.max_parallel / runner.count_parallel(spec) for spec in specs]
    return pick_within(specs, seconds.tolist(), budget_s=budget_s, at_once=runner.max_parallel, sizes=sizes)


def _size(spec: RunSpec) -> tuple[bool, float]:
    """Scaled-down ones first, by a guess at what they cost."""
    return spec.scale is Scale.FULL_SCALE, guess_size(spec)
