"""What a script's process writes is read with suspicion: it is the user's own code."""

import copy
import json
from typing import Any

import pytest

from foretell.core.errors import WorkloadError
from foretell.core.workload import Operator, StepPhase, Workload
from foretell.workloads.measurement_files import workload_to_record
from foretell.workloads.scripts.command_checks import check_command
from foretell.workloads.scripts.script_command import CommandOutcome
from foretell.workloads.scripts.script_facts import ScriptFacts, facts_to_record
from foretell.workloads.scripts.script_results import build_recorded, describe_command
from foretell.workloads.scripts.written_files import list_files


def build_record() -> dict[str, Any]:
    """A valid result."""
    operators = tuple(
        Operator(kind="linear", phase=phase, inputs=((4, 2), (3, 2)), output=(4, 3), flops=48.0)
        for phase in (StepPhase.FORWARD, StepPhase.BACKWARD)
    )
    workload = Workload(
        name="x", operators=operators, layers=("a", "a"), views=(0, 0), settings={"precision": "fp32"}, parameters=6
    )
    return {
        "workload": workload_to_record(workload),
        "sources": [[], [0]],
        "facts": facts_to_record(ScriptFacts(optimizer="SGD", learning_rate=0.1, samples=10)),
        "waiting": [],
    }


def read(text: str, events: tuple[dict[str, Any], ...] = ()) -> Any:
    outcome = CommandOutcome(code=0, result=text, events=list(events))
    return build_recorded(["python", "train.py"], outcome, timeout_s=1)


def test_result_is_read_as_written() -> None:
    script = read(json.dumps(build_record()))
    assert script.workload.name == "train.py"
    assert script.workload.sources == ((), (0,))
    assert script.facts.samples == 10
    assert not script.warnings


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"x"', "{}", "[" * 10_000, '{"workload": 1}', "NaN"])
def test_garbage_is_one_message(text: str) -> None:
    with pytest.raises(WorkloadError, match=r"train.py wrote is not a recorded step"):
        read(text)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("sources",), [[], [1]]),
        (("sources",), [[], [-1]]),
        (("sources",), [[]]),
        (("workload", "order"), [0, 99]),
        (("workload", "layers"), ["a"]),
        (("workload", "views"), None),
        (("workload", "operators"), "all"),
        (("workload", "gradients"), [[4, 77]]),
        (("workload", "batch"), "many"),
        (("workload", "settings"), 3),
        (("facts", "samples"), -1),
        (("facts", "epochs"), True),
        (("facts", "epochs"), 1.5),
        (("facts", "processes"), None),
        (("facts", "load_s"), -1.0),
        (("facts", "load_s"), "soon"),
        (("facts", "load_s"), float("inf")),
        (("facts", "saves_per_epoch"), True),
        (("facts", "batch_size"), 1.5),
        (("facts",), []),
        (("waiting",), 5),
    ],
)
def test_wrong_values_are_one_message(path: tuple[str, ...], value: Any) -> None:
    record = copy.deepcopy(build_record())
    place = record
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(WorkloadError, match="not a recorded step"):
        read(json.dumps(record))


@pytest.mark.parametrize("name", ["workload", "sources", "facts", "waiting"])
def test_missing_parts_are_one_message(name: str) -> None:
    record = build_record()
    del record[name]
    with pytest.raises(WorkloadError, match="not a recorded step"):
        read(json.dumps(record))


def test_length_of_a_training_follows_from_its_parts() -> None:
    facts = ScriptFacts(epochs=3, batches=10, accumulation=4, batch_size=8)
    assert (facts.examples_per_step, facts.steps_per_epoch, facts.total_steps) == (32, 3, 9)
    assert ScriptFacts(steps=7, epochs=3, batches=10).total_steps == 7
    assert ScriptFacts(epochs=3).total_steps is None
    assert ScriptFacts(batches=3).total_steps is None


def test_step_without_operators_is_refused() -> None:
    record = build_record()
    record["workload"] |= {"operators": [], "order": [], "layers": [], "views": []}
    record["sources"] = []
    with pytest.raises(WorkloadError, match="has no operators"):
        read(json.dumps(record))


def test_files_are_named_by_their_new_folder(tmp_path: Any) -> None:
    (tmp_path / "new" / "deep").mkdir(parents=True)
    (tmp_path / "new" / "deep" / "a.txt").touch()
    (tmp_path / "old.txt").touch()
    names = [("new", True), ("new/deep/a.txt", True), ("old.txt", False), ("gone.txt", True)]
    events: list[dict[str, Any]] = [
        {"kind": "file", "path": str(tmp_path / name), "created": new} for name, new in names
    ]
    odd: list[dict[str, Any]] = [
        {"kind": "file"},
        {"kind": "file", "path": 7},
        {"kind": "file", "path": "\0"},
        {"kind": "other"},
    ]
    files = list_files([*events, *odd])
    assert files == {"created": (str(tmp_path / "new"),), "changed": (str(tmp_path / "old.txt"),)}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python", "-u", "src/train.py", "--lr", "1"], "src/train.py"),
        (["torchrun", "--nproc_per_node=1", "train.py"], "train.py"),
        (["python", "-m", "package.train", "x=1"], "package.train"),
        (["python", "-m", "torch.distributed.run", "train.py"], "train.py"),
        (["mytrainer", "--config", "a b"], "mytrainer --config 'a b'"),
    ],
)
def test_command_is_called_by_its_script(words: list[str], name: str) -> None:
    assert describe_command(words) == name


@pytest.mark.parametrize("count", ["1", "auto", "gpu", "1:1"])
def test_one_process_is_accepted(count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda word: f"/usr/bin/{word}")
    check_command(["torchrun", "--nproc_per_node", count, "--nnodes=1", "train.py"])
    check_command(["mytrainer", "--num_processes", "8"])  # of a program of the user's own


def test_several_nodes_started_by_mpi_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda word: f"/usr/bin/{word}")
    with pytest.raises(WorkloadError, match=r"srun starts several processes.*Leave it out"):
        check_command(["srun", "-n", "4", "python", "train.py"])
