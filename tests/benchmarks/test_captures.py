"""Captured workloads are kept between runs of the benchmarks."""

from pathlib import Path

import pytest
from benchmarks.gpus import captures

from foretell.core.workload import Gradient, Operator, StepPhase, Workload


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "FOLDER", tmp_path)


def _build() -> Workload:
    convolution = Operator(
        kind="conv2d",
        phase=StepPhase.FORWARD,
        inputs=((2, 3, 8, 8), (4, 3, 3, 3)),
        output=(2, 4, 6, 6),
        attributes=(("groups", 1), ("stride", (1, 1))),
        flops=7776.0,
    )
    return Workload(
        name="one",
        operators=(convolution, convolution),
        layers=("a", "b"),
        views=(0, 1),
        batch=2,
        settings={"precision": "float32"},
        parameters=108,
        sources=((), (0,)),
        gradients=(Gradient(bytes_=432, ready=1),),
    )


def test_a_kept_workload_is_the_captured_one() -> None:
    assert captures.cached("one", _build) == _build()
    again = captures.cached("one", _fail)
    assert again == _build()
    assert again.operators[0] is again.operators[1]
    assert again.operators[0].get("stride", 0) == (1, 1)


def test_a_broken_file_is_captured_again(tmp_path: Path) -> None:
    captures.cached("one", _build)
    for path in tmp_path.iterdir():
        path.write_bytes(b"half")
    assert captures.cached("one", _build) == _build()


def test_other_code_captures_again(monkeypatch: pytest.MonkeyPatch) -> None:
    captures.cached("one", _build)
    monkeypatch.setattr(captures, "hash_code", lambda: "other")
    with pytest.raises(AssertionError):
        captures.cached("one", _fail)


def _fail() -> Workload:
    raise AssertionError("captured again")
