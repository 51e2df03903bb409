"""What scripts do beyond a plain loop is answered, and the step is the one that they repeat."""

from pathlib import Path

import pytest
from tests.workloads.recorded_scripts import Job, run_scripts
from tests.workloads.unusual_scripts import SCRIPTS

from foretell.core.workload import StepPhase
from foretell.workloads.scripts.script_facts import RecordedScript

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    folder = tmp_path_factory.mktemp("unusual")
    for name, text in SCRIPTS.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return run_scripts("record", folder, {name: str(folder / f"{name}.py") for name in SCRIPTS})


def load(recorded: dict[str, Job], name: str) -> RecordedScript:
    return recorded[name].load(name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_its_step_is_recorded_on_the_gpu(recorded: dict[str, Job], name: str) -> None:
    script = load(recorded, name)
    assert {each.phase for each in script.workload.operators} == set(StepPhase)
    assert script.facts.gpu or name == "default_tensor_type"  # which calls no module


def count_products(script: RecordedScript) -> float:
    return script.workload.product_flops


def test_trials_of_the_model_before_the_training_are_no_part_of_the_step(recorded: dict[str, Job]) -> None:
    script = load(recorded, "trial_calls")
    assert script.workload.batch == 8
    assert count_products(script) == 2 * 8 * (2 * 16 * 32 + 3 * 32 * 4)  # no gradient of the input


def test_step_has_every_model_that_learns_in_turn(recorded: dict[str, Job]) -> None:
    script = load(recorded, "toggled_models")
    assert not script.waiting
    forward = 2 * 5 * (8 * 16 + 16)
    first, second = 2 * 5 * (8 * 16 + 16), 2 * 5 * 16  # their gradients
    assert count_products(script) == 2 * forward + first + second


def test_lazy_parameters_count_with_the_shape_that_they_get(recorded: dict[str, Job]) -> None:
    script = load(recorded, "lazy_modules")
    assert script.workload.parameters == 4 * 27 + 4 + 5 * 144 + 5
    assert script.workload.batch == 6


def test_step_of_a_thread_has_no_work_of_another_one(recorded: dict[str, Job]) -> None:
    operators = load(recorded, "threads").workload.operators
    assert [each.kind for each in operators if each.phase is StepPhase.FORWARD] == ["linear", "relu", "linear", "sum"]


def test_precision_is_that_in_which_fsdp_computes(recorded: dict[str, Job]) -> None:
    workload = load(recorded, "sharded").workload
    assert workload.settings["precision"] == "bf16"
    products = [each for each in workload.operators if each.kind == "linear"]
    assert {each.dtype for each in products} == {"bfloat16"}
    assert {each.dtype for each in workload.operators if each.phase is StepPhase.UPDATE} == {"float32"}


def test_tf32_is_known_by_its_new_name(recorded: dict[str, Job]) -> None:
    assert load(recorded, "new_precision_names").workload.settings["precision"] == "tf32"


def test_double_precision_is_not_called_single(recorded: dict[str, Job]) -> None:
    assert load(recorded, "double").workload.settings["precision"] == "fp64"


def test_operators_of_extensions_are_named_as_unknown(recorded: dict[str, Job]) -> None:
    """Also those that run on no CPU."""
    assert load(recorded, "own_operators").workload.unknown == {"own::gate": 1}


def test_flex_attention_counts_and_takes_no_memory(recorded: dict[str, Job]) -> None:
    """Its scores would be 256 MB."""
    operators = load(recorded, "flex_attention").workload.operators
    flops = {each.phase: each.product_flops for each in operators if each.kind == "flex_attention"}
    product = 2 * 2 * 2 * 4096 * 4096 * 16
    assert flops == {StepPhase.FORWARD: 2 * product, StepPhase.BACKWARD: 5 * product}


def test_learning_rate_is_that_after_the_warm_up(recorded: dict[str, Job]) -> None:
    assert load(recorded, "warm_up").facts.learning_rate == 0.1


def test_open_files_have_all_that_was_written(recorded: dict[str, Job]) -> None:
    assert (recorded["open_log"].folder / "log.csv").read_text() == "step,loss\n0,"
    assert [Path(path).name for path in load(recorded, "open_log").created] == ["log.csv"]
