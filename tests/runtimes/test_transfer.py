"""A new app with few runs and an old one with many: what is transferred, what it brings, and when it is refused."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from foretell.core.app import App
from foretell.core.errors import NotEnoughRunsError, StoreError
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage
from foretell.runtimes import transfer
from foretell.runtimes.fit import fit_predictor
from foretell.runtimes.predictor import Predictor
from foretell.runtimes.predictor_files import dump_models, dump_predictor, load_models, read_predictor
from foretell.runtimes.run_table import RunTable, build_table
from foretell.runtimes.transfer import SourceApp, fit_with_transfer, is_similar, pool_tables, rank_sources

pytestmark = pytest.mark.slow

Law = Callable[[float, int], float]

NEW = App(name="new")
SIZES, CORES = (10.0, 20.0, 50.0, 100.0, 200.0, 400.0), (1, 2, 4, 8)


def _law(size: float, cores: int) -> float:
    return float(4 + 30 * np.sin(size / 60) ** 2 + size**1.3 / cores**0.7)


def _unrelated(size: float, cores: int) -> float:
    return float(1e4 * cores / size**1.5)


def _run(app: str, size: float, cores: int, elapsed_s: float, memory: float, number: int, machine: Machine) -> Run:
    spec = RunSpec(app=app, parameters={"size": size}, allocation=Allocation(cores=cores), repetition=number)
    usage = Usage(elapsed_s=elapsed_s, peak_memory_bytes=int(memory * 2**20 * (50 + size)) if memory else None)
    return Run(spec=spec, state=State.COMPLETED, usage=usage, machine=machine)


def _runs(
    app: str,
    count: int,
    *,
    law: Law = _law,
    times: float = 1.0,
    memory: float = 0.0,
    cores: tuple[int, ...] = CORES,
    seed: int = 0,
    machine: Machine | None = None,
) -> list[Run]:
    """Runs of different configurations, drawn from the grid."""
    draw = np.random.default_rng(seed)
    grid = [(size, number) for size in SIZES for number in cores]
    chosen = [grid[int(index)] for index in draw.permutation(len(grid))[:count]]
    return [
        _run(app, size, number, times * law(size, number) * draw.lognormal(0, 0.01), memory, 0, machine or Machine())
        for size, number in chosen
    ]


def _source(name: str, table: RunTable) -> SourceApp:
    return SourceApp(name=name, predictor=fit_predictor(App(name=name), table), table=table)


@pytest.fixture(scope="module")
def old() -> SourceApp:
    return _source("old", build_table(_runs("old", 24, memory=1.0)))


@pytest.fixture(scope="module")
def strange() -> SourceApp:
    return _source("strange", build_table(_runs("strange", 24, law=_unrelated)))


@pytest.fixture(scope="module")
def few(old: SourceApp, strange: SourceApp) -> Predictor:
    """Three runs of an app that takes three times as long, and twice the memory."""
    runs = _runs("new", 3, times=3, memory=2.0, cores=(4,), seed=1)
    return fit_with_transfer(NEW, build_table(runs), [strange, old])


@pytest.fixture(scope="module")
def scaled(old: SourceApp, strange: SourceApp) -> Predictor:
    runs = _runs("new", 7, times=3, seed=2)
    return fit_with_transfer(NEW, build_table(runs), [old, strange])


def _ask(size: float, cores: int) -> RunSpec:
    return RunSpec(app="new", parameters={"size": size}, allocation=Allocation(cores=cores))


def _error(predictor: Predictor, times: float) -> float:
    specs = [_ask(size, cores) for size in SIZES for cores in CORES]
    truth = [times * _law(size, cores) for size in SIZES for cores in CORES]
    values = [prediction.elapsed_s.value for prediction in predictor.predict(specs)]
    return float(np.max(np.abs(np.array(values) / truth - 1)))


def test_three_runs_find_the_factor(few: Predictor) -> None:
    assert _error(few, 3) < 0.1
    (prediction,) = few.predict([_ask(100.0, 8)])
    assert prediction.peak_memory_bytes is not None
    assert prediction.peak_memory_bytes.value == pytest.approx(2 * 2**20 * 150, rel=0.05)


def test_three_runs_say_that_they_are_three(few: Predictor) -> None:
    used = few.card.transfer
    assert used is not None
    assert (used.source, used.method, used.alone, used.configurations) == ("old", "scaled", None, 3)
    (prediction,) = few.predict([_ask(100.0, 4)])
    assert any(warning.text.startswith("only 3 configurations of it were run") for warning in prediction.warnings)
    assert any(warning.text.startswith("transferred from old") for warning in few.card.warnings)


def test_intervals_from_few_runs_are_wider_than_the_source_s(few: Predictor, old: SourceApp) -> None:
    (prediction,), (other,) = few.predict([_ask(100.0, 4)]), old.predictor.predict([_ask(100.0, 4)])
    widths = [one.elapsed_s.high / one.elapsed_s.low for one in (prediction, other)]
    assert widths[0] > widths[1]
    assert prediction.elapsed_s.low < 3 * _law(100.0, 4) < prediction.elapsed_s.high


def test_what_varied_in_the_source_only_is_in_range(few: Predictor) -> None:
    """The app's own runs all had four cores."""
    (prediction,) = few.predict([_ask(100.0, 8)])
    assert not any("cores" in warning.text for warning in prediction.warnings)
    assert few.measured_counts("cores") is None
    assert few.usual_counts()["cores"] == 4
    (outside,) = few.predict([_ask(100.0, 64)])
    assert any("cores = 64 lies outside" in warning.text for warning in outside.warnings)


