"""Figures by hand, and how they are shown."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from benchmarks.runs import c3o, harp, lotaru, metrics, mlperf, sia, sizey, stampede2
from benchmarks.runs.cases import Case, Figure, Plan, Result
from benchmarks.runs.report import BEGIN, END, write_page
from benchmarks.runs.suites import record_all, run_suite


def _rows(**columns: object) -> pd.DataFrame:
    base = {"part": "one", "seed": 0, "quantity": "time", "low": 0.0, "high": 1e9, "request": 1e9}
    return pd.DataFrame({**base, **columns})


ROWS = _rows(
    actual=[100.0, 200.0, 400.0, 100.0],
    value=[110.0, 100.0, 400.0, 130.0],
    low=[105.0, 50.0, 300.0, 90.0],
    high=[130.0, 250.0, 500.0, 220.0],
    request=[130.0, 150.0, 100.0, 220.0],
)


def test_errors() -> None:  # 10, 50, 0 and 30 %
    assert metrics.mape(ROWS) == pytest.approx(22.5)
    assert metrics.median_ape(ROWS) == pytest.approx(20.0)
    assert metrics.max_ape(ROWS) == pytest.approx(50.0)


def test_intervals() -> None:
    assert metrics.coverage(ROWS) == 75.0
    assert metrics.mean_width(ROWS) == pytest.approx(100 * (25 / 110 + 200 / 100 + 200 / 400 + 130 / 130) / 4)
    assert metrics.median_width(ROWS) == pytest.approx(75.0)


def test_requests() -> None:
    assert metrics.upp(ROWS) == 50.0
    # 100; 150 in vain, then 200; 100 and 200 in vain, then 400; 100
    assert metrics.request_cost(ROWS) == pytest.approx((100 + 350 + 700 + 100) / 800)


def test_spread_is_over_seeds() -> None:
    rows = _rows(seed=[0, 0, 1], actual=[100.0] * 3, value=[110.0, 130.0, 140.0])
    assert metrics.over_seeds(rows, metrics.mape) == pytest.approx((30.0, 14.142136))
    assert metrics.over_seeds(rows[:2], metrics.mape) == (20.0, None)


@pytest.mark.parametrize(
    ("need", "tries", "wasted"),
    [
        (4.0, [5.0], 1.0),
        (4.0, [3.0], 3.0 + 2.0),  # doubled once
        (10.0, [2.0, 3.0, 12.0], 2.0 + 3.0 + 2.0),
        (20.0, [2.0, 3.0], 2.0 + 3.0 + 6.0 + 12.0 + 4.0),
        (4.0, [4.0], 0.0),
    ],
)
def test_what_failed_tries_waste(need: float, tries: list[float], wasted: float) -> None:
    assert sizey.wasted(need, tries) == wasted


def test_each_job_counts_the_same_in_c3o(data: Path) -> None:
    parts = [f"{protocol}/{job}" for protocol in ("A", "B", "C6", "C15", "C30") for job in ("sort", "grep", "grep")]
    rows = _rows(part=parts, actual=100.0, value=[110.0, 130.0, 130.0] * 5)
    told = {figure.name: figure for figure in c3o.make_figures(rows, data / "c3o")}
    assert told["A: mean error"].ours == pytest.approx(20.0)
    assert told["C, 6 runs: largest error"].ours == pytest.approx(30.0)
    assert told["C, 6 runs: off 3 times or more"].ours == 0.0


def test_c3o_notices_blow_ups_both_ways(data: Path) -> None:
    rows = _rows(part=["A/sort", "B/sort", "C15/sort", "C30/sort", *["C6/sort"] * 4], actual=100.0)
    rows = rows.assign(value=[100.0] * 4 + [299.0, 301.0, 34.0, 1e-9])
    told = {figure.name: figure.ours for figure in c3o.make_figures(rows, data / "c3o")}
    assert told["C, 6 runs: off 3 times or more"] == 50.0


def test_lotaru_recomputes_the_peer_on_the_same_runs(data: Path) -> None:
    cases = [case for case in lotaru.make_cases(data / "lotaru", Plan()) if case.part.startswith("six")]
    rows = pd.concat(
        _rows(part=case.part, actual=case.test["Realtime"] / 1000, value=1.0, **case.test[["Machine", "published"]])
        for case in cases
    )
    told = lotaru.make_figures(rows, data / "lotaru")
    assert [figure.known for figure in told] == pytest.approx([20.0] * 8)


def test_mlperf_stands_beside_the_power_law(data: Path) -> None:
    rows = _rows(actual=[60.0, 120.0], value=[66.0, 120.0], powerlaw=[1.5, 2.0], perfect=1.0, twin=[True, False])
    told = mlperf.make_figures(rows, data)
    assert [figure.ours for figure in told] == pytest.approx([5.0, 5.0, 0.0, 0.0])
    assert [figure.known for figure in told] == pytest.approx([25.0, 25.0, 0.0, 0.0])


def test_sizey_is_measured_against_the_best_baseline(data: Path) -> None:
    rows = _rows(part="flow/kept", quantity="memory", actual=1.0, value=1.0, waste=[2.0] * 28)
    share, wasted, _ = sizey.make_figures(rows, data / "sizey")
    assert (wasted.ours, wasted.known) == (56.0, 80.0)
    assert wasted.goal == pytest.approx(52.0)
    assert share.ours == pytest.approx(70.0)
    assert (share.ahead, share.reached) == (True, False)


def test_stampede2_and_sia_tell_their_parts(data: Path) -> None:
    rows = _rows(part=["amg/256", "amg/2048"], actual=100.0, value=[110.0, 105.0])
    told = {figure.name: figure for figure in stampede2.make_figures(rows, data)}
    assert told["amg, 256 runs: mean error"].reached
    assert told["amg, 2048 runs: mean error"].goal is None
    rows = _rows(part=["more GPUs", "new cluster/aws", "new cluster/rtx"], actual=100.0, value=[104.0, 110.0, 130.0])
    told = {figure.name: figure for figure in sia.make_figures(rows, data)}
    assert told["a new cluster: mean error"].ours == pytest.approx(20.0)


def test_harp_tells_both_codes(data: Path) -> None:
    names = [figure.name for figure in harp.make_figures(ROWS.assign(part="dnn"), data)]
    assert "DNN: cost of requests" in names
    assert "Gray-Scott: mean error" in names


def _perfect(case: Case) -> Result:
    actual = case.test[case.columns.elapsed] * case.columns.elapsed_unit_s
    labels = {name: case.test[name] for name in case.labels}
    rows = _rows(part=case.part, seed=case.seed, actual=actual, value=actual, **labels)
    return Result(part=case.part, seed=case.seed, rows=rows, build_s=(1.0,), trained_on=len(case.train))


def _refused(case: Case) -> Result:
    raise ValueError("too few runs")


def _perfect_but_sort(case: Case) -> Result:
    return _refused(case) if case.part == "A/sort" else _perfect(case)


@pytest.fixture
def record(data: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("FORETELL_DATA", str(data))
    return run_suite(replace(mlperf.SUITE, answer=_perfect), Plan(), jobs=1)


def test_a_set_becomes_a_record(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record)) == record
    assert record["intervals"]["coverage"] == 100.0
    assert record["repeats"] == {"largest": 1}
    assert record["figures"][0]["ours"] == 0.0
    assert record["build"]["median_runs"] == 10


def test_a_set_without_one_answer_is_an_error(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_DATA", str(data))
    with pytest.raises(ValueError, match=r"mlperf: no case could be answered.*too few runs"):
        run_suite(replace(mlperf.SUITE, answer=_refused), Plan(), jobs=1)


def test_a_case_that_fails_does_not_cost_the_others(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_DATA", str(data))
    told = run_suite(replace(c3o.SUITE, answer=_perfect_but_sort), Plan(repeats=1), jobs=1)
    assert told["failed"] == ["A/sort: ValueError: too few runs"]
    figures = {figure["name"]: figure["ours"] for figure in told["figures"]}
    assert figures["A, sort: mean error"] is None
    assert figures["A: mean error"] == 0.0


def test_sizey_is_not_compared_where_tasks_are_missing(data: Path) -> None:
    rows = _rows(part="flow/kept", quantity="memory", actual=1.0, value=1.0, waste=[2.0] * 27)
    share, wasted, _ = sizey.make_figures(rows, data / "sizey")
    assert math.isnan(share.ours)
    assert math.isnan(wasted.ours)
    assert wasted.ahead is False


def test_coverage_over_all_sets_counts_rows_and_sets(record: dict[str, Any]) -> None:
    other = {**record, "intervals": {"rows": 8, "coverage": 50.0, "mean_width": 10.0, "median_width": 5.0}}
    both = record_all([record, other])
    assert both["coverage_of_rows"] == pytest.approx((2 * 100 + 8 * 50) / 10)
    assert both["coverage_of_sets"] == 75.0
    assert both["least_coverage"] == 50.0


def test_the_page_gets_the_tables_between_its_marks(record: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    write_page([record], record_all([record]), page=page)
    text = page.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "| mean error | 0 % | 50 % (power law; perfect scaling 50.0) | ≤ 12 % | yes | yes |" in text


def test_a_page_without_marks_stays_as_it_is(record: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("mine\n", "utf-8")
    with pytest.raises(ValueError, match="no lines <!-- runs: begin -->"):
        write_page([record], record_all([record]), page=page)
    assert page.read_text("utf-8") == "mine\n"


def test_a_figure_without_a_number_is_not_reached() -> None:
    assert Figure(name="none", ours=float("nan"), goal=1.0).reached is False
