"""Models of training steps as files: what is read is what was written, and nothing else is taken for it."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.steps.synthetic_steps import make_operator, make_workload, measure

from foretell.core.devices import Device
from foretell.core.errors import MissingExtraError, StoreError
from foretell.core.workload import Operator, Workload
from foretell.steps.replay import ReplayModel
from foretell.steps.step_files import load_model, read_header, save_model

pytest.importorskip("safetensors")

DEVICE = Device(name="made up", kind="gpu", peak_flops=4e12, bandwidth_bytes=2e11, units=40, memory_bytes=2**34)
FACTS = {"device": "made up", "steps": 12, "off": {"median": 0.04}}


def law(operator: Operator) -> tuple[float, float]:
    return operator.bytes_moved / 1e11, 1e-5


@pytest.fixture(scope="module")
def model() -> ReplayModel:
    return ReplayModel(DEVICE).fit([measure(make_workload(seed), law) for seed in range(4)])


@pytest.fixture
def path(tmp_path: Path, model: ReplayModel) -> Path:
    found = tmp_path / "devices" / "made-up.safetensors"  # in a folder that is not there yet
    save_model(found, model, FACTS)
    return found


def ask(model: ReplayModel) -> list[list[float]]:
    """Answers for known and unknown words."""
    workload = make_workload(100)
    strange = replace(workload, operators=(*workload.operators, make_operator("never_seen")))
    views = Workload(name="", operators=workload.operators, views=(2,) * len(workload.operators))
    return [[one.iteration_s, *one.kernel_s, *one.gap_s] for one in model.predict([workload, strange, views])]


def test_a_model_answers_as_before(path: Path, model: ReplayModel) -> None:
    again, facts = load_model(path)
    assert isinstance(again, ReplayModel)
    assert ask(again) == ask(model)
    assert again.device == DEVICE
    assert facts == FACTS


def test_a_model_that_was_read_is_refined_and_carried_on(path: Path, model: ReplayModel) -> None:
    again, _ = load_model(path)
    assert isinstance(again, ReplayModel)
    profile = measure(make_workload(50), lambda operator: (1.5 * law(operator)[0], 1e-5))
    asked = [make_workload(100)]
    told = [one.refine([profile]).predict(asked)[0].iteration_s for one in (model, again)]
    assert told[0] == told[1]
    other = replace(DEVICE, peak_flops=8e12)
    assert ask(again.transfer(other, [profile])) == ask(model.transfer(other, [profile]))


def test_what_is_written_again_replaces_what_was_there(path: Path, model: ReplayModel) -> None:
    save_model(path, model, {"steps": 13})
    assert load_model(path)[1] == {"steps": 13}


def test_the_header_tells_what_is_inside(path: Path) -> None:
    said = read_header(path)
    assert said["model"] == "replay"
    assert json.loads(said["facts"]) == FACTS


def lay(header: object) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no header"),
        (b"just some text", "no header"),
        (b"\xff" * 40, "no header"),
        (lay([1, 2]), "version None instead of '1'"),
        (lay({}), "version None instead of '1'"),
        (lay({"__metadata__": {"version": "999", "model": "replay"}}), "version '999' instead of '1'"),
        (lay({"__metadata__": {"version": "1", "model": "oracle"}}), "'oracle'"),
        (lay({"__metadata__": {"version": "1", "model": "replay", "facts": "{}"}}), "'record'"),
        (lay({"__metadata__": {"version": "1", "model": "replay", "record": "no JSON", "facts": "{}"}}), "Expecting"),
    ],
)
def test_files_that_are_none_of_ours_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "odd.safetensors"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"odd.safetensors: .*{reason}.*learn the device again"):
        load_model(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere\.safetensors"):
        load_model(tmp_path / "nowhere.safetensors")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, model: ReplayModel) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"below\.safetensors: cannot be written"):
        save_model(tmp_path / "file" / "below.safetensors", model, {})


def test_without_safetensors_its_extra_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'foretell\[torch\]'"):
        load_model(path)
