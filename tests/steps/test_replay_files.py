"""A model of training steps that was written to a file predicts the same when it is loaded."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.steps.synthetic_steps import make_operator, make_workload, measure

from foretell.core.devices import Device
from foretell.core.model_files import load_model, save_model
from foretell.core.workload import Operator, Workload
from foretell.steps.replay import ReplayModel

DEVICE = Device(name="made up", kind="gpu", peak_flops=4e12, bandwidth_bytes=2e11, units=40, memory_bytes=2**34)
FACTS = {"device": "made up", "steps": 12, "off": {"median": 0.04}}


def law(operator: Operator) -> tuple[float, float]:
    return operator.bytes_moved / 1e11, 1e-5


@pytest.fixture(scope="module")
def model() -> ReplayModel:
    return ReplayModel(DEVICE).fit([measure(make_workload(seed), law) for seed in range(4)])


@pytest.fixture
def loaded(tmp_path: Path, model: ReplayModel) -> ReplayModel:
    path = tmp_path / "devices" / "made-up.safetensors"  # in a folder that does not exist yet
    save_model(path, model, FACTS)
    loaded, facts = load_model(path, [ReplayModel], remedy="fit it again")
    assert facts == FACTS
    return loaded


def predict(model: ReplayModel) -> list[list[float]]:
    """Predictions for known and unknown kinds of operators."""
    workload = make_workload(100)
    unknown = replace(workload, operators=(*workload.operators, make_operator("never_seen")))
    views = Workload(name="", operators=workload.operators, views=(2,) * len(workload.operators))
    return [[one.iteration_s, *one.kernel_s, *one.gap_s] for one in model.predict([workload, unknown, views])]


def test_loaded_model_predicts_the_same(loaded: ReplayModel, model: ReplayModel) -> None:
    assert predict(loaded) == predict(model)
    assert loaded.device == DEVICE


def test_loaded_model_can_be_refined_and_transferred(loaded: ReplayModel, model: ReplayModel) -> None:
    profile = measure(make_workload(50), lambda operator: (1.5 * law(operator)[0], 1e-5))
    workloads = [make_workload(100)]
    refined = [one.refine([profile]).predict(workloads)[0].iteration_s for one in (model, loaded)]
    assert refined[0] == refined[1]
    other = replace(DEVICE, peak_flops=8e12)
    assert predict(loaded.transfer(other, [profile])) == predict(model.transfer(other, [profile]))
