"""Training steps from Python: values of users are converted, and devices are fitted on profiles."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import foretell
from foretell.core.errors import SpecError, WorkloadError
from foretell.steps import api as workloads

NET = """
from torch import nn


def build_model():
    return nn.Linear(16, 4)
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given_net.py").write_text(NET)
    return "given_net:build_model"


def test_a_step_is_read_from_text_arguments(source: str) -> None:
    options = foretell.StepOptions(optimizer="adam", loss="mse")
    workload = foretell.read_workload(source, ["8,16"], options=options, batch=32)
    assert (workload.batch, workload.parameters) == (32, 68)
    assert workload.settings["optimizer"] == "adam"
    assert [operator.kind for operator in workload.operators][:2] == ["linear", "mse_loss"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ("False", False),
        ("none", None),
        ("[3,4,6,3]", [3, 4, 6, 3]),
        ("'3'", "3"),
        ("relu", "relu"),
        ("__import__('os')", "__import__('os')"),
        ("", ""),
        ("(" * 500, "(" * 500),
        (7, 7),
    ],
)
def test_arguments_are_converted_to_values(text: object, value: object) -> None:
    assert workloads.read_arguments({"name": text}) == {"name": value}


def test_unusable_values_are_errors(source: str) -> None:
    with pytest.raises(SpecError, match="from 1"):
        foretell.read_workload(source, ["8,16"], batch=-1)
    with pytest.raises(SpecError, match="SHAPE"):
        foretell.read_workload(source, ["many"])
    with pytest.raises(WorkloadError, match="inputs of the model are unknown"):
        foretell.profile_workload(source, store="store.db")
    with pytest.raises(SpecError, match="optimizer"):
        foretell.StepOptions(optimizer="luck")


def test_only_profiles_of_the_same_conditions_are_used(source: str, tmp_path: Path) -> None:
    kept = foretell.profile_workload(
        source, ["8,16"], seconds=1e-3, store=tmp_path / "store.db", folder=tmp_path / "kept"
    )
    step, threads = kept.profile.step, int(kept.profile.facts["threads"])
    assert kept.path.parent == tmp_path / "kept" / "profiles"
    record = json.loads(kept.path.read_text())
    for name, change in (("other", {"device": "T4"}), ("more", {"facts": {"threads": "99"}})):
        kept.path.with_name(f"{name}.json").write_text(json.dumps({**record, **change}))
    (found,) = workloads._find_profiles(kept.path.parent, device=step.device, threads=threads)
    assert found.workload == replace(step.workload, sources=())  # which files leave out
    assert workloads._find_profiles(tmp_path / "nowhere", device=step.device, threads=threads) == []
