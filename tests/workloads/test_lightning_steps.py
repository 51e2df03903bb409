"""A LightningModule is read by its own training step and optimizers."""

from pathlib import Path

import pytest

from foretell.core.errors import WorkloadError
from foretell.core.workload import StepPhase
from foretell.workloads.api import read_workload
from foretell.workloads.step_options import StepOptions, parse_input

pytest.importorskip("lightning")
FILE = Path(__file__).parent / "lightning_models.py"
INPUTS = [parse_input("32,64"), parse_input("32:int64:8")]


@pytest.mark.parametrize(("implementation", "kind"), [("foreach", "_foreach_addcdiv_"), ("for-loop", "addcdiv_")])
def test_its_own_step_and_optimizer_are_used_and_said(implementation: str, kind: str) -> None:
    workload = read_workload(f"{FILE}:Autoencoder", INPUTS, options=StepOptions(implementation=implementation))
    forward = [each.kind for each in workload.operators if each.phase is StepPhase.FORWARD]
    assert forward == ["linear", "linear", "mse_loss", "cross_entropy", "__add__"]
    assert kind in {each.kind for each in workload.operators if each.phase is StepPhase.UPDATE}
    assert len(workload.gradients) == 4
    assert workload.settings["optimizer"] == "adamw"
    (note,) = workload.notes
    assert "Autoencoder is a LightningModule: its training_step and configure_optimizers were used" in note
    assert "Not used: --loss" in note


def test_manual_optimization_is_refused_with_what_to_do() -> None:
    with pytest.raises(WorkloadError, match=r"foretell workload show -- python train.py"):
        read_workload(f"{FILE}:Manual", INPUTS)
