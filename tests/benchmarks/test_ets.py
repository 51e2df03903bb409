"""``python -m benchmarks ets``: what is learned from, what is judged, what is printed."""

import json
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, Self

import numpy as np
import pytest
from benchmarks.__main__ import main
from benchmarks.ets import comparison, methods
from benchmarks.ets.comparison import Plan, compare, split_traces
from benchmarks.ets.table import Result, build_row, score
from benchmarks.ets.traces import Trace
from tests.steps.synthetic_steps import make_workload, measure

from foretell.core.devices import Device
from foretell.core.workload import MeasuredStep, Workload
from foretell.steps._base import StepModel, StepTimes


def make_traces(gpu: str, families: Collection[str]) -> list[Trace]:
    """Six traces of two variants for each family; those of another GPU take twice as long."""
    slow = {"T4": 1.0, "2080Ti": 2.0}[gpu]
    known = [family for family in families if family != "Nowhere"]
    return [
        Trace(
            step=measure(make_workload(number), lambda one: (slow * one.bytes_moved * 1e-9, slow * 1e-5)),
            model=f"{family}_{number % 2}",
            family=family,
            batch=8,
            size=32,
            clean=number % 3 > 0,
        )
        for family in known
        for number in range(6)
    ]


class HalfModel(StepModel):
    """Predicts half of the mean; with profiles, their whole mean."""

    def __init__(self, predicted_s: float = 0.0) -> None:
        self.predicted_s = predicted_s

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        self.predicted_s = float(np.mean([step.iteration_s for step in steps])) / 2
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        return [StepTimes(iteration_s=self.predicted_s, kernel_s=np.zeros(0), gap_s=np.zeros(0)) for _ in workloads]

    def to_state(self) -> Any:
        raise NotImplementedError

    @classmethod
    def from_state(cls, record: object, arrays: object) -> Self:
        raise NotImplementedError

    def refine(self, profiles: Sequence[MeasuredStep]) -> StepModel:
        return HalfModel(2 * HalfModel().fit(profiles).predicted_s)

    def transfer(self, device: Device, profiles: Sequence[MeasuredStep]) -> StepModel:
        return HalfModel(self.predicted_s * (1 if device.name == "T4" else 2))


@pytest.fixture(autouse=True)
def _traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "read_traces", make_traces)


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "make_model", lambda _name, _gpu: HalfModel())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["benchmarks", "ets", *words])
        main()
        return capsys.readouterr().out

    return call


FAMILIES = ("--train-families", "A,B", "--test-families", "C,D")


def test_errors_are_relative_and_signed() -> None:
    results = [Result(family="A", clean=True, predicted_s=predicted, measured_s=2.0) for predicted in (1.0, 2.0, 2.5)]
    found = score(results)
    assert found is not None
    assert (found.traces, found.median) == (3, 0)
    assert found.mre == pytest.approx((50 + 0 + 25) / 3)
    assert found.rmse_ms == pytest.approx(1e3 * np.sqrt((1 + 0 + 0.25) / 3))
    assert found.p10 < 0 < found.p90
    assert score([]) is None


def test_draws_are_averaged_with_their_spread() -> None:
    draws = [[Result(family="A", clean=False, predicted_s=predicted, measured_s=1.0)] for predicted in (1.1, 1.3)]
    row = build_row("x", draws)
    assert row.all_traces.mre == pytest.approx(20)
    assert row.draws_spread == pytest.approx(np.sqrt(200))
    assert row.clean_traces is None


def test_families_are_separate_and_random_tenths_are_not() -> None:
    train, test, others = split_traces(Plan(train=("A", "B"), test=("C",)))
    assert ({trace.family for trace in train}, {trace.family for trace in test}) == ({"A", "B"}, {"C"})
    assert others == []
    train, test, _ = split_traces(Plan(train=("A", "B"), test=("C", "D", "E"), random=True))
    assert (len(train), len(test)) == (27, 3)


def test_sample_takes_as_many_of_each_family() -> None:
    plan = Plan(train=("A", "B"), test=("C",), sample=2)
    train, test, _ = split_traces(plan)
    assert [trace.family for trace in train] == ["A", "A", "B", "B"]
    assert len(test) == 2
    assert [trace.model for trace in split_traces(plan)[0]] == [trace.model for trace in train]


@pytest.mark.usefixtures("half")
def test_profiles_are_not_part_of_the_errors() -> None:
    rows, _ = compare(Plan(train=("A",), test=("C", "D")), ["half"])
    assert [(row.seen, row.all_traces.traces) for row in rows] == [
        ("zero-shot", 12),
        ("+ 1 profile", 8),
        ("+ 2 profiles", 4),
        ("+ 1 chosen", 8),
        ("+ 2 chosen", 4),
    ]
    assert rows[0].draws_spread is None
    assert rows[1].draws_spread is not None


@pytest.mark.usefixtures("half")
def test_transfer_is_compared_on_the_other_gpu() -> None:
    rows, about = compare(Plan(train=("A",), test=("A2",), transfer="2080Ti"), ["half"])
    assert about["gpu"] == "2080Ti"
    assert [row.seen for row in rows] == ["as it is", "+ 0 traces", "+ 3 traces", "+ 10 traces", "+ 300 traces"]
    assert rows[0].all_traces.median < rows[1].all_traces.median


def test_objects_for_programs(run: Callable[..., str]) -> None:
    record = json.loads(run(*FAMILIES, "--methods", "roofline,paleo", "--json"))
    assert (record["learned from"], record["judged on"]) == (12, 12)
    assert [row["method"] for row in record["rows"]] == ["roofline", "paleo"]
    assert record["rows"][0]["all_traces"]["mre"] < 1
    assert set(record["rows"][0]["families"]) == {"C", "D"}
    assert record["references"][0]["unseen"] == "5.9"


def test_table_for_people(run: Callable[..., str]) -> None:
    out = run(*FAMILIES, "--methods", "roofline")
    assert "roofline" in out
    assert "published: ETS" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "oracle"], "no method named 'oracle'; known methods: .*ets.*roofline"),
        ([*FAMILIES[:2], "--test-families", "A"], "'A' is in the training and in the test families"),
        ([*FAMILIES[:2], "--test-families", "Nowhere"], "no traces of 'Nowhere' on 'T4'"),
    ],
)
def test_mistakes_are_named(run: Callable[..., str], words: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        run(*words)


def test_every_method_that_is_there_is_a_step_model() -> None:
    assert {"ets", "roofline", "paleo", "regression", "totals"} <= set(methods.list_methods())
    for name in methods.list_methods():
        assert isinstance(methods.make_model(name, "T4"), StepModel)
