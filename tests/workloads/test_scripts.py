"""Scripts as users write them: each gives the operators of its first step, and leaves nothing behind."""

from pathlib import Path

import pytest
from tests.workloads.recorded_scripts import NAMES, PACKAGE, Job, run_scripts

from foretell.core.workload import StepPhase, Workload
from foretell.workloads.scripts.script_facts import RecordedScript

pytest.importorskip("accelerate")
pytest.importorskip("lightning")
pytestmark = pytest.mark.slow

WRITE = {"bert_trainer": ["bert-out"]}  # what a script writes before its first step ends


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    return run_scripts("record", tmp_path_factory.mktemp("scripts"))


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    return run_scripts("count", tmp_path_factory.mktemp("scripts"))


def load(recorded: dict[str, Job], name: str) -> RecordedScript:
    return recorded[name].load(name)


def list_phases(workload: Workload) -> list[StepPhase]:
    """Phases in the order in which they follow each other."""
    phases = [operator.phase for operator in workload.operators]
    return [phase for place, phase in enumerate(phases) if place == 0 or phases[place - 1] is not phase]


def test_there_are_enough_scripts() -> None:
    assert len(NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
def test_products_are_those_that_pytorch_counts(recorded: dict[str, Job], counted: dict[str, Job], name: str) -> None:
    workload = load(recorded, name).workload
    assert workload.product_flops == pytest.approx(counted[name].flops, rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_step_is_whole(recorded: dict[str, Job], name: str) -> None:
    script = load(recorded, name)
    phases = list_phases(script.workload)
    assert phases[0] is StepPhase.FORWARD
    assert phases[-1] is StepPhase.UPDATE
    assert script.workload.parameters > 0 or name == "raw_tensors"
    assert script.workload.gradients or name == "raw_tensors"
    assert sum(map(len, script.workload.sources)) >= len(script.workload.operators) / 2
    assert not script.waiting


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_behind(recorded: dict[str, Job], name: str) -> None:
    job = recorded[name]
    assert [path.name for path in job.find_files()] == WRITE.get(name, [])
    script = load(recorded, name)
    assert [Path(path).name for path in script.created] == WRITE.get(name, [])
    assert not script.changed
    assert ("script-wrote-files" in {each.code for each in script.warnings}) == (name in WRITE)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (
            "image_classification",
            {"optimizer": "sgd", "implementation": "foreach", "precision": "fp32", "accumulation": "1"},
        ),
        ("char_gpt", {"optimizer": "adamw", "implementation": "fused", "precision": "bf16", "accumulation": "3"}),
        ("bert_trainer", {"optimizer": "adamw", "precision": "fp16", "accumulation": "2"}),
        ("lightning_images", {"optimizer": "adamw", "precision": "fp16", "accumulation": "2"}),
        ("accelerate_loop", {"optimizer": "adamw", "precision": "bf16", "accumulation": "2"}),
        ("amp_scaler", {"precision": "fp16"}),
        ("bf16_autocast", {"precision": "bf16"}),
        ("accumulation", {"optimizer": "rmsprop", "accumulation": "4"}),
        ("checkpointing", {"checkpointing": "yes"}),
        ("compiled", {"compile": "yes", "channels_last": "yes", "implementation": "fused"}),
        ("lora", {"precision": "pure-bf16"}),
        ("lbfgs", {"optimizer": "lbfgs", "accumulation": "4"}),
        ("gan", {"accumulation": "1"}),
    ],
)
def test_settings_are_those_of_the_script(recorded: dict[str, Job], name: str, settings: dict[str, str]) -> None:
    found = load(recorded, name).workload.settings
    assert {key: found[key] for key in settings} == settings


