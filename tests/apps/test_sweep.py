from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.apps.sweep import build_sweep, pick_within
from foretell.core.app import App, Domain, Parameter, ParameterType, ResourceSweep, Scale
from foretell.core.run import RunSpec


def _app(scaled_down: Sequence[int], full_scale: Sequence[int], *, repetitions: int = 1) -> App:
    parameter = Parameter(
        name="x",
        type=ParameterType.INTEGER,
        scaled_down=Domain(values=tuple(scaled_down)),
        full_scale=Domain(values=tuple(full_scale)),
    )
    return App(name="a", command=("run", "{x}"), parameters=(parameter,), repetitions=repetitions)


def _spec(x: float, y: str = "a", *, scale: Scale = Scale.SCALED_DOWN, repetition: int = 0) -> RunSpec:
    return RunSpec(app="a", parameters={"x": x, "y": y}, scale=scale, repetition=repetition)


def test_every_combination_is_included_once(example: App) -> None:
    sweep = build_sweep(example)
    scaled_down = [spec for spec in sweep if spec.scale is Scale.SCALED_DOWN]
    assert len(scaled_down) == 3 * 5 * 2 * 2 * 2
    assert len(sweep) - len(scaled_down) == 2 * 2 * 2 * 1 * 2
    assert len({spec.id for spec in sweep}) == len(sweep)
    assert sweep == build_sweep(example)
    assert list(sweep[: len(scaled_down)]) == scaled_down


def test_full_scale_wins_a_shared_configuration() -> None:
    sweep = build_sweep(_app([1, 2], [2, 3], repetitions=2))
    assert [(spec.parameters["x"], spec.scale, spec.repetition) for spec in sweep] == [
        (1, "SD", 0), (1, "SD", 1), (2, "FS", 0), (2, "FS", 1), (3, "FS", 0), (3, "FS", 1),
    ]  # fmt: skip


def test_resources_give_separate_runs() -> None:
    resources = ResourceSweep(cores=(1, 2), memory_bytes=(None, 2**30))
    app = App(name="a", command=("run",), scaled_down_resources=resources)
    allocations = {spec.allocation for spec in build_sweep(app)}
    assert len(allocations) == 4
    assert [spec.scale for spec in build_sweep(app)] == ["SD"] * 3 + ["FS"]


def test_everything_that_fits_is_picked_cheap_first() -> None:
    specs = [_spec(3), _spec(1), _spec(2)]
    assert pick_within(specs, [30, 10, 20], budget_s=60, at_once=1) == (specs[1], specs[2], specs[0])
    assert pick_within(specs, [30, 10, 20], budget_s=30, at_once=2) == (specs[1], specs[2], specs[0])


def test_picked_runs_fill_the_space() -> None:
    specs = [_spec(2**power, y) for power in range(9) for y in "ab"]
    picked = pick_within(specs, [1.0] * len(specs), budget_s=6, at_once=1)
    assert len(picked) == 6
    assert {spec.parameters["y"] for spec in picked} == {"a", "b"}
    assert {1, 256} <= {spec.parameters["x"] for spec in picked}


def test_repetitions_wait_for_new_configurations() -> None:
    specs = [_spec(x, repetition=repetition) for x in (1, 2, 3) for repetition in (0, 1)]
    picked = pick_within(specs, [1.0] * 6, budget_s=3, at_once=1)
    assert {spec.parameters["x"] for spec in picked} == {1, 2, 3}


def test_a_third_is_reserved_for_full_scale() -> None:
    specs = [_spec(x) for x in range(1, 100)] + [_spec(x, scale=Scale.FULL_SCALE) for x in range(100, 130)]
    seconds = [1.0] * 99 + [5.0] * 30
    picked = pick_within(specs, seconds, budget_s=60, at_once=1)
    full_scale = [spec for spec in picked if spec.scale is Scale.FULL_SCALE]
    assert len(full_scale) * 5 == 20
    assert len(picked) - len(full_scale) == 40


def test_one_long_full_scale_run_may_take_more_than_a_third() -> None:
    specs = [_spec(1), _spec(2), _spec(100, scale=Scale.FULL_SCALE)]
    assert pick_within(specs, [2, 3, 9], budget_s=11, at_once=1) == (specs[0], specs[2])


@pytest.mark.parametrize("budget_s", [0, 0.5, -1])
def test_nothing_fits(budget_s: float) -> None:
    assert pick_within([_spec(1)], [1.0], budget_s=budget_s, at_once=2) == ()
    assert pick_within([], [], budget_s=budget_s, at_once=2) == ()


def test_a_run_longer_than_the_budget_never_fits() -> None:
    specs = [_spec(1), _spec(2), _spec(3)]
    assert pick_within(specs, [1, 15, float("nan")], budget_s=10, at_once=4) == (specs[0],)


_values = st.one_of(st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False))
_specs = st.lists(
    st.tuples(st.builds(_spec, _values, st.sampled_from("abc"), scale=st.sampled_from(Scale)), st.floats(0, 100)),
    max_size=30,
)


@given(_specs, st.floats(0, 500), st.integers(1, 4))
def test_picked_runs_fit_and_are_candidates(runs: list[tuple[RunSpec, float]], budget_s: float, at_once: int) -> None:
    specs, seconds = [spec for spec, _ in runs], [second for _, second in runs]
    picked = pick_within(specs, seconds, budget_s=budget_s, at_once=at_once)
    cost = {id(spec): second for spec, second in runs}
    costs = [cost[id(spec)] for spec in picked]
    assert len({id(spec) for spec in picked}) == len(picked)
    assert costs == sorted(costs)
    assert sum(costs) / at_once <= budget_s * (1 + 1e-9)
    assert picked == pick_within(specs, seconds, budget_s=budget_s, at_once=at_once)
    left = budget_s * at_once - sum(costs)
    unpicked = [second for spec, second in runs if spec not in picked and second <= budget_s]
    assert all(second >= left * (1 - 1e-9) for second in unpicked)


@given(_specs, st.floats(0, 500))
def test_both_scales_are_picked_where_both_fit(runs: list[tuple[RunSpec, float]], budget_s: float) -> None:
    specs, seconds = [spec for spec, _ in runs], [second for _, second in runs]
    picked = {spec.scale for spec in pick_within(specs, seconds, budget_s=budget_s, at_once=1)}
    cheapest = {scale: min((s for spec, s in runs if spec.scale is scale), default=1e9) for scale in Scale}
    if sum(cheapest.values()) <= budget_s:
        assert picked == set(Scale)


def test_the_shortest_run_of_the_other_scale_fits() -> None:
    specs = [_spec(0, "a", scale=Scale.SCALED_DOWN), *(_spec(x, "a", scale=Scale.FULL_SCALE) for x in (1, 2))]
    picked = pick_within(specs, [3.0, 0.0, 1.0], budget_s=3.0, at_once=1)
    assert [spec.scale for spec in picked] == [Scale.FULL_SCALE, Scale.SCALED_DOWN]


def test_ten_thousand_runs_are_spread_evenly() -> None:
    specs = [_spec(x, y) for x in range(1, 1001) for y in "abcdefghij"]
    picked = pick_within(specs, [1.0] * len(specs), budget_s=50, at_once=2)
    assert len(picked) == 100
    by_label = [sorted(spec.parameters["x"] for spec in picked if spec.parameters["y"] == y) for y in "abcdefghij"]
    assert all(len(xs) >= 5 for xs in by_label)
    assert not any(first == second for first, second in combinations(picked, 2))
