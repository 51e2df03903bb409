"""Chooses the next run of runs whose times follow a formula."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from foretell.campaigns.adaptive import Proposal, list_targets, propose
from foretell.campaigns.campaign_plan import Ending
from foretell.core.app import App, Domain, Parameter, ParameterType, ResourceSweep, Scale, Value
from foretell.core.run import Allocation, Run, RunSpec, State, Usage
from foretell.runtimes.encoding import fit_encoder
from foretell.runtimes.regressors import GaussianProcessRunRegressor
from foretell.runtimes.run_table import build_columns

pytestmark = pytest.mark.slow


def make_spec(
    steps: float, size: float, kind: str, *, scale: Scale = Scale.SCALED_DOWN, repetition: int = 0
) -> RunSpec:
    parameters: dict[str, Value] = {"steps": steps, "size": size, "kind": kind}
    return RunSpec(app="law", parameters=parameters, scale=scale, repetition=repetition)


SMALL = [make_spec(*values) for values in itertools.product((10, 20, 40), (8, 16, 32), "ab")]
LARGE = [
    make_spec(*values, scale=Scale.FULL_SCALE) for values in itertools.product((100, 200, 400), (64, 128, 256), "ab")
]
SWEEP = SMALL + LARGE
QUESTIONS = [
    make_spec(*values, scale=Scale.FULL_SCALE) for values in itertools.product((150, 300), (80, 100, 200), "ab")
]


def law(spec: RunSpec) -> float:
    steps, size = float(spec.parameters["steps"]), float(spec.parameters["size"])
    return 0.5 + 1e-4 * steps * math.pow(size, 1.2) * (2 if spec.parameters["kind"] == "b" else 1)


def make_runs(specs: Sequence[RunSpec], *, noise: float = 0.01, seed: int = 0) -> list[Run]:
    draw = np.random.default_rng(seed)
    return [
        Run(spec=spec, state=State.COMPLETED, usage=Usage(elapsed_s=law(spec) * draw.lognormal(0, noise)))
        for spec in specs
    ]


def replay(choose: Callable[[Sequence[Run], Sequence[RunSpec]], Sequence[RunSpec]], *, cost_s: float) -> list[Run]:
    """Return the chosen runs in order, within the cost."""
    oracle = {run.id: run for run in make_runs(SWEEP)}
    made: list[Run] = []
    while True:
        left = [spec for spec in SWEEP if spec.id not in {run.id for run in made}]
        for spec in choose(made, left):
            if sum(law(run.spec) for run in made) + law(spec) > cost_s:
                return made
            made.append(oracle[spec.id])


def error(runs: Sequence[Run]) -> float:
    encoder = fit_encoder(build_columns([*SWEEP, *QUESTIONS]))
    X = encoder.encode(build_columns([run.spec for run in runs]), len(runs))
    process = GaussianProcessRunRegressor().fit(X, [run.usage.elapsed_s for run in runs if run.usage])
    answers = process.predict(encoder.encode(build_columns(QUESTIONS), len(QUESTIONS)))
    return float(np.mean(np.abs(answers / [law(spec) for spec in QUESTIONS] - 1)))


def _draw_with(seed: int) -> Callable[[Any, Sequence[RunSpec]], list[RunSpec]]:
    draw = np.random.default_rng(seed)
    return lambda _, left: [left[int(draw.integers(len(left)))]]


def test_chosen_runs_give_lower_errors_than_random_ones_of_the_same_time() -> None:
    whole_s = sum(map(law, SWEEP))
    ours = error(replay(lambda made, left: propose(made, left, QUESTIONS).specs, cost_s=0.25 * whole_s))
    others = [error(replay(_draw_with(seed), cost_s=0.25 * whole_s)) for seed in range(5)]
    assert ours < 0.05
    assert ours < 0.5 * np.median(others)


def test_the_first_runs_are_short_and_vary_all_parameters() -> None:
    proposal = propose([], SWEEP, QUESTIONS)
    first = proposal.specs[0].parameters
    assert (first["steps"], first["size"]) == (10, 8)
    assert (proposal.width, proposal.ending) == (None, None)
    assert len({spec.id for spec in proposal.specs}) == len(proposal.specs) < len(SWEEP) / 2
    assert {spec.parameters["kind"] for spec in proposal.specs} == {"a", "b"}
    for name in ("steps", "size"):
        assert len({spec.parameters[name] for spec in proposal.specs}) >= 3
    assert sum(map(law, proposal.specs)) < 0.15 * sum(map(law, SWEEP))


def test_an_interrupted_start_is_resumed() -> None:
    whole = propose([], SWEEP, QUESTIONS).specs
    made = make_runs(whole[:3])
    left = [spec for spec in SWEEP if spec not in whole[:3]]
    rest = propose(made, left, QUESTIONS).specs
    assert len(rest) == len(whole) - 3
    assert not {spec.id for spec in whole[:3]} & {spec.id for spec in rest}
    assert len(propose(made, left, QUESTIONS, pending=rest[:2]).specs) == len(rest) - 2


def test_proposals_are_deterministic() -> None:
    assert propose_after(12) == propose_after(12)


def test_a_round_narrows_intervals_and_repeats_nothing() -> None:
    proposal = propose_after(12, at_once=4)
    assert len({spec.configuration for spec in proposal.specs}) == 4
    assert proposal.width is not None
    assert proposal.width_after is not None
    assert proposal.width_after < proposal.width


def test_options_with_equal_features_are_proposed_once() -> None:
    twins = [replace(spec, allocation=Allocation(memory_bytes=size)) for spec in SWEEP for size in (2**30, 2**31)]
    made = make_runs(twins[::3])
    specs = propose(made, twins[1::3], QUESTIONS, at_once=16).specs
    assert len({spec.id for spec in specs}) == len(specs) == 16


def test_runs_of_other_processes_are_not_proposed() -> None:
    pending = propose_after(12, at_once=2).specs
    proposal = propose_after(12, at_once=2, pending=pending)
    assert not {spec.id for spec in pending} & {spec.id for spec in proposal.specs}


def propose_after(count: int, **options: object) -> Proposal:
    """Return the proposal after so many runs spread over the sweep."""
    made = [SWEEP[index] for index in np.random.default_rng(1).permutation(len(SWEEP))[:count]]
    left = [spec for spec in SWEEP if spec not in made]
    return propose(make_runs(made), left, QUESTIONS, **options)  # type: ignore[arg-type]


def test_it_ends_when_intervals_are_narrow_enough() -> None:
    assert propose_after(24, until=0.5).ending is Ending.NARROW_ENOUGH
    assert propose_after(24, until=1e-4).ending is not Ending.NARROW_ENOUGH


def test_it_ends_when_more_runs_no_longer_pay() -> None:
    proposal = propose_after(34)
    assert proposal.ending is Ending.NO_LONGER_PAYS
    assert proposal.specs
    assert propose_after(10).ending is None


def test_it_ends_when_nothing_fits_the_budget() -> None:
    assert propose_after(20, budget_s=1e-3).ending is Ending.BUDGET


def test_a_round_fits_the_budget() -> None:
    for budget_s in (3.0, 20.0):
        specs = propose_after(20, budget_s=budget_s, at_once=6).specs
        assert 0 < max(map(law, specs)) < 1.2 * budget_s
        assert sum(map(law, specs)) < 1.2 * 6 * budget_s


def test_it_ends_when_nothing_is_left() -> None:
    assert propose(make_runs(SWEEP), [], QUESTIONS).ending is Ending.NOTHING_LEFT
    assert propose([], [], QUESTIONS).ending is Ending.NOTHING_LEFT


@pytest.mark.parametrize(("noise", "again"), [(0.001, False), (0.5, True)])
def test_a_configuration_is_repeated_only_if_noise_dominates(noise: float, again: bool) -> None:
    second = [make_spec(**spec.parameters, scale=spec.scale, repetition=1) for spec in SWEEP]  # type: ignore[arg-type]
    proposal = propose(make_runs(SWEEP, noise=noise), second, QUESTIONS)
    assert bool(proposal.specs) is again
    assert (proposal.ending is Ending.NOTHING_LEFT) is not again


def test_failed_runs_are_neither_repeated_nor_used_for_fitting() -> None:
    failed = [Run(spec=spec, state=State.FAILED) for spec in SMALL]
    second = [make_spec(**spec.parameters, repetition=1) for spec in SMALL]  # type: ignore[arg-type]
    proposal = propose(failed, [*second, *LARGE], QUESTIONS)
    assert {spec.scale for spec in proposal.specs} == {Scale.FULL_SCALE}


def test_evaluation_points_are_drawn_from_the_targets() -> None:
    app = App(
        name="asked",
        parameters=(
            Parameter(
                name="n",
                type=ParameterType.INTEGER,
                full_scale=Domain(values=(100,)),
                target=Domain(low=50, high=500),
            ),
            Parameter(name="x", type=ParameterType.NUMBER, target=Domain(low=0.1, high=0.2)),
            Parameter(name="kind", type=ParameterType.TEXT, full_scale=Domain(values=("a", "b"))),
        ),
        full_scale_resources=ResourceSweep(cores=(2, 4)),
    )
    questions = list_targets(app)
    assert questions == list_targets(app)
    assert 200 < len(questions) <= 256
    for spec in questions:
        assert isinstance(spec.parameters["n"], int)
        assert 50 <= spec.parameters["n"] <= 500
        assert 0.1 <= float(spec.parameters["x"]) <= 0.2
    assert {spec.parameters["kind"] for spec in questions} == {"a", "b"}
    assert {spec.allocation for spec in questions} == {Allocation(cores=2), Allocation(cores=4)}
