"""Each set is cut as its protocol says, and nothing to be predicted is learned from."""

from pathlib import Path

import pandas as pd
import pytest
from benchmarks.runs import c3o, harp, lotaru, mlperf, sia, sizey, stampede2
from benchmarks.runs.cases import Case, Plan, Suite
from benchmarks.runs.runner import check_apart
from benchmarks.runs.suites import SUITES


def _cases(suite: Suite, data: Path, plan: Plan | None = None) -> list[Case]:
    return list(suite.cases(data / suite.folder, plan or Plan(repeats=2, seeds=2)))


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_no_row_is_both_learned_from_and_asked(suite: Suite, data: Path) -> None:
    cases = _cases(suite, data)
    assert cases
    for case in cases:
        check_apart(case)
        assert set(case.labels) <= set(case.train.columns) & set(case.test.columns)


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_the_same_split_each_time(suite: Suite, data: Path) -> None:
    for case, again in zip(_cases(suite, data), _cases(suite, data), strict=True):
        pd.testing.assert_frame_equal(case.train, again.train)
        pd.testing.assert_frame_equal(case.test, again.test)


def test_a_row_in_both_tables_is_noticed() -> None:
    frame = pd.DataFrame({"x": [1, 2], "t": [1.0, 2.0]})
    case = Case(part="leak", train=frame, test=frame[1:], columns=harp.COLUMNS)
    with pytest.raises(AssertionError, match="leak"):
        check_apart(case)


def test_harp_holds_out_configurations_with_all_their_repetitions(data: Path) -> None:
    case = _cases(harp.SUITE, data)[0]
    assert len(case.test) == 8  # a quarter of 16 full-scale configurations, twice each
    assert len(case.train) == 64 - 8  # the copied rows are gone
    asked = set(case.test[["size", "workers"]].itertuples(index=False, name=None))
    learned = set(case.train[["size", "workers"]].itertuples(index=False, name=None))
    assert not asked & learned
    assert list(case.test.columns) == ["size", "workers", "walltime_s"]
    assert "run_type" in case.train.columns


def test_harp_draws_other_configurations_with_another_seed(data: Path) -> None:
    first, second = (case.test for case in _cases(harp.SUITE, data)[:2])
    assert set(first["size"] * first["workers"]) != set(second["size"] * second["workers"])


def test_c3o_takes_medians_of_one_machine(data: Path) -> None:
    runs = c3o.read_runs(data / "c3o" / "sgd.tsv", c3o.JOBS["sgd"])
    assert (
        len(runs) == 5 * 3 * 2 * 2
    )  # instances above 2, observations, features, iterations; data sizes are no feature
    sort = c3o.read_runs(data / "c3o" / "sort.tsv", c3o.JOBS["sort"])
    assert len(sort) == 6 * 6
    assert sort["gross_runtime"].iloc[0] == 100 / 2 + 1  # the middle one of three repetitions


def test_c3o_splits_by_protocol(data: Path) -> None:
    cases = [case for case in _cases(c3o.SUITE, data) if case.part.endswith("/grep")]
    sizes = {case.part: (len(case.train), len(case.test)) for case in cases}
    assert sizes == {
        "A/grep": (64, 8),
        "B/grep": (32, 4),
        "C6/grep": (6, 66),
        "C15/grep": (15, 57),
        "C30/grep": (30, 42),
    }
    contexts = [case.train["p_occurrence"].unique().tolist() for case in cases if case.part == "B/grep"]
    assert contexts == [[0.1], [0.2]]


def test_c3o_runs_as_often_as_asked_or_published(data: Path) -> None:
    assert len(Plan(repeats=2).draws(300)) == 2
    assert len(Plan(repeats=2, full=True).draws(300)) == 300


def test_lotaru_learns_at_home_and_asks_everywhere(data: Path) -> None:
    cases = {case.part: case for case in _cases(lotaru.SUITE, data)}
    assert len(cases) == 2 * 3  # tasks; all small runs, and six of either input
    everything = cases["all small runs/eager/align"]
    six = cases["six small runs/train-2/eager/align"]
    assert (len(everything.train), len(six.train)) == (20, 6)
    assert set(everything.train["Machine"]) == {"local"}
    assert len(everything.test) == 2 * 6  # the machine without benchmarks is left out
    assert six.test["published"].tolist() == pytest.approx((six.test["Realtime"] * 1.2).tolist())