@pytest.mark.parametrize("count", [0, 1])
def test_one_run_cannot_be_checked(old: SourceApp, count: int) -> None:
    with pytest.raises(NotEnoughRunsError, match=f"has {count} finished configurations; 2 are needed"):
        fit_with_transfer(NEW, build_table(_runs("new", count)), [old])


def test_few_runs_without_a_source_are_refused(strange: SourceApp) -> None:
    table = build_table(_runs("new", 4))
    with pytest.raises(NotEnoughRunsError, match="has 4 finished configurations; 5 are needed"):
        fit_with_transfer(NEW, table, [])
    with pytest.raises(NotEnoughRunsError, match="has 4 finished configurations; 5 are needed"):
        fit_with_transfer(NEW, table, [strange])


def test_transfers_where_the_runs_are_too_few_for_the_law(scaled: Predictor) -> None:
    used = scaled.card.transfer
    assert used is not None
    assert used.alone is not None
    assert used.source == "old"
    assert used.with_source.mape < used.alone.mape / 2
    assert _error(scaled, 3) < 0.1
    errors = f"error {round(used.alone.mape, 2):.3g} % without, {round(used.with_source.mape, 2):.3g} % with it"
    assert scaled.card.warnings[0].text.startswith("transferred from old")
    assert scaled.card.warnings[0].text.endswith(errors)
    assert scaled.card.warnings[1].text.startswith("not transferred from strange: error ")


def test_unrelated_app_is_refused_with_its_figures(strange: SourceApp) -> None:
    table = build_table(_runs("new", 12, law=lambda size, cores: size / cores))
    predictor = fit_with_transfer(NEW, table, [strange])
    assert predictor.card.transfer is None
    assert predictor.source is None
    assert predictor.card.warnings[0].text.startswith("not transferred from strange: error ")
    (asked,) = predictor.predict([_ask(100.0, 4)])
    (alone,) = fit_predictor(NEW, table).predict([_ask(100.0, 4)])
    assert asked == alone


def test_pairs_agree_with_single_questions(scaled: Predictor) -> None:
    specs = [RunSpec(app="new", parameters={"size": size}) for size in (10.0, 75.0)]
    options = [(Allocation(cores=cores), Machine()) for cores in (2, 8)]
    pairs = scaled.forecast_pairs(specs, options)
    one_by_one = scaled.predict([_ask(size, cores) for size in (10.0, 75.0) for cores in (2, 8)])
    assert pairs.elapsed.value == pytest.approx([one.elapsed_s.value for one in one_by_one])
    assert pairs.elapsed.high == pytest.approx([one.elapsed_s.high for one in one_by_one])


