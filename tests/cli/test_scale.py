"""``foretell consumption scale``: how many GPUs are worth requesting, and mistakes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.cli.test_workload import assert_refused
from tests.measured_steps import TWO_NODES, measure

from foretell.distributed.placed_steps import TimedStep, render_placement

Run = Callable[..., Any]

SCALE = ("consumption", "scale", "steps.csv")


def save(rows: list[TimedStep], path: Path) -> None:
    records = [
        {
            "workload": row.placed.workload,
            "cluster": row.placed.cluster,
            "batch": row.placed.batch,
            "gpus": render_placement(row.placed.gpus),
            "step_s": row.step_s,
        }
        for row in rows
    ]
    pd.DataFrame(records).to_csv(path, index=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, foretell: Run) -> Run:
    folder = tmp_path_factory.mktemp("scale")
    save(measure(TWO_NODES), folder / "steps.csv")
    save([*measure(TWO_NODES), *measure(TWO_NODES, workload="other")], folder / "both.csv")
    save(measure([(1,)]), folder / "alone.csv")
    (folder / "odd.csv").write_text("batch,gpus\n1,1\n")
    (folder / "empty.csv").write_text("batch,gpus,step_s\n")
    return partial(foretell, folder=folder)


def test_a_recommendation_as_text(run: Run) -> None:
    outcome = run(*SCALE)
    assert outcome.code == 0, outcome.err
    words = "net on lab, batch 32 for each GPU", "Request", "Examples/s", "GPU h/M", "2x4", "4x4"
    for word in words:
        assert word in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_a_recommendation_as_json(run: Run) -> None:
    words = "--gpus 1 --gpus 4+2 --gpus 3x4 --batch 16 --level 80% --efficiency 50% --workload net --cluster lab"
    predicted = run(*SCALE, *words.split(), "--json").record
    assert [each["placement"] for each in predicted["placements"]] == ["1", "4+2", "3x4"]
    assert (predicted["batch"], predicted["efficiency_wanted"]) == (16, 0.5)
    assert [each["step_s"]["level"] for each in predicted["placements"]] == pytest.approx([0.8] * 3)
    assert predicted["placements"][0]["measured_s"] == pytest.approx(0.18)


def test_doublings_are_the_default(run: Run) -> None:
    predicted = run(*SCALE, "--json").record
    assert [each["placement"] for each in predicted["placements"]] == ["1", "2", "4", "2x4", "4x4"]


def test_a_cluster_that_is_not_in_the_table_is_predicted_by_its_figures(run: Run) -> None:
    outcome = run(*SCALE, "--cluster", "away", "--device", "A100", "--link", "100Gb", "--gpus", "2x8")
    assert outcome.code == 0, outcome.err
    assert "No step on away was measured, only on lab" in outcome.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("nosuch.csv", ["nosuch.csv", "no such file"]),
        ("odd.csv", ["'step_s'", "batch, gpus"]),
        ("empty.csv", ["no rows"]),
        ("alone.csv", ["more than one GPU", "Measure a step on two GPUs"]),
        ("both.csv", ["workload", "net, other"]),
        ("steps.csv --workload nosuch", ["'nosuch'", "net"]),
        ("steps.csv --gpus 4,4", ["--gpus", "'4,4'", "2x8"]),
        ("steps.csv --batch 0", ["batch", "above 0"]),
        ("steps.csv --batch inf", ["batch", "finite"]),
        ("steps.csv --cluster typo", ["'typo'", "lab", "pass its device or link"]),
        ("steps.csv --cluster lab --device T4", ["device and link", "neither for lab"]),
        ("steps.csv --cluster away --device abacus", ["'abacus'", "foretell device list"]),
        ("steps.csv --link fast", ["--link", "'fast'", "10Gb"]),
        ("steps.csv --efficiency 2", ["--efficiency", "'2'"]),
        ("steps.csv --level 2", ["--level", "'2'"]),
    ],
)
def test_a_mistake_is_one_message(run: Run, words: str, expected: list[str]) -> None:
    assert_refused(run("consumption", "scale", *words.split()), *expected)