@pytest.mark.parametrize(
    ("name", "batch", "facts"),
    [
        ("image_classification", 8, {"samples": 100, "batches": 13, "epochs": 90, "learning_rate": 0.1, "gpu": True}),
        ("bert_trainer", 4, {"samples": 64, "batches": 16, "epochs": 3}),
        ("lightning_images", 8, {"samples": 64, "batches": 8, "epochs": 5}),
        ("char_gpt", 4, {"steps": 2000, "optimizer": "AdamW"}),
        ("ddp_torchrun", 16, {"processes": 1, "wrappers": ("DistributedDataParallel",)}),
        ("vae", 16, {"epochs": 10, "samples": 64}),
        ("policy_gradient", 1, {"gpu": False, "samples": None, "epochs": None}),
        ("raw_tensors", 64, {"epochs": 10}),
        (PACKAGE, 8, {"samples": 108}),
    ],
)
def test_facts_of_the_training_are_found(
    recorded: dict[str, Job], name: str, batch: int, facts: dict[str, object]
) -> None:
    script = load(recorded, name)
    assert script.workload.batch == batch
    assert {key: getattr(script.facts, key) for key in facts} == facts


def test_data_and_evaluations_before_the_training_are_no_part_of_the_step(recorded: dict[str, Job]) -> None:
    workload = load(recorded, "unet_segmentation").workload
    first = [
        operator for operator, layer in zip(workload.operators, workload.layers, strict=True) if layer == "down1.0"
    ]
    assert [each.phase for each in first] == [StepPhase.FORWARD, StepPhase.BACKWARD]
    forward = {each.kind for each in load(recorded, "char_gpt").workload.operators if each.phase is StepPhase.FORWARD}
    assert "linear" in forward
    assert "stack" not in forward


def test_frozen_teacher_is_part_of_the_step(recorded: dict[str, Job]) -> None:
    workload = load(recorded, "distillation").workload
    widths = [
        each.output[-1] for each in workload.operators if each.kind == "linear" and each.phase is StepPhase.FORWARD
    ]
    assert widths == [128, 6, 16, 6]


def test_both_models_of_a_gan_are_named_and_updated(recorded: dict[str, Job]) -> None:
    workload = load(recorded, "gan").workload
    layers = set(workload.layers)
    assert {"Generator.main.0", "Discriminator.main.0"} <= layers
    assert list_phases(workload).count(StepPhase.UPDATE) == 2


def test_casts_are_those_of_the_autocast_of_a_gpu(recorded: dict[str, Job]) -> None:
    workload = load(recorded, "amp_scaler").workload
    types = {operator.kind: operator.dtype for operator in workload.operators if operator.phase is StepPhase.FORWARD}
    assert types["conv2d"] == types["linear"] == "float16"
    assert types["cross_entropy"] == "float32"
    assert "_amp_foreach_non_finite_check_and_unscale_" in {each.kind for each in workload.operators}


def test_checkpointed_parts_are_computed_again(recorded: dict[str, Job]) -> None:
    operators = load(recorded, "checkpointing").workload.operators
    again = [each.kind for each in operators if each.phase is StepPhase.FORWARD and each.get("recomputed", 0)]
    assert again.count("gelu") == 4


def test_first_update_is_that_of_a_training_under_way(recorded: dict[str, Job]) -> None:
    """Not the first one, which creates the momentum instead of using it."""
    kinds = [each.kind for each in load(recorded, "ddp_torchrun").workload.operators if each.phase is StepPhase.UPDATE]
    assert kinds == ["_foreach_add_"]
    momentum = load(recorded, "image_classification").workload
    assert "_foreach_mul_" in [each.kind for each in momentum.operators if each.phase is StepPhase.UPDATE]


def test_same_step_as_that_of_the_model_alone(recorded: dict[str, Job]) -> None:
    """A script and a factory of the same model have the same operators."""
    from torch import nn

    from foretell.workloads.capture import capture
    from foretell.workloads.step_options import InputSpec, StepOptions

    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    alone = capture(model, [InputSpec(shape=(16, 32))], options=StepOptions(loss="cross_entropy"))
    script = load(recorded, "ddp_torchrun").workload

    def describe(workload: Workload) -> list[tuple[object, ...]]:
        return [
            (each.kind, each.phase, each.inputs, each.output, each.flops, each.bytes_moved, each.kernels)
            for each in workload.operators
            if each.phase is not StepPhase.UPDATE
        ]

    assert describe(script) == describe(alone)
