"""Measured steps are loaded from files as they were saved."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from foretell.core.errors import ImportDataError, NotFoundError, OutputError
from foretell.core.workload import MeasuredStep, Operator, StepPhase, Workload
from foretell.workloads.measurement_files import Profile, load_profile, save_profile, to_record

CONV = Operator(
    kind="conv2d",
    phase=StepPhase.FORWARD,
    inputs=((8, 3, 32, 32), (16, 3, 3, 3)),
    output=(8, 16, 30, 30),
    attributes=(("groups", 1), ("stride", (1, 1))),
    flops=1e6,
    bytes_moved=1e5,
    parameters=432,
    kernels=2,
    input_gradient=False,
)
ADD = Operator(kind="add_", phase=StepPhase.UPDATE, inputs=((16,), (16,)), output=(16,), dtype="bfloat16")
WORKLOAD = Workload(
    name="made",
    operators=(CONV, ADD, CONV),
    layers=("stem", "", "head.0"),
    views=(0, 2, 1),
    batch=8,
    settings={"optimizer": "sgd"},
    parameters=432,
)
PROFILE = Profile(
    step=MeasuredStep(
        workload=WORKLOAD,
        device="cpu",
        iteration_s=0.0123456789,
        kernel_s=np.array([0.001, np.nan, 0.002]),
        span_s=np.array([0.001, np.nan, 0.003]),
        start_s=np.array([0.0, np.nan, 0.004]),
        launch_s=np.array([-0.001, np.nan, 0.004]),
    ),
    steps=12,
    spread=0.02,
    overhead=0.05,
    load=0.3,
    facts={"threads": "2"},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "step.json"


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**to_record(PROFILE), **values}))


def test_a_saved_profile_is_loaded(path: Path) -> None:
    save_profile(PROFILE, path)
    found = load_profile(path)
    assert found.step.workload == WORKLOAD
    assert found.step.workload.operators[0] is found.step.workload.operators[2]
    for name in ("kernel_s", "span_s", "start_s", "launch_s"):
        np.testing.assert_allclose(getattr(found.step, name), getattr(PROFILE.step, name), atol=1e-9)
    for field in fields(Profile):
        if field.name != "step":
            assert getattr(found, field.name) == getattr(PROFILE, field.name)


def test_files_are_plain_json(path: Path) -> None:
    save_profile(PROFILE, path)
    record = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert record["version"] == 1
    assert len(record["workload"]["operators"]) == 2
    assert record["workload"]["order"] == [0, 1, 0]
    assert record["kernel_s"] == [0.001, None, 0.002]


def test_a_missing_file_says_how_to_make_one(path: Path) -> None:
    with pytest.raises(NotFoundError, match="foretell workload profile"):
        load_profile(path)


@pytest.mark.parametrize("text", ["", "no json", "[1]", "{}", '{"format": "something"}'])
def test_other_files_are_refused(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ImportDataError, match=r"step\.json: .*foretell workload profile"):
        load_profile(path)


def test_a_later_format_is_refused(path: Path) -> None:
    change(path, version=2)
    with pytest.raises(ImportDataError, match="version 2 of the format; expected 1"):
        load_profile(path)


@pytest.mark.parametrize("values", [{"kernel_s": [0.1]}, {"workload": {}}, {"iteration_s": "long"}, {"facts": 3}])
def test_invalid_profiles_are_refused(path: Path, values: dict[str, object]) -> None:
    change(path, **values)
    with pytest.raises(ImportDataError, match="measure again"):
        load_profile(path)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        save_profile(PROFILE, tmp_path / "nowhere" / "step.json")