@pytest.mark.parametrize("name", ["few", "scaled"])
def test_stored_with_its_source(name: str, request: pytest.FixtureRequest) -> None:
    predictor: Predictor = request.getfixturevalue(name)
    loaded = read_predictor(dump_predictor(predictor), predictor.card)
    specs = [_ask(size, 4) for size in (10.0, 75.0, 400.0)]
    assert loaded.predict(specs) == predictor.predict(specs)


def test_stored_without_its_source_says_so(few: Predictor) -> None:
    models, facts = load_models(dump_predictor(few))
    own = {name: model for name, model in models.items() if not name.startswith("source ")}
    with pytest.raises(StoreError, match=r"not a usable model.*run 'foretell build "):
        read_predictor(dump_models(own, facts=json.loads(json.dumps(facts))), few.card)


def test_question_without_a_machine_is_for_the_own_one() -> None:
    """Else the source would answer for its own machine, and the factor, found on another, would not fit."""
    machines = [Machine(cpu_model=name, cores=cores) for name, cores in (("slow", 8), ("fast", 32))]
    runs = [
        _run("old", size, cores, _law(size, cores) * (4 if machine.cpu_model == "slow" else 1), 0.0, number, machine)
        for number, machine in enumerate(machines)
        for size in SIZES
        for cores in CORES[: 4 if number else 2]
    ]
    source = _source("old", build_table(runs))
    own = build_table(_runs("new", 4, times=4, machine=machines[0]))
    predictor = fit_with_transfer(NEW, own, [source])
    (without,) = predictor.predict([_ask(100.0, 2)])
    (with_it,) = predictor.predict([_ask(100.0, 2)], machines=[machines[0]])
    assert without.elapsed_s.value == pytest.approx(with_it.elapsed_s.value)


def test_pooled_runs_are_fitted_to_but_never_judged_by() -> None:
    own, other = build_table(_runs("new", 6, seed=3)), build_table(_runs("old", 10))
    other = replace(other, columns={**other.columns, "kind": np.array(["x"] * 10, dtype=object)})
    pooled = pool_tables(own, other, names=("new", "old"))
    assert pooled.full_scale.tolist() == [True] * 6 + [False] * 10
    assert not set(pooled.group[:6]) & set(pooled.group[6:])
    assert pooled.columns["machine_app"].tolist() == ["new"] * 6 + ["old"] * 10
    assert pooled.columns["kind"].tolist() == [""] * 6 + ["x"] * 10
    assert pooled.columns["size"].dtype == float


def test_pools_where_neither_app_knows_the_law_by_itself() -> None:
    """The source has as few runs: its predictions are no better, its runs are."""
    source = _source("old", build_table(_runs("old", 6, seed=4)))
    predictor = fit_with_transfer(NEW, build_table(_runs("new", 9, times=2, seed=5)), [source])
    used = predictor.card.transfer
    assert used is not None
    assert used.method == "pooled"
    assert predictor.card.judgements["elapsed_s"].rows == 9
    assert predictor.usual_counts()["nodes"] == 1
    (prediction,) = predictor.predict([_ask(100.0, 4)])
    assert not any("app" in warning.text for warning in prediction.warnings)


def test_memory_is_not_transferred_where_that_hurts(old: SourceApp) -> None:
    runs = _runs("new", 7, times=3, memory=2.0, seed=2)
    constant = [replace(run, usage=replace(run.usage, peak_memory_bytes=2**30)) for run in runs if run.usage]
    predictor = fit_with_transfer(NEW, build_table(constant), [old])
    (prediction,) = predictor.predict([_ask(400.0, 4)])
    assert prediction.peak_memory_bytes is not None
    assert prediction.peak_memory_bytes.value == pytest.approx(2**30, rel=0.01)


def test_similar_is_what_varies_under_the_same_name() -> None:
    own = build_table(_runs("new", 4, cores=(4,)))
    assert is_similar(own, build_table(_runs("old", 6)))
    renamed = [replace(run, spec=replace(run.spec, parameters={"length": 1.0})) for run in _runs("old", 6)]
    assert not is_similar(own, build_table(renamed))


def test_nearest_sources_are_judged(old: SourceApp, strange: SourceApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_MOST_SOURCES", 1)
    assert rank_sources(build_table(_runs("new", 5, times=3)), [strange, old]) == [old]