def test_lotaru_takes_the_median_benchmark_or_what_is_usual_of_the_machine(data: Path) -> None:
    bench = lotaru.read_benchmarks(data / "lotaru").set_index(["Task", "Machine"])["bench_s"]
    assert (bench["align", "local"], bench["align", "n1"]) == (1, pytest.approx(1.5))
    assert bench["report", "n1"] == pytest.approx(1.5)  # it says 1.0 of every machine


def test_lotaru_believes_a_benchmark_as_much_as_the_machines_others(data: Path, tmp_path: Path) -> None:
    for machine in lotaru.MACHINES:
        path = f"bio-bench-{machine}.csv"
        table = pd.read_csv(data / "lotaru" / path)
        readings = ["Realtime1", "Realtime2", "Realtime3"]
        sort = table[:1].assign(Task="sort", **{name: table[name][:1] ** 3 for name in readings})
        pd.concat([table, sort]).to_csv(tmp_path / path, index=False)
    bench = lotaru.read_benchmarks(tmp_path).set_index(["Task", "Machine"])["bench_s"]
    usual = 1.5**2  # in logs the middle of 1.5 and its cube
    assert bench["report", "n1"] == pytest.approx(usual)
    assert bench["align", "n1"] == pytest.approx((1.5 * usual) ** 0.5)
    assert bench["sort", "n1"] == pytest.approx((1.5**3 * usual) ** 0.5)


def test_stampede2_draws_with_pandas(data: Path) -> None:
    cases = _cases(stampede2.SUITE, data)
    assert [case.part for case in cases] == ["amg/256", "kripke/256", "gemm/256", "geqrf/256"]
    train = pd.read_csv(data / "stampede2_apps" / "amg_train.csv.gz").sample(256, random_state=0)
    pd.testing.assert_frame_equal(cases[0].train, train)
    assert len(cases[0].test) == 40
    assert len(_cases(stampede2.SUITE, data, Plan(full=True))) == 8


def test_sizey_leaves_out_what_its_authors_left_out(data: Path) -> None:
    (case,) = _cases(sizey.SUITE, data)
    assert case.part == "flow/kept"
    assert (len(case.train), len(case.test)) == (12, 28)
    assert set(case.train.columns) == {"rchar", "realtime", "rss"}


def test_sizey_builds_when_runs_have_grown_by_some(data: Path) -> None:
    (case,) = _cases(sizey.SUITE, data)
    blocks = list(sizey.cut_blocks(case.train, case.test))
    pd.testing.assert_frame_equal(pd.concat(blocks), case.test)
    known = len(case.train)
    for block in blocks:
        assert len(block) <= max(1, 0.15 * known)
        known += len(block)


def test_mlperf_learns_from_all_but_the_largest(data: Path) -> None:
    (case,) = _cases(mlperf.SUITE, data)
    assert (len(case.train), len(case.test)) == (10, 2)
    assert set(case.test["org"]) == {"Acme"}
    assert case.test["twin"].all()  # Bolt's run of the same size is known
    assert set(case.train.columns) - set(case.labels) == {"round", "org", "benchmark", "acc", "n", "t"}


def test_sia_reads_placements_as_numbers(data: Path) -> None:
    steps = sia.read_steps(data / "sia_pollux" / "step_times.csv")
    assert steps[["gpus", "nodes", "gpus_per_node"]].to_numpy().tolist() == [
        [1, 1, 1],
        [4, 2, 3],
        [128, 16, 8],
        [10, 3, 4],
    ]
    assert steps["gpu"].tolist() == ["T4", "T4", "RTX 2080 Ti", "A100-40GB"]


def test_sia_goes_to_more_gpus_and_to_new_clusters(data: Path) -> None:
    cases = {case.part: case for case in _cases(sia.SUITE, data)}
    assert set(cases) == {"more GPUs", "new cluster/aws", "new cluster/rtx", "new cluster/dgx"}
    assert cases["more GPUs"].test["gpus"].min() > 4 >= cases["more GPUs"].train["gpus"].max()
    assert "aws" not in set(cases["new cluster/aws"].train["cluster"])
    assert cases["new cluster/aws"].labels == ("cluster",)
