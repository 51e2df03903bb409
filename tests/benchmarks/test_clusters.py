"""``python -m benchmarks clusters`` as it is called, on steps of which all is known."""

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from benchmarks.__main__ import main
from benchmarks.clusters.questions import ask_shots, choose_placements, read_rows

SPEED = {"aws": 1.0, "rtx": 1.8, "dgx": 3.5}
PLACEMENTS = ("1", "2", "4", "11", "22", "111", "8", "44", "88")


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Steps that compute in proportion to the batch, and then send by a ring."""
    rows = []
    for cluster, digits, batch in itertools.product(SPEED, PLACEMENTS, (8, 16, 32)):
        count = sum(map(int, digits))
        sync = 0.02 * 2 * (count - 1) / count * (3 if len(digits) > 1 else 1)
        rows.append(("bert", "placements", cluster, f"{digits}.0", batch, batch * 0.01 / SPEED[cluster] + sync, sync))
    columns = ["workload", "kind", "cluster", "placement", "local_bsz", "step_time", "sync_time"]
    table = pd.DataFrame(rows, columns=columns).assign(num_nodes=None, num_replicas=None)
    derived = table.iloc[:1].assign(workload="gpt_pmp")
    counted = table.iloc[:1].assign(placement=None, num_nodes=3.0, num_replicas=4.0, step_time=0.16, sync_time=0.08)
    path = tmp_path / "sia_pollux" / "step_times.csv"
    path.parent.mkdir()
    pd.concat([table, derived, counted]).to_csv(path, index=False)
    monkeypatch.setenv("FORETELL_DATA", str(tmp_path))
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["benchmarks", "clusters", *words])
        main()
        return capsys.readouterr().out

    return call


def test_rows_say_where_their_gpus_are_and_what_is_known_of_them(steps: Path) -> None:
    rows = read_rows(steps)
    assert {row.placed.workload for row in rows} == {"bert"}
    assert {row.placed.gpus for row in rows if row.placed.cluster == "aws"} >= {(1,), (2, 2), (1, 1, 1)}
    placed = next(row.placed for row in rows if row.placed.cluster == "rtx")
    assert placed.device is not None
    assert placed.device.bandwidth_bytes == pytest.approx(616e9)
    assert placed.link_bytes_per_s == pytest.approx(50e9 / 8)
    assert rows[-1].placed.gpus == (2, 1, 1)


def test_the_first_placements_are_a_gpu_a_node_and_two_nodes() -> None:
    assert choose_placements({(1,), (2,), (8,), (8, 8), (4, 4)}) == [(1,), (8,), (8, 8)]
    assert choose_placements({(1,), (2,), (3,), (4,)}) == [(1,), (4,), (2,)]


def test_measured_placements_are_not_asked(steps: Path) -> None:
    asked = ask_shots(read_rows(steps), "dgx", 2)
    assert set(asked["cluster"]) == {"dgx"}
    assert len(asked) == 3 * (len(PLACEMENTS) - 2)


def test_more_gpus_and_a_new_cluster_as_an_object(steps: Path, run: Callable[..., str]) -> None:
    told = json.loads(run("more", "dgx", "rtx", "--json"))
    assert told["more"]["rows"] == 3 * 3 * 3
    assert told["more"]["mean_error"] < 10
    assert set(told["dgx"]["measured_placements"]) == {"1", "2", "3"}
    assert told["new"]["mean_error"] == pytest.approx((told["dgx"]["mean_error"] + told["rtx"]["mean_error"]) / 2)


def test_small_tables_are_asked_for_twice_as_many_gpus(steps: Path, run: Callable[..., str]) -> None:
    told = json.loads(run("one_node", "--json"))["one_node"]
    assert (told["tables"], told["rows"]) == (3, 3 * 3)  # 16 GPUs of each cluster, three batches
    assert told["coverage"] > 50


def test_tables_for_people(steps: Path, run: Callable[..., str]) -> None:
    out = run("more")
    assert "≤ 10" in out
    assert "More GPUs" in out


def test_a_question_nobody_knows_is_refused(steps: Path, run: Callable[..., str]) -> None:
    with pytest.raises(SystemExit, match="no question named 'mars'; known questions: one_node, two_nodes, more, aws"):
        run("mars")
